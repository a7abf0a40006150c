"""Sort and join more rows than fit into memory, as listings of millions of files need it."""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby, islice
from operator import itemgetter
from typing import IO, Any

from recordmill.records.errors import RunError

Row = tuple[str, str, Any]  # key, tag, content that marshal can write
_Numbered = tuple[str, str, int, bytes]
HELD_BYTES = 1 << 27
_ROW_BYTES = 300  # the memory of a row's Python objects, without the bytes in them
_BATCH_ROWS = 1000


def sort_rows(
    rows: Iterable[Row], *, scratch: str = "", held_bytes: int = HELD_BYTES
) -> Iterator[Row]:
    """Yields rows in order of key and tag; rows with equal ones keep their order.

    Args:
      rows: `(key, tag, content)` each; marshal can write the content.
      scratch: a local folder for temporary files, which the system removes when the process ends.
      held_bytes: the approximate bytes to hold in memory; further rows go through files.

    Raises:
      RunError: a temporary file cannot be written.
    """
    with ExitStack() as opened:
        runs: list[IO[bytes]] = []
        held: list[_Numbered] = []
        size = 0
        for number, (key, tag, content) in enumerate(rows):
            packed = marshal.dumps(content)
            held.append((key, tag, number, packed))
            size += _ROW_BYTES + len(key) + len(packed)
            if size >= held_bytes:
                runs.append(opened.enter_context(_spill(sorted(held), scratch)))
                held, size = [], 0
        held.sort()
        # All numbers differ, so a comparison never reaches the contents.
        for key, tag, _, packed in heapq.merge(*map(_read, runs), held):
            yield key, tag, marshal.loads(packed)


def cogroup(
    rows: Iterable[Row], *, scratch: str = "", held_bytes: int = HELD_BYTES
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Yields each key, in order, with its contents by tag; contents of a tag keep their order.

    Args:
      rows, scratch, held_bytes: as `sort_rows` takes them.

    Raises:
      RunError: a temporary file cannot be written.
    """
    ordered = sort_rows(rows, scratch=scratch, held_bytes=held_bytes)
    for key, group in groupby(ordered, itemgetter(0)):
        contents: dict[str, list[Any]] = {}
        for _, tag, content in group:
            contents.setdefault(tag, []).append(content)
        yield key, contents


class Spool:
    """Rows on disk in their order, which can be read several times, by one reader at a time.

    Args:
      rows: values that marshal can write.
      scratch: a local folder for temporary files, which the system removes when the process ends.

    Raises:
      RunError: a temporary file cannot be written.
    """

    def __init__(self, rows: Iterable[Any], *, scratch: str = "") -> None:
        self._handle = _spill(rows, scratch)

    def __iter__(self) -> Iterator[Any]:
        self._handle.seek(0)
        return _read(self._handle)

    def close(self) -> None:
        """Deletes the rows."""
        self._handle.close()


def _spill(rows: Iterable[Any], scratch: str) -> IO[bytes]:
    """Writes rows to a temporary file; returns the file, positioned at its beginning."""
    rest = iter(rows)
    with ExitStack() as opened:
        try:
            handle = opened.enter_context(tempfile.TemporaryFile(dir=scratch or None))
            while batch := list(islice(rest, _BATCH_ROWS)):
                handle.write(marshal.dumps(batch))
            handle.seek(0)
        except OSError as error:
            folder = scratch or tempfile.gettempdir()
            raise RunError(
                f"cannot sort the listing of the input in {folder}: {error.strerror}; free some "
                "space there, or choose another --temp_dir"
            ) from error
        opened.pop_all()
    return handle


def _read(handle: IO[bytes]) -> Iterator[Any]:
    while True:
        try:
            batch = marshal.load(handle)
        except EOFError:
            return
        yield from batch
