"""Half-open ranges of integers."""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]


def merge_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Returns the union of ranges `[low, high)`, in order; ranges that meet or overlap become one.

    >>> merge_ranges([(7, 9), (0, 3), (3, 5), (4, 6)])
    [(0, 6), (7, 9)]
    """
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
