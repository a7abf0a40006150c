"""What is warned of, as a table of statistics, and how statistics are shown."""

from __future__ import annotations

from typing import Any

import pytest

from recordmill.transforms.dataset.statistics_report import describe_statistics
from recordmill.transforms.dataset.statistics_warnings import find_warnings

TEXT = {"examples": 10, "random_next_rate": 0.5, "padding_rate": 0.1, "unknown_rate": 0.01}
IMAGES = {
    "examples": 8, "images": 4, "images_all_alike": False, "classes": {"cat": 4, "dog": 4},
}  # fmt: skip
MASKS = {"examples": 4, "images": 4, "classes": {}, "masks": 4, "masks_without_object": 3}
BOXES = {
    "examples": 2, "images": 2, "classes": {"raccoon": 3}, "objects": 3, "boxes_dropped_empty": 0,
}  # fmt: skip
CLASSIFIED = {
    "examples": 9, "padding_rate": 0.1, "unknown_rate": 0.01, "cut_rate": 0.2,
    "tokens_per_example": [0, 0, 0, 9], "classes": {"ham": 5, "spam": 4},
}  # fmt: skip
UNPACKED = {"examples": 9, "documents_in_rows": 9, "documents_cut": 1}
PACKED = UNPACKED | {"fill_rate": 0.95, "documents_cut_rate": 0.1}
SHARED = {"splits": ["test", "train"], "images": 3, "of_sampled": 40, "first": ["b.jpg", "a.jpg"]}


@pytest.mark.parametrize(
    "statistics",
    [
        {"train": TEXT, "inputs": {"rejected": {}}},
        {"train": IMAGES, "test": IMAGES, "inputs": {"shared_contents": []}},
        {"train": MASKS},
        {"train": CLASSIFIED},
        {"train": BOXES},  # one class is usual for detection
        {"train": TEXT | {"random_next_rate": 0.6, "padding_rate": 0.5, "unknown_rate": 0.05}},
        {"train": IMAGES | {"classes": {str(n): 4 for n in range(9)}}},
        {"train": IMAGES, "inputs": {"rejected": {"broken_image": {"inputs": 1, "first": "a"}}}},
        # one example in each split
        {split: IMAGES | {"examples": 4, "classes": {"a": 1, "b": 3}} for split in ("x", "y")},
        {"train": PACKED},
        {"train": PACKED | {"fill_rate": 0.4, "examples": 7}},  # so few rows cannot be full
        {},
    ],
)
def test_nothing_is_wrong(statistics: dict[str, Any]) -> None:
    assert find_warnings(statistics) == []


@pytest.mark.parametrize(
    ("statistics", "rule", "value", "parts"),
    [
        (
            {"train": TEXT | {"random_next_rate": 0.836}},
            "random_next", 0.836, ["83.6% of the second segments of train", "--documents=file"],
        ),
        (
            {"train": TEXT | {"padding_rate": 0.51}},
            "padding", 0.51, ["51.0% of the positions of train", "--max_seq_length"],
        ),
        (
            {"train": PACKED | {"fill_rate": 0.89}},
            "fill", 0.89, ["only 89.0% of the packed rows of train", "use fewer shards"],
        ),
        (
            {"train": UNPACKED | {"padding_rate": 0.51}},
            "padding", 0.51, ["51.0% of the positions of train", "use --packing=best_fit"],
        ),
        (
            {"train": CLASSIFIED | {"padding_rate": 0.51}},
            "padding", 0.51, ["the longest example has 3 tokens", "--max_seq_length"],
        ),
        (
            {"train": CLASSIFIED | {"classes": {"ham": 9}}},
            "one_class", 9, ["all 9 rows are of one class, 'ham'", "--label_field"],
        ),
        (
            {"train": CLASSIFIED | {"classes": {"ham": 8, "spam": 1}}},
            "class_with_one_example", 1, ["1 of 2 classes have one example (spam)"],
        ),
        (
            {"inputs": {"shared_contents": [
                {k: v for k, v in SHARED.items() if k != "images"} | {"documents": 4}
            ]}},
            "shared_content", 4, ["4 documents of test are also in train", "without --split_by"],
        ),
        (
            {"train": TEXT | {"unknown_rate": 0.09}},
            "unknown_tokens", 0.09, ["9.0% of the tokens of train", "--do_lower_case"],
        ),
        (
            {"train": IMAGES | {"images_all_alike": True}},
            "images_all_alike", 4, ["all 4 images of train have the same bytes", "--input"],
        ),
        (
            {"train": MASKS | {"masks_without_object": 4}},
            "masks_without_object", 1.0, ["4 of 4 masks of train", "--binary_masks"],
        ),
        (
            {"train": BOXES | {"boxes_dropped_empty": 3, "boxes_dropped_inverted": 1}},
            "boxes_dropped", 4, ["4 of 7 objects of train were dropped", "no area"],
        ),
        (
            {"train": BOXES | {"images_turned": 3, "images_turned_unclear": 2}},
            "drawn_on", 2, ["2 of 2 examples of train have boxes or masks, and", "--drawn_on"],
        ),
        (
            {"train": BOXES | {"boxes_clipped": 2}},
            "boxes_clipped", 2, ["2 of 3 boxes of train reach beyond", "and --box_units"],
        ),
        (
            {"train": BOXES | {"boxes_clipped": 2, "images_unturned": 1}},
            "boxes_clipped", 2, ["--box_units, and --drawn_on, because EXIF turns some images"],
        ),
        (
            # two copies of each image
            {"train": IMAGES | {"classes": {"cat": 2, "dog": 4, "eel": 2}}},
            "class_with_one_example", 2, ["2 of 3 classes", "(cat, eel)", "--labels"],
        ),
        (
            {"train": IMAGES | {"classes": {"cifar": 8}}},
            "one_class", 4, ["all 4 images are of one class, 'cifar'", "--label_folder"],
        ),
        (
            {"train": IMAGES, "inputs": {"shared_contents": [SHARED]}},
            "shared_content", 3,
            ["3 images of test are also in train (of 40 sampled; b.jpg has the bytes of a.jpg)"],
        ),
        (
            {"inputs": {"no_schema": "feature a is float32 in some records and int64 in others"}},
            "no_schema", 1.0,
            ["because feature a is float32 in some records and int64 in others", "`record`"],
        ),
        *(
            (
                {
                    "train": IMAGES,
                    "inputs": {"rejected": {reason: {"inputs": 2, "first": "a.gif"}}},
                },
                f"rejected_{reason}", 2, [f"all 2 images {which}", "such as a.gif", flag],
            )
            for reason, which, flag in (
                ("decompression_bomb", "of more pixels than --max_pixels", "raise --max_pixels"),
                ("unencodable", "that are too large for the format", "--encoding"),
                ("zero_size", "without width or height", "--input"),
            )
        ),
    ],
)  # fmt: skip
def test_what_is_wrong(
    statistics: dict[str, Any], rule: str, value: float, parts: list[str]
) -> None:
    (warning,) = find_warnings(statistics)
    assert (warning.rule, warning.value) == (rule, value)
    for part in parts:
        assert part in warning.text
    assert "\n" not in warning.text


def test_one_rejected_image_is_told_as_one() -> None:
    rejected = {"decompression_bomb": {"inputs": 1, "first": "a.gif"}}
    (warning,) = find_warnings({"train": IMAGES, "inputs": {"rejected": rejected}})
    assert warning.text.startswith(
        "the one image of more pixels than --max_pixels, or that unpacks to far too much, was "
        "rejected (decompression_bomb, such as a.gif)"
    )


def test_rejected_files_of_text_are_no_images() -> None:
    rejected = {"decompression_bomb": {"inputs": 1, "first": "a.parquet"}}
    (warning,) = find_warnings({"train": TEXT, "inputs": {"rejected": rejected}})
    assert warning.text == (
        "the one input that unpacks to far too much was rejected (decompression_bomb, such as "
        "a.parquet), so the dataset lacks what they hold: if they are to be trusted, raise "
        "--max_compression_ratio (of text), or write them with less compression"
    )


def test_numbers_of_examples_in_a_sample_say_nothing() -> None:
    statistics = {"the sample": IMAGES | {"classes": {"cat": 2, "dog": 4}}}
    assert find_warnings(statistics)
    assert find_warnings(statistics, of_sample=True) == []


def test_of_many_kinds_of_files_the_most_frequent_are_named() -> None:
    kinds = {f".{n}": {"files": n, "first": f"x.{n}"} for n in range(1, 31)}
    ((name, line),) = describe_statistics({"inputs": {"passed_over": kinds}})
    assert name == "passed over"
    assert line.startswith(".30 30 (such as x.30), .29 29 (such as x.29), ")
    assert line.endswith(".26 26 (such as x.26); 325 of 25 other kinds")


def test_statistics_in_lines() -> None:
    many = {f"c{n}": 10 * n for n in range(1, 9)}
    statistics = {
        "train": TEXT
        | {"classes": many, "objects": 5, "boxes_dropped_empty": 2, "boxes_dropped_cut": 1},
        "test": {"classes": {"dog": 1, "cat": 3000}},
        "mask": MASKS,
        "warnings": [],
        "inputs": {
            "passed_over": {".xml": {"files": 1200, "first": "a/b.xml"}},
            "rejected": {"not_json": {"inputs": 3, "first": "c.jsonl"}},
        },
    }
    assert list(describe_statistics(statistics)) == [
        (
            "classes of train",
            "8; the most frequent: c8 80, c7 70, c6 60; the rarest: c3 30, c2 20, c1 10",
        ),
        ("tokens of train", "1.0% unknown tokens, 10.0% padding, 50.0% random second segments"),
        (
            "objects of train",
            "5 written, 2 dropped: without an area, 1 dropped: cut away by the transform",
        ),
        ("classes of test", "2: cat 3,000, dog 1"),
        ("masks of mask", "4, 3 of them without an object"),
        ("passed over", ".xml 1,200 (such as a/b.xml)"),
        ("rejected", "not_json 3 (such as c.jsonl)"),
    ]  # fmt: skip
