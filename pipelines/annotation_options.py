"""Flags of the image job that say how annotations are to be read: boxes, labels, ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.boxes import BOX_FORMATS, BOX_UNITS
from recordmill.transforms.sources.kept_fields import parse_fields

_CATEGORY_IDS = ("original", "contiguous")
_ORIGINAL_FORMATS = ("object_detection", "model_garden")
_HIGHEST_ID = 100_000  # the classes up to it have a name each in the schema
_ZERO_BASED = (
    ("classification", "tfds"), ("classification", "model_garden"), ("classification", "raw"),
    ("detection", "tfds"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LabelNumbering:
    """How labels get their numbers.

    Attributes:
      first_label: the number of the first one; None is the usual one of task and format.
      category_ids: "original", "contiguous", or "" for what is usual in the format.
    """

    first_label: int | None = None
    category_ids: str = ""

    def __post_init__(self) -> None:
        if self.first_label is not None and self.category_ids == "original":
            raise UsageError(
                "--first_label has no meaning with --category_ids=original; remove one of them"
            )

    def number(
        self, names: Sequence[str], categories: Mapping[str, Any], task: str, record_format: str
    ) -> dict[str, int]:
        """Returns the number of each label.

        Args:
          names: the labels, in order.
          categories: COCO's ids of them; {} where there are none.
          task, record_format: of the job.

        Raises:
          UsageError: --category_ids is given, and the ids cannot be used or there are none.
        """
        if self.category_ids and not categories:
            raise UsageError(
                f"--category_ids={self.category_ids} must go with COCO's JSON, and without a file "
                "of --labels; remove it"
            )
        problem = _id_problem(categories)
        if self.category_ids == "original" and problem:
            raise UsageError(
                f"--category_ids=original must have {problem}; give --category_ids=contiguous"
            )
        is_usual = task == "detection" and record_format in _ORIGINAL_FORMATS and not problem
        by_default = not self.category_ids and self.first_label is None and is_usual
        if categories and (self.category_ids == "original" or by_default):
            return {name: categories[name] for name in names}
        first = self.first_label
        if first is None:
            first = 0 if (task, record_format) in _ZERO_BASED else 1
        return {name: number for number, name in enumerate(names, first)}


def _id_problem(categories: Mapping[str, Any]) -> str:
    """Returns what ids must be to be labels, "" where they are."""
    for number in categories.values():
        if not isinstance(number, int) or not 1 <= number <= _HIGHEST_ID:
            return f"ids from 1 to {_HIGHEST_ID}, because 0 is the background; got {number!r}"
    return ""


def add_annotation_arguments(group: Any) -> None:
    """Adds the flags."""
    group.add_argument(
        "--box_format", default="", choices=("", *BOX_FORMATS), metavar="xyxy | xywh | cxcywh",
        help="What the four numbers of a table's boxes are: corners; corner and size; centre and "
        "size. Usual names of columns are found, or one column bbox. Unset: corners in the columns "
        "xmin, ymin, xmax, ymax.",
    )  # fmt: skip
    group.add_argument(
        "--box_units", default="", choices=("", *BOX_UNITS), metavar="pixels | fraction",
        help="Of boxes in tables, COCO's JSON and Pascal VOC's XML; fraction of the image's width "
        "and height. Unset: pixels, and boxes that look like fractions are refused.",
    )  # fmt: skip
    group.add_argument(
        "--keep_fields", default="", metavar="COLUMN[:int|:float],…",
        help="Columns of the table of images that are carried into the records, as features of "
        "their names: text as bytes, or numbers, as caption,year:int,score:float.",
    )  # fmt: skip
    group.add_argument(
        "--label_pattern", default="", metavar="REGEX",
        help="A regular expression with one group, which is the label, searched in the names of "
        "image files, as '^(cat|dog)' for cat.17.jpg.",
    )  # fmt: skip
    group.add_argument(
        "--category_ids", default="", choices=("", *_CATEGORY_IDS),
        metavar="original | contiguous",
        help="The numbers of COCO's labels: its own category ids, or ranks from --first_label on. "
        "Unset: original for --task=detection in the formats object_detection and "
        "model_garden, whose evaluators compare with COCO's JSON; else contiguous, because TFDS's "
        "ClassLabel counts all numbers up to the highest as classes.",
    )  # fmt: skip


def add_content_arguments(group: Any) -> None:
    """Adds the flag of files whose names and bytes disagree."""
    group.add_argument(
        "--wrong_extension", default="reject", choices=("accept", "reject"),
        help="What becomes of images whose names say another format than their bytes, such as a "
        "PNG called .jpg; the bytes decide how they are decoded.",
    )  # fmt: skip


def annotation_options(options: Any) -> dict[str, Any]:
    """Returns the fields of `SourceSpec` that these flags give.

    Raises:
      UsageError: one has no effect on the task.
    """
    if options.label_pattern and options.task != "classification":
        raise UsageError(
            f"--label_pattern must go with --task=classification, got --task={options.task}"
        )
    for name in ("box_format", "box_units"):
        if getattr(options, name) and options.task != "detection":
            raise UsageError(
                f"--{name} must go with --task=detection, got --task={options.task}; remove it"
            )
    first, *more = options.annotations or [""]
    return {
        "annotations": first,
        "more_annotations": tuple(more),
        "keep_fields": parse_fields(options.keep_fields),
        "label_pattern": options.label_pattern,
        "box_format": options.box_format,
        "box_units": options.box_units,
    }
