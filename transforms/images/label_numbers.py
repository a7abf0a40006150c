"""The numbers that labels get in records, by the usage of tasks and formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recordmill.records.errors import UsageError

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
        if self.first_label not in (None, 0, 1):
            raise UsageError(f"--first_label must be 0 or 1, got {self.first_label}")
        if self.first_label is not None and self.category_ids == "original":
            raise UsageError(
                "--first_label has no meaning with --category_ids=original; remove one of them"
            )

    def number(
        self, names: Sequence[str], categories: Mapping[str, object], task: str, record_format: str
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
        ids, problem = _label_ids(categories)
        if self.category_ids == "original" and problem:
            raise UsageError(
                f"--category_ids=original must have {problem}; give --category_ids=contiguous"
            )
        is_usual = task == "detection" and record_format in _ORIGINAL_FORMATS and not problem
        by_default = not self.category_ids and self.first_label is None and is_usual
        if categories and (self.category_ids == "original" or by_default):
            return {name: ids[name] for name in names}
        first = self.first_label
        if first is None:
            first = 0 if (task, record_format) in _ZERO_BASED else 1
        return {name: number for number, name in enumerate(names, first)}


def _label_ids(categories: Mapping[str, object]) -> tuple[dict[str, int], str]:
    """Returns the ids that can be labels, and what all must be for it, "" where they are."""
    ids = {
        name: number
        for name, number in categories.items()
        if isinstance(number, int) and 1 <= number <= _HIGHEST_ID
    }
    for name, number in categories.items():
        if name not in ids:
            return ids, f"ids from 1 to {_HIGHEST_ID}, because 0 is the background; got {number!r}"
    return ids, ""
