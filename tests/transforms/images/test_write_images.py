"""`WriteImages` in pipelines of users' own."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pictures

from recordmill.pipelines.command_line import main
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import Manifest
from recordmill.transforms import (
    AugmentationSpec,
    Box,
    EncodeSpec,
    Image,
    ImageSpec,
    MaskClassSpec,
    TransformSpec,
    WriteImages,
)
from recordmill.transforms.dataset.element_sink import SpoolFile
from recordmill.transforms.dataset.pipeline_run import begin_run
from recordmill.transforms.images.build_image_shards import ImageShardBuilder

from ...pictures import encoded
from ...pipelines.jobs import shard_bytes
from ..user_pipelines import counts, write_elements

CLASSES = ("cat", "dog", "emu")


def picture(number: int, size: tuple[int, int] = (12, 8)) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 255, (size[1], size[0], 3), np.uint8)
    return encoded(Pictures.fromarray(pixels), "PNG")


def images(count: int) -> list[Image]:
    return [
        Image(picture(n), key=f"{CLASSES[n % 3]}/{n}.png", label=CLASSES[n % 3])
        for n in range(count)
    ]


def reasons(output: Path) -> list[tuple[str, str]]:
    lines = [
        json.loads(line)
        for path in sorted((output / "_meta/rejected").iterdir())
        for line in path.read_text().splitlines()
    ]
    return sorted((line["source"], line["reason"]) for line in lines)


def write(
    output: Path, elements: list[Any], *, bundles: int = 1, workers: int = 1, repeats: int = 0,
    **options: Any,
) -> dict[str, bytes]:  # fmt: skip
    """Runs a pipeline in which the elements are in so many bundles."""
    writing = WriteImages(str(output), **options)
    write_elements(writing, elements, bundles=bundles, workers=workers, repeats=repeats)
    return shard_bytes(output)


def store(folder: Path, elements: list[Image]) -> Path:
    for image in elements:
        path = folder / str(image.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(image.data))
    return folder


GREY = encoded(Pictures.fromarray(np.arange(0, 240, 60, np.uint8)[None]), "PNG")
AUGMENTED = ImageSpec(
    task="classification", format="tfds", transform=TransformSpec((6, 6)),
    encode=EncodeSpec("JPEG"), augmentation=AugmentationSpec.parse("flip,rotate(15)"),
)  # fmt: skip


def test_the_shards_are_those_of_the_command(tmp_path: Path) -> None:
    elements = images(60)
    folder = store(tmp_path / "in", elements)
    options = ["--splits=train:0.8,test:0.2", "--num_shards=3", "--image_size=6x6"]
    command = ["images", f"--input={folder}", f"--output={tmp_path}/command", *options]
    more = ["--encoding=JPEG", "--augmentations=flip,rotate(15)", "--copies=2", "--keep_original"]
    assert main([*command, *more, "--direct_num_workers=1"]) == 0
    found = write(
        tmp_path / "a", elements[::-1], images=AUGMENTED, copies=2, keep_original=True,
        num_shards=3, splits={"train": 0.8, "test": 0.2}, bundles=5, pack_bytes=2000,
    )  # fmt: skip
    assert found == shard_bytes(tmp_path / "command")
    assert len(found) == 4
    one, two = counts(tmp_path / "command"), counts(tmp_path / "a")
    assert one == two
    for name in ("features.json", "labels.txt", "_meta/index/train/train-00000-of-00003.idx"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "command" / name).read_bytes()
    statistics = [
        json.loads((tmp_path / name / "_meta/statistics.json").read_bytes())
        for name in ("command", "a")
    ]
    assert statistics[0]["train"] == statistics[1]["train"]
    assert not (tmp_path / "a/_tmp").exists()
    assert main(["verify", str(tmp_path / "a")]) == 0
    manifest = Manifest.from_bytes((tmp_path / "a/_meta/manifest.json").read_bytes())
    assert manifest.config["images"]["labels"] == {"cat": 0, "dog": 1, "emu": 2}


def test_any_bundles_and_any_order_give_the_same_shards(tmp_path: Path) -> None:
    # Without keys, and with images that differ in their labels alone.
    elements = [replace(image, key=None) for image in images(80)]
    elements += [replace(image, label="dog") for image in elements[:10]]
    first = write(tmp_path / "a", elements, num_shards=3)
    options: dict[str, Any] = {"num_shards": 3, "pack_bytes": 1000}
    assert write(tmp_path / "b", elements[::-1], bundles=7, **options) == first
    assert write(tmp_path / "c", elements, bundles=3, repeats=2, **options) == first
    assert counts(tmp_path / "c")["images_written"] == 90
    assert not (tmp_path / "c/_tmp").exists()


@pytest.mark.slow
def test_two_workers_give_the_same_shards(tmp_path: Path) -> None:
    elements = [replace(image, key=None) for image in images(80)]
    options: dict[str, Any] = {"num_shards": 3, "images": AUGMENTED, "copies": 2}
    first = write(tmp_path / "a", elements, **options)
    assert write(tmp_path / "b", elements, bundles=4, workers=2, **options) == first


def test_what_cannot_be_used_is_rejected_with_its_reason(tmp_path: Path) -> None:
    good = images(12)
    bad = [
        Image(b"no image", key="a", label="cat"),
        Image(b"", key="b", label="cat"),
        Image(picture(1)[:60], key="c", label="cat"),
        Image(picture(2), key="d"),
        Image(picture(2), key="e", label=("cat", "dog")),
    ]
    write(tmp_path / "ds", [*bad, *good], bundles=3, max_rejected=0.5)
    assert reasons(tmp_path / "ds") == [
        ("a", "not_an_image"), ("b", "empty_image"), ("c", "truncated_image"), ("d", "no_label"),
        ("e", "label_count"),
    ]  # fmt: skip
    found = counts(tmp_path / "ds")
    assert (found["images_listed"], found["images_written"]) == (17, 12)
    assert sum(found["rejected"].values()) == 5


def test_details_of_rejects_name_arguments(tmp_path: Path) -> None:
    classes = MaskClassSpec(values=((0, 0), (255, 1)))
    spec = ImageSpec("segmentation", "raw", encode=EncodeSpec("raw"), mask_classes=classes)
    elements = [
        Image(
            np.zeros((8, 12, 3), np.uint8), key=str(value), mask=np.full((8, 12), value, np.uint8)
        )
        for value in (0, 7, 255)
    ]
    write(tmp_path / "ds", elements, images=spec, max_rejected=0.5)
    (path,) = (tmp_path / "ds/_meta/rejected").iterdir()
    reject = json.loads(path.read_text())
    assert (reject["source"], reject["reason"]) == ("7", "mask_classes")
    assert reject["detail"] == "value 7, not in MaskClassSpec.values"


def test_too_many_rejects_end_the_pipeline_and_it_can_be_run_again(tmp_path: Path) -> None:
    broken = Image(b"no image", key="a", label="cat")
    with pytest.raises(Exception, match=r"1 of 13 elements rejected \(not_an_image 1\)"):
        write(tmp_path / "ds", [broken, *images(12)])
    assert not (tmp_path / "ds/_SUCCESS").exists()
    assert not shard_bytes(tmp_path / "ds")
    found = write(tmp_path / "ds", images(12))
    assert found == write(tmp_path / "other", images(12))
    assert sorted(path.name for path in (tmp_path / "ds").iterdir()) == sorted(
        path.name for path in (tmp_path / "other").iterdir()
    )


def plan(folder: Path, elements: list[Any], **options: Any) -> Any:
    """Writes elements and plans their shards, without a pipeline."""
    sink = WriteImages(str(folder), **options)._sink
    begin_run(sink.job, "WriteImages")
    spooled = []
    if elements:
        path, spool = f"{sink.job.workspace.work}/elements/a", sink.open_spool()
        with ExitStack() as opened:
            spool.begin(path, opened)
            spool.add(elements)
        spooled = [SpoolFile("a", len(elements), Path(path).stat().st_size)]
    sink.plan(spooled)
    return sink


@pytest.mark.parametrize(
    ("element", "options", "message"),
    [
        (b"bytes", {}, "WriteImages takes recordmill.transforms.Image, got bytes"),
        (Image(b"x", label=3), {}, r'must be the name of a class.*got 3; give label="3"'),
        (
            Image(b"x", label="3"),
            {"images": ImageSpec("classification", "tfds", numbers=True)},
            "must be a number for numbers=True, got ",
        ),
        (Image(b"x", key="\ud800", label="3"), {}, "text that UTF-8 can hold"),
    ],
)
def test_elements_of_wrong_types(
    tmp_path: Path, element: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        plan(tmp_path / "ds", [*images(3), element], **options)
    assert not list((tmp_path / "ds/_tmp/elements").iterdir())


@pytest.mark.parametrize(
    ("elements", "options", "message"),
    [
        ([], {}, "no image that can be used: it gave none at all"),
        ([Image(b"x", key="a")], {}, "no image that can be used: no_label 1"),
        ([Image(b"x", label="a\nb")], {}, "neither control characters nor line separators"),
        (images(3), {"num_shards": 9}, "must be at most 3 for train"),
        (images(3), {"splits": {"a": 0.999, "b": 0.001}}, "gives b none of 3 images"),
        (
            [replace(image, split="train") for image in images(3)],
            {"splits": ["train", "test"]},
            r"none of 3 images names the split test; set Image\.split of some, or remove it",
        ),
        (
            [Image(b"x", key=str(n), label=f"{n}.5") for n in range(30)], {},
            r"30 different ones occur, such as 0\.5; give ImageSpec\(numbers=True\)",
        ),
        (
            [Image(b"x", key=str(n), mask=np.full((8, 12), 255, np.uint8)) for n in range(3)],
            {"images": ImageSpec("segmentation", "tfds"), "num_shards": 4},
            "must be at most 3",
        ),
        (
            [Image(b"x", key="a", mask=GREY)],
            {"images": ImageSpec("segmentation", "tfds")},
            "these look like grey levels",
        ),
    ],
)  # fmt: skip
def test_collections_that_are_no_dataset(
    tmp_path: Path, elements: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        plan(tmp_path / "ds", elements, **options)


def test_files_of_others_stay(tmp_path: Path) -> None:
    other = tmp_path / "ds/_transform/mine/photo.jpg"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"the only copy")
    write(tmp_path / "ds", images(6))
    assert other.read_bytes() == b"the only copy"


def test_a_lost_pack_is_no_reject(tmp_path: Path) -> None:
    sink = plan(tmp_path / "ds", images(3), max_rejected=1.0)
    (pack,) = (tmp_path / "ds/_tmp/elements").glob("*.bin")
    pack.write_bytes(pack.read_bytes()[:-1])
    builder = ImageShardBuilder(sink.job)
    with pytest.raises(RunError, match=r"the pack of .*png is damaged or gone"):
        builder.build(0)
    builder.close()
    pack.unlink()
    with pytest.raises(RunError, match=r"damaged or gone: No such file"):
        builder.build(0)


def test_wrong_elements_end_the_pipeline(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"WriteImages takes .*Image, got bytes"):
        write(tmp_path / "ds", [b"bytes"])
    assert not (tmp_path / "ds/_SUCCESS").exists()


def test_wrong_options_fail_before_the_pipeline_runs(tmp_path: Path) -> None:
    output = str(tmp_path / "ds")
    write(tmp_path / "ds", images(3))
    with pytest.raises(UsageError, match="holds a dataset"):
        WriteImages(output)
    assert write(tmp_path / "ds", images(4), overwrite=True)
    assert counts(tmp_path / "ds")["images_written"] == 4
    other = str(tmp_path / "other")
    with pytest.raises(UsageError, match=r"must go with ImageSpec\.augmentation:"):
        WriteImages(other, copies=2)
    with pytest.raises(UsageError, match="first_label has no meaning"):
        WriteImages(other, ImageSpec("classification", "tfds", {"a": 1}), first_label=1)
    with pytest.raises(UsageError, match="num_shards"):
        WriteImages(other, num_shards={"test": 2})


def test_boxes_become_objects(tmp_path: Path) -> None:
    spec = ImageSpec("detection", "object_detection")
    elements = [
        Image(picture(1), key="a", boxes=(Box("nut", 1, 1, 5, 5), Box("bolt", 0, 0, 2, 2))),
        Image(picture(2), key="b", boxes=(Box("bolt", 3, 3, 1, 1), Box("nut", 8, 2, 30, 4))),
        Image(picture(3), key="c", boxes=()),
        Image(picture(4), key="d", boxes=None),
        Image(picture(5), key="e", boxes=(Box("bolt", 0, 0, 1e12, 1),)),
    ]
    write(tmp_path / "ds", elements, images=spec, max_rejected=0.5)
    assert reasons(tmp_path / "ds") == [("d", "no_label"), ("e", "bad_row")]
    assert (tmp_path / "ds/label_map.pbtxt").read_text().count("item") == 2
    train = json.loads((tmp_path / "ds/_meta/statistics.json").read_bytes())["train"]
    assert train["boxes_dropped_inverted"] == 1
    assert train["boxes_clipped"] == 1


def test_masks_of_bytes_of_arrays_and_of_objects(tmp_path: Path) -> None:
    spec = ImageSpec("segmentation", "raw", encode=EncodeSpec("raw"))
    mask = np.zeros((8, 12), np.uint8)
    mask[2:4, 3:9] = 2
    stored = encoded(Pictures.fromarray(mask), "PNG")
    pixels = np.asarray(Pictures.new("RGB", (12, 8), (7, 8, 9)))
    write(
        tmp_path / "ds",
        [
            Image(pixels, key="a", mask=stored),
            Image(pixels[:, :, 0], key="b", mask=mask),
            Image(pixels, key="c", mask=mask[:4]),
            Image(pixels, key="d"),
        ],
        images=spec,
        max_rejected=0.5,
    )
    assert reasons(tmp_path / "ds") == [("c", "mask_size"), ("d", "no_mask")]
    (data,) = shard_bytes(tmp_path / "ds").values()
    assert data.count(mask.tobytes()) == 2
    assert data.count(pixels.tobytes()) == 1
    names = (tmp_path / "ds/labels.txt").read_text().splitlines()
    assert names == ["background", "class_1", "class_2"]


def test_numbers_and_several_labels(tmp_path: Path) -> None:
    elements = [Image(picture(n), key=str(n), label=n / 2) for n in range(5)]
    write(tmp_path / "n", elements, images=ImageSpec("classification", "tfds", numbers=True))
    assert counts(tmp_path / "n")["images_written"] == 5
    assert not (tmp_path / "n/labels.txt").exists()
    spec = ImageSpec("classification", "tfds", multilabel=True)
    labels: tuple[Any, ...] = (("a", "b", "a"), (), "c")
    elements = [Image(picture(n), key=str(n), label=label) for n, label in enumerate(labels)]
    write(tmp_path / "m", elements, images=spec)
    assert (tmp_path / "m/labels.txt").read_text().split() == ["a", "b", "c"]


def test_given_labels_number_and_limit_the_classes(tmp_path: Path) -> None:
    spec = ImageSpec("classification", "tfds", {"emu": 0, "dog": 1})
    write(tmp_path / "ds", images(9), images=spec, max_rejected=0.5)
    assert {reason for _, reason in reasons(tmp_path / "ds")} == {"unknown_label"}
    assert (tmp_path / "ds/labels.txt").read_text().split() == ["emu", "dog"]
