"""The documents that a work item drops: how many for which reason, and a list of them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from recordmill.records.manifest import DROPPED_PATH
from recordmill.transforms.dataset.rejects import write_rejects
from recordmill.transforms.dataset.workspace import Workspace

_SPOOL_BYTES = 1 << 22
# Why documents are dropped, and what it means to the person who reads it.
DROP_REASONS = {
    "map": "a function of --map returned None, or no document",
    "duplicate": "the text equals that of an earlier document; see --deduplicate=exact",
    "near_duplicate": "the text is almost that of an earlier document; see --deduplicate=near",
    "too_short": "the document has fewer tokens than --min_tokens",
    "too_long": "the document has more tokens than --max_tokens",
}


class DropList:
    """Counts and lists the documents that a work item drops; leaving its context frees the list.

    Args:
      listed: whether a list is wanted.
    """

    def __init__(self, *, listed: bool) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()  # (reason, split) -> documents
        self._has_lines = False
        self._spool: IO[bytes] | None = None
        if listed:
            self._spool = SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115
        # Without name and time: equal lists are equal bytes.
        self._lines = gzip.GzipFile("", "wb", fileobj=self._spool, mtime=0) if self._spool else None

    @property
    def is_listed(self) -> bool:
        """Whether a list is wanted."""
        return self._lines is not None

    def add(
        self, reason: str, split: int, describe: Callable[[], dict[str, Any]], **more: Any
    ) -> None:
        """Adds a document.

        Args:
          reason: a key of `DROP_REASONS`.
          split: its number.
          describe: returns what the document is found by, where a list is wanted.
          more: what else its line says.
        """
        self.counts[reason, split] += 1
        if self._lines:
            line = {**describe(), "reason": reason, **more}
            self.add_line(json.dumps(line, ensure_ascii=False) + "\n")

    def add_line(self, line: str) -> None:
        """Adds a line as another list has it, where a list is wanted."""
        if self._lines:
            self._lines.write(line.encode())
            self._has_lines = True

    def by_reason(self, splits: int) -> dict[str, list[int]]:
        """Returns reason -> the number of documents of each split."""
        reasons = sorted({reason for reason, _ in self.counts})
        return {r: [self.counts[r, split] for split in range(splits)] for r in reasons}

    def write(self, workspace: Workspace, number: int) -> tuple[int, int]:
        """Writes the list of a work item; returns its size and crc32c, zeros where it is empty."""
        if self._spool is None or self._lines is None or not self._has_lines:
            return 0, 0
        self._lines.close()
        written = write_rejects(
            self._spool,
            number=number,
            path=workspace.dropped_path(number),
            partial_folder=workspace.partial_folder,
        )
        return written.size_bytes, written.crc32c

    def __enter__(self) -> DropList:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lines and self._spool:
            self._lines.close()
            self._spool.close()


def holds_dropped(workspace: Workspace, number: int, size: int) -> bool:
    """Tells whether the list of a work item is there with its size; an empty one has no file."""
    path = workspace.dropped_path(number)
    return not size or workspace.holds(path, f"{DROPPED_PATH}/{path.rpartition('/')[2]}", size)
