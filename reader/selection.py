"""Splits and their parts, as TFDS writes them: "train", "train[:10%]", "train[100:200]+validation".

Percentages are rounded to the nearest record, so that neighbouring parts meet without overlap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from recordmill.records.errors import UsageError, one_of

_PART = re.compile(r"\s*(?P<split>\w+)\s*(\[(?P<low>[^:\[\]]*):(?P<high>[^:\[\]]*)\])?\s*")
_BOUND = re.compile(r"(?P<number>-?\d+)(?P<percent>%)?")


@dataclass(frozen=True, slots=True)
class Part:
    """Records `[first, last)` of a split."""

    split: str
    first: int
    last: int


def _bound(text: str, records: int, default: int, whole: str) -> int:
    text = text.strip()
    if not text:
        return default
    match = _BOUND.fullmatch(text)
    if not match or (match["percent"] and abs(int(match["number"])) > 100):
        raise UsageError(
            f"a bound in a split must be a number of records or a percentage, got {text!r} in "
            f"{whole!r}: write train[:10%] or train[100:200]"
        )
    value = int(match["number"])
    if match["percent"]:
        value = round(value * records / 100)
    return min(max(value + records if value < 0 else value, 0), records)


def parse_selection(text: str, records: Mapping[str, int], where: str) -> tuple[Part, ...]:
    """Returns the parts that `text` names, in order.

    Args:
      text: one or several splits or parts of splits, with "+" between them.
      records: the number of records of each split there is.
      where: the dataset, for messages.

    Raises:
      UsageError: there is no such split, a bound cannot be read, or no record is left.
    """
    parts = []
    for one in text.split("+"):
        match = _PART.fullmatch(one)
        if not match:
            raise UsageError(
                f"a split must be a name such as 'train' or a part such as 'train[:10%]', got "
                f"{text!r}"
            )
        split = one_of(f"{where}: split", match["split"], records)
        size = records[split]
        first = _bound(match["low"] or "", size, 0, text)
        last = _bound(match["high"] or "", size, size, text)
        parts.append(Part(split, first, max(first, last)))
    if not any(part.last > part.first for part in parts):
        raise UsageError(
            f"{where}: a split must select at least one record, and {text!r} selects none of "
            + ", ".join(f"{name} ({count})" for name, count in sorted(records.items()))
        )
    return tuple(parts)
