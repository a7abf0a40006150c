"""The size of work items of jobs that read files, and files that are passed over."""

from __future__ import annotations

import sys

from recordmill.records.errors import visible
from recordmill.transforms.shuffle.merge_tree import MAX_FAN_IN

_MIN_WORK_ITEM_BYTES = 1 << 20
_MIN_MAPPED_BYTES = 1 << 16  # of a work item whose documents users' functions may take long for
_USUAL_WORK_ITEM_BYTES = 1 << 25
_MAX_WORK_ITEM_BYTES = 1 << 28
_WORK_ITEMS_PER_WORKER = 8


def work_item_bytes(total: int, workers: int) -> int:
    """Returns the size of a work item: enough of them for all workers, and runs not too many."""
    wanted = total // (workers * _WORK_ITEMS_PER_WORKER)
    wanted = max(_MIN_WORK_ITEM_BYTES, min(wanted, _USUAL_WORK_ITEM_BYTES))
    return max(wanted, min(total // MAX_FAN_IN, _MAX_WORK_ITEM_BYTES))


def mapped_item_bytes(total: int, workers: int) -> int:
    """Returns the most bytes of a work item whose elements users' functions see."""
    return max(_MIN_MAPPED_BYTES, total // (workers * _WORK_ITEMS_PER_WORKER))


class PassedOver:
    """How many files of an input are passed over, by reason, and the first of their names."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, reason: str, path: str) -> None:
        """Counts a file."""
        count, first = self._found.get(reason, (0, path))
        self._found[reason] = (count + 1, min(first, path))

    def report(self) -> None:
        """Prints a line, where there are any."""
        found = [f"{why} {n}, such as {first}" for why, (n, first) in sorted(self._found.items())]
        if found:
            print(visible(f"files passed over: {'; '.join(found)}"), file=sys.stderr)
