"""Sorting and joining more rows than fit into memory: what a listing of millions of files needs."""

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

Row = tuple[str, str, Any]  # key, tag, content: what marshal can write
_Numbered = tuple[str, str, int, bytes]
HELD_BYTES = 1 << 27
_ROW_BYTES = 300  # of Python objects, beside the bytes in them
_BATCH_ROWS = 1000


def sort_rows(
    rows: Iterable[Row], *, scratch: str = "", held_bytes: int = HELD_BYTES
) -> Iterator[Row]:
    """Yields rows in order of key and tag; equal ones stay in the order they came in.

    Args:
      rows: `(key, tag, content)` each.
      scratch: a local folder for temporary files, which vanish with the process.
      held_bytes: about how much is held in memory; what is more goes through files.

    Raises:
      RunError: there is no space for temporary files.
    """
    with ExitStack() as opened:
        runs: list[IO[bytes]] = []
        held: list[_Numbered] = []
        weight = 0
        for number, (key, tag, content) in enumerate(rows):
            packed = marshal.dumps(content)
            held.append((key, tag, number, packed))
            weight += _ROW_BYTES + len(key) + len(packed)
            if weight >= held_bytes:
                runs.append(opened.enter_context(_spill(sorted(held), scratch)))
                held, weight = [], 0
        held.sort()
        # Numbers differ, so that contents are never compared.
        for key, tag, _, packed in heapq.merge(*map(_read, runs), held):
            yield key, tag, marshal.loads(packed)


def cogroup(
    rows: Iterable[Row], *, scratch: str = "", held_bytes: int = HELD_BYTES
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Yields, for each key in order, the contents by tag in the order they came in."""
    ordered = sort_rows(rows, scratch=scratch, held_bytes=held_bytes)
    for key, group in groupby(ordered, itemgetter(0)):
        contents: dict[str, list[Any]] = {}
        for _, tag, content in group:
            contents.setdefault(tag, []).append(content)
        yield key, contents


class Spool:
    """Rows on disk in the order they came in, to be read as often as wanted, one reader at a time.

    Args:
      rows: what marshal can write.
      scratch: a local folder for temporary files, which vanish with the process.

    Raises:
      RunError: there is no space for temporary files.
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
    """Writes rows to a temporary file, and leaves it at its beginning."""
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
