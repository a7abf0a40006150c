"""Warnings about the statistics of a dataset: the number, why it matters, and the flag to use.

The rules look at `statistics.json` alone, so they can be tested as a table, and a dataset can be
judged again without reading it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from recordmill.records.manifest import STATISTICS_OF_ALL

MIXED_TYPES = " in some records and "  # of reasons why records have no schema
MAX_RANDOM_NEXT = 0.6
MAX_PADDING = 0.5
MIN_FILL = 0.9
MAX_UNKNOWN = 0.05
MAX_EMPTY_MASKS = 0.95
MAX_CLIPPED = 0.5
_MOST_NAMED = 3
_FEW_ROWS = 8  # fewer rows cannot be full
# What splits share, what is the same of two of them, and what to do.
_SHARED = (
    (
        "documents", "text",
        "let the hash of the text decide the split (--splits with shares, without --split_by), or "
        "give --deduplicate=exact, which keeps the first copy",
    ),
    (
        "records", "bytes",
        "let the hash of the record decide the split (--splits with shares, and --input without "
        "names of splits)",
    ),
    ("images", "bytes", "keep them in one split with --split_by"),
)  # fmt: skip
# Reasons that reject every image of a size: which, and what to do.
_SIZE_REASONS = {
    "decompression_bomb": (
        "of more pixels than --max_pixels, or that unpack to far too much,",
        "large images: raise --max_pixels if they are to be trusted",
    ),
    "unencodable": (
        "that are too large for the format to write",
        "large images: give --image_size, or another --encoding",
    ),
    "zero_size": ("without width or height", "them: remove them from --input"),
}
_BOMBS_WITHOUT_IMAGES = (
    "that unpack to far too much",
    "what they hold: if they are to be trusted, raise --max_compression_ratio (of text), or write "
    "them with less compression",
)


class StatisticsWarning(msgspec.Struct, frozen=True):
    """A warning about the statistics of a dataset.

    Attributes:
      rule: the name of the rule, for programs.
      split: the split that it is about; "" for the whole dataset.
      value: the number that the rule compares.
      text: the number, why it matters and what to do, in one line.
    """

    rule: str
    split: str
    value: float
    text: str


def find_warnings(
    statistics: Mapping[str, Any], *, of_sample: bool = False
) -> list[StatisticsWarning]:
    """Returns the warnings about the content of `statistics.json`.

    Args:
      statistics: of each split, and `inputs`.
      of_sample: the statistics are of a small sample, whose numbers of examples say nothing.
    """
    splits = split_statistics(statistics)
    warnings: list[StatisticsWarning] = []
    for split, sums in splits.items():
        warnings += _of_text(split, sums)
        warnings += _of_images(split, sums)
    if not of_sample:
        warnings += _of_classes(splits)
        inputs = statistics.get("inputs", {})
        warnings += _of_inputs(inputs)
        has_images = any("images" in sums for sums in splits.values())
        warnings += _of_rejected(inputs.get("rejected", {}), has_images=has_images)
    return warnings


def split_statistics(statistics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the statistics of each split, without those of the whole dataset."""
    return {name: sums for name, sums in statistics.items() if name not in STATISTICS_OF_ALL}


def _of_text(split: str, sums: Mapping[str, Any]) -> Iterator[StatisticsWarning]:
    random = sums.get("random_next_rate", 0.0)
    if random > MAX_RANDOM_NEXT:
        yield StatisticsWarning(
            "random_next", split, random,
            f"{random:.1%} of the second segments of {split} are random, where about 50 % are "
            "meant: most documents are too short for a second segment of their own, so the label "
            "of the next sentence teaches little. If paragraphs or lines were taken for documents, "
            "use --documents=file; for texts without pairs, --task=mlm",
        )  # fmt: skip
    padding = sums.get("padding_rate", 0.0)
    if padding > MAX_PADDING:
        if "cut_rate" in sums:
            longest = len(sums["tokens_per_example"]) - 1
            advice = f"the longest example has {longest} tokens; use a smaller --max_seq_length"
        elif "documents_cut" in sums:
            advice = (
                "use --packing=best_fit, which puts several documents into a row, or a smaller "
                "--max_seq_length"
            )
        else:
            advice = (
                "use a smaller --max_seq_length, longer documents (--documents=file), or "
                "--task=mlm with --packing=best_fit"
            )
        yield StatisticsWarning(
            "padding", split, padding,
            f"{padding:.1%} of the positions of {split} are padding, which takes training time and "
            f"teaches nothing: {advice}",
        )  # fmt: skip
    fill = sums.get("fill_rate", 1.0)
    if fill < MIN_FILL and sums["examples"] >= _FEW_ROWS:
        yield StatisticsWarning(
            "fill", split, fill,
            f"only {fill:.1%} of the packed rows of {split} are tokens, because each shard has few "
            "documents to choose from: use fewer shards, or a smaller --max_seq_length",
        )  # fmt: skip
    unknown = sums.get("unknown_rate", 0.0)
    if unknown > MAX_UNKNOWN:
        yield StatisticsWarning(
            "unknown_tokens", split, unknown,
            f"{unknown:.1%} of the tokens of {split} are unknown ones: the vocabulary does not fit "
            "the text. Check --tokenizer, --do_lower_case, which must match it, and --encoding; "
            "`recordmill vocab` makes a vocabulary of this text",
        )  # fmt: skip


def _of_images(split: str, sums: Mapping[str, Any]) -> Iterator[StatisticsWarning]:
    if sums.get("images_all_alike"):
        yield StatisticsWarning(
            "images_all_alike", split, sums["images"],
            f"all {sums['images']} images of {split} have the same bytes: nothing can be learned "
            "from them. Check --input; a download may have saved one error page many times",
        )  # fmt: skip
    masks, empty = sums.get("masks", 0), sums.get("masks_without_object", 0)
    if masks and empty / masks > MAX_EMPTY_MASKS:
        yield StatisticsWarning(
            "masks_without_object", split, empty / masks,
            f"{empty} of {masks} masks of {split} mark no pixel of any object: the masks may be "
            "of other values than class numbers. Check --masks, and --binary_masks for masks of "
            "0 and 255",
        )  # fmt: skip
    unclear = sums.get("images_turned_unclear", 0)
    if unclear:
        yield StatisticsWarning(
            "drawn_on", split, unclear,
            f"{unclear} of {sums['examples']} examples of {split} have boxes or masks, and an EXIF "
            "orientation that turns the image. They were taken as drawn on the pictures as stored, "
            "and many tools draw them on pictures as shown: look at some, then give "
            "--drawn_on=shown, or --drawn_on=stored where all is right, which builds nothing anew",
        )  # fmt: skip
    boxes = sums.get("objects", 0)
    reasons = ("inverted", "empty", "outside")
    dropped = sum(sums.get(f"boxes_dropped_{reason}", 0) for reason in reasons)
    if dropped > boxes:
        yield StatisticsWarning(
            "boxes_dropped", split, dropped,
            f"{dropped} of {dropped + boxes} objects of {split} were dropped, because their boxes "
            "have no area inside the image: check the annotations, and --box_format and "
            "--box_units",
        )  # fmt: skip
    clipped = sums.get("boxes_clipped", 0)
    if clipped > MAX_CLIPPED * (boxes + dropped):
        turns = sums.get("images_turned", 0) + sums.get("images_unturned", 0)
        turned = ", and --drawn_on, because EXIF turns some images" if turns else ""
        yield StatisticsWarning(
            "boxes_clipped", split, clipped,
            f"{clipped} of {dropped + boxes} boxes of {split} reach beyond their images, and are "
            "clipped: their numbers may mean something else. Check --box_format (xywh is not "
            f"xyxy) and --box_units{turned}",
        )  # fmt: skip


def _of_classes(splits: Mapping[str, Mapping[str, Any]]) -> Iterator[StatisticsWarning]:
    classes: Counter[str] = Counter()
    for sums in splits.values():
        # Copies of an image are no more examples of its class.
        copies = sums.get("examples", 0) / max(sums["images"], 1) if "images" in sums else 1
        for name, count in sums.get("classes", {}).items():
            classes[name] += round(count / max(copies, 1))
    single = sorted(name for name, count in classes.items() if count == 1)
    if single and len(classes) > 1:
        yield StatisticsWarning(
            "class_with_one_example", "", len(single),
            f"{len(single)} of {len(classes)} classes have one example ({_some(single)}): it can "
            "be learned or tested, not both. Give more examples, join classes in the input, or "
            "name those to keep with --labels=FILE",
        )  # fmt: skip
    has_objects = any("objects" in sums for sums in splits.values())
    has_masks = any("masks" in sums for sums in splits.values())
    if len(classes) == 1 and not has_objects and not has_masks:
        name, count = next(iter(classes.items()))
        of_text = any("cut_rate" in sums for sums in splits.values())
        things, advice = (
            ("rows", "label is in another field, use --label_field")
            if of_text
            else ("images", "classes are other folders, use --label_folder, or --labels")
        )
        yield StatisticsWarning(
            "one_class", "", count,
            f"all {count} {things} are of one class, {name!r}: nothing can be told apart. If the "
            f"{advice}",
        )  # fmt: skip


def _of_inputs(inputs: Mapping[str, Any]) -> Iterator[StatisticsWarning]:
    for shared in inputs.get("shared_contents", ()):
        one, other = shared["splits"]
        first, second = shared["first"]
        scored = other if one == "train" else one
        things, same, advice = next(kind for kind in _SHARED if kind[0] in shared)
        yield StatisticsWarning(
            "shared_content", one, shared[things],
            f"{shared[things]} {things} of {one} are also in {other} (of {shared['of_sampled']} "
            f"sampled; {first} has the {same} of {second}): scores on {scored} will be too good. "
            f"Remove the copies from the input, or {advice}",
        )  # fmt: skip
    why = inputs.get("no_schema", "")
    if MIXED_TYPES in why:  # records of other forms have none by their nature
        yield StatisticsWarning(
            "no_schema", "", 1.0,
            f"the records have no schema, because {why}: readers get each as bytes, in one "
            "feature `record`. Give the feature one type in all records where they are made (1.0 "
            "instead of 1 where others are 1.5)",
        )  # fmt: skip


def _of_rejected(rejected: Mapping[str, Any], *, has_images: bool) -> Iterator[StatisticsWarning]:
    for reason, (which, lack) in _SIZE_REASONS.items():
        if reason not in rejected:
            continue
        count, first = rejected[reason]["inputs"], rejected[reason]["first"]
        things = "image" if has_images else "input"
        if not has_images and reason == "decompression_bomb":
            which, lack = _BOMBS_WITHOUT_IMAGES
        found, were = f"all {count} {things}s", "were"
        if count == 1:
            found, were = f"the one {things}", "was"
            which = which.replace("that are", "that is").replace("that unpack", "that unpacks")
        yield StatisticsWarning(
            f"rejected_{reason}", "", count,
            f"{found} {which} {were} rejected ({reason}, such as {first}), so the dataset lacks "
            f"{lack}",
        )  # fmt: skip


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
