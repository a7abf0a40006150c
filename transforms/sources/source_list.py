"""The files of an input: they are listed once, kept on disk, and added up at the same time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple
from typing import Any

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.bigquery_service import show_time
from recordmill.transforms.sources.formats import FORMATS
from recordmill.transforms.sources.work_items import (
    QueryRange,
    SourceRange,
    TableStream,
)
from recordmill.transforms.storage.external_sort import Spool

_MOST_LISTED_SOURCES = 1000


class SourceList:
    """Whole files in order of name, which can be walked as often as wanted; close it in the end.

    Raises:
      UsageError: a name is not text.

    Attributes:
      text_bytes: of all, guessed for compressed files.
      split_bytes: the same by the split that files are for.
      formats: that occur.
      is_compressed: whether any file is, or has columns that can be.
      is_cut: whether a file is read in part.
      first: format -> the first file of it that is not empty.
    """

    def __init__(self, sources: Iterable[SourceRange]) -> None:
        self.text_bytes = 0
        self.split_bytes: Counter[str] = Counter()
        self.formats: set[str] = set()
        self.is_compressed = False
        self.is_cut = False
        self.first: dict[str, SourceRange] = {}
        self._files = 0
        self._bytes = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._stamps = hashlib.blake2b(digest_size=16)
        self._names: dict[str, int] = {}
        self._snapshot_ms = 0
        self._rows = Spool(map(self._add, sources))

    def _add(self, source: SourceRange) -> tuple[Any, ...]:
        name, kind, size = source.name, source.format, source.size
        try:
            for_split = f"\t{source.split}" if source.split else ""
            for_split += f"\tfirst {source.most}" if source.most else ""
            answer = f"\t{astuple(source.query)}" if source.query else ""
            answer = f"\t{source.stream.identity}" if source.stream else answer
            what = answer or f"\t{size}{for_split}"
            self._digest.update(f"{name}\t{kind}{what}\n".encode())
        except UnicodeEncodeError as error:
            shown = name.encode("utf-8", "backslashreplace").decode()
            raise UsageError(f"--input: the name of {shown} must be UTF-8; rename it") from error
        self._stamps.update(f"{name}\t{source.modified_ns}\n".encode())
        self._files += 1
        self._bytes += source.read_bytes
        self.text_bytes += source.text_bytes
        self.split_bytes[source.split] += source.text_bytes
        self.formats.add(kind)
        self.is_cut |= bool(source.most)
        form = FORMATS.get(kind)
        self.is_compressed |= bool(source.compression or (form and form.is_limited))
        if size and kind not in self.first:
            self.first[kind] = source
        if self._files <= _MOST_LISTED_SOURCES:
            self._names[name] = size
        self._snapshot_ms = source.stream.snapshot_ms if source.stream else 0
        return (
            source.path, name, kind, source.compression, size, source.modified_ns, source.split,
            source.outside, astuple(source.query) if source.query else None,
            astuple(source.stream) if source.stream else None,
            source.most, source.most_bytes, source.most_end,
        )  # fmt: skip

    def __iter__(self) -> Iterator[SourceRange]:
        for path, name, kind, packed, size, modified, split, outside, *of_rows in self._rows:
            query, stream, most, most_bytes, most_end = of_rows
            yield SourceRange(
                path, name, kind, packed, size, modified_ns=modified, split=split,
                outside=outside, query=QueryRange(*query) if query else None,
                stream=TableStream(*stream) if stream else None,
                most=most, most_bytes=most_bytes, most_end=most_end,
            )  # fmt: skip

    def summary(self) -> dict[str, Any]:
        """Returns number, bytes and checksum of the inputs, and their names where they are few."""
        summary: dict[str, Any] = {
            "files": self._files,
            "bytes": self._bytes,
            "checksum": self._digest.hexdigest(),
        }
        if self._files <= _MOST_LISTED_SOURCES:
            summary["names"] = self._names
        if self._snapshot_ms:
            summary["snapshot_time"] = show_time(self._snapshot_ms)
        return summary

    @property
    def modified(self) -> str:
        """A checksum of when files were last changed."""
        return self._stamps.hexdigest()

    def close(self) -> None:
        """Deletes the list from the disk."""
        self._rows.close()


@contextmanager
def first_sources(
    sources: SourceList, limit: int | None, count: Callable[[SourceRange, int], SourceRange]
) -> Iterator[SourceList]:
    """Gives the files of the first inputs, the last of which is read in part; None: all of them.

    Args:
      sources: whole files.
      limit: so many inputs.
      count: (file, most) -> the file, of which so many inputs are read, or all that it has.
    """
    if limit is None:
        yield sources
        return
    with closing(SourceList(_first(sources, limit, count))) as first:
        yield first


def _first(
    sources: Iterable[SourceRange], limit: int, count: Callable[[SourceRange, int], SourceRange]
) -> Iterator[SourceRange]:
    for source in sources:
        first = count(source, limit)
        limit -= first.most
        yield source if limit else first
        if not limit:
            return
