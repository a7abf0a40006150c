"""Input files: finding them, naming them, cutting them into tasks of like size.

All are streams: neither files nor tasks are ever held in a list.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from apache_beam.io.filesystem import BeamIOError

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.delimited import RecordScanner
from recordmill.transforms.globs import (
    BROKEN_LINK,
    Finder,
    FoundFile,
    absolute,
    common_root,
    glob_root,
    own_files,
    relative,
)

COMPRESSIONS = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}
FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
TYPICAL_COMPRESSION_RATIO = 4


@dataclass(frozen=True, slots=True)
class SourceRange:
    """Bytes of an input file: the documents that begin in `[start, end)` are read, each whole.

    Attributes:
      path: where it lies.
      name: its path relative to the input root: what keys are made of, so that moving the input
        changes nothing.
      format: "text", "jsonl", "csv" or "tsv".
      compression: "", "gz", "bz2", "xz" or "zst".
      start, end: in bytes; `end` -1 is the end of the file, and the only one for compressed files.
      size: of the whole file as stored.
      modified_ns: when the file was last changed; 0 where that is unknown.
    """

    path: str
    name: str
    format: str
    compression: str
    size: int
    start: int = 0
    end: int = -1
    modified_ns: int = 0

    @property
    def text_bytes(self) -> int:
        """The bytes of text in it, guessed for compressed files."""
        if self.compression:
            return self.size * TYPICAL_COMPRESSION_RATIO
        return (self.size if self.end < 0 else self.end) - self.start


def _format_of(path: str, input_format: str) -> tuple[str, str]:
    base, extension = os.path.splitext(path)
    compression = COMPRESSIONS.get(extension.lower(), "")
    if compression:
        extension = os.path.splitext(base)[1]
    if input_format != "auto":
        return input_format, compression
    return FORMATS.get(extension.lower(), "text"), compression


def list_sources(patterns: list[str], *, input_format: str = "auto") -> Iterator[SourceRange]:
    """Yields the files that match, in order of name; each once.

    Raises:
      UsageError: a pattern matches nothing, or only empty files.
    """
    root = common_root(glob_root(absolute(pattern)) for pattern in patterns)
    last, found_bytes = "", 0
    for found in heapq.merge(*map(_matches, patterns)):
        if found.path == last:
            continue
        last = found.path
        found_bytes += found.size
        name = relative(found.path, root)
        kind, compression = _format_of(found.path, input_format)
        yield SourceRange(
            found.path, name, kind, compression, found.size, modified_ns=found.modified_ns
        )
    if not found_bytes:
        raise UsageError(f"--input {' '.join(patterns)} matches only empty files")


def _matches(pattern: str) -> Iterator[FoundFile]:
    matched = False
    try:
        for found in Finder().find(own_files(absolute(pattern))):
            if found.size != BROKEN_LINK:
                matched = True
                yield found
    except (BeamIOError, OSError, ValueError) as error:
        raise UsageError(f"--input {pattern} cannot be listed: {error}") from error
    if not matched:
        hint = ""
        if files.is_local(pattern) and os.path.isdir(pattern):
            hint = f"; for all files of that folder write {pattern.rstrip('/')}/*"
        raise UsageError(f"--input {pattern} matches no file{hint}")


def _ranges(source: SourceRange, *, target_bytes: int, splittable: bool) -> Iterator[SourceRange]:
    if not splittable or source.compression or source.size <= target_bytes * 3 // 2:
        yield source
        return
    count = -(-source.size // target_bytes)
    starts = [source.size * i // count for i in range(count)]
    if source.format in ("csv", "tsv"):
        # Whether a line end is inside quotes depends on all that comes before it: one pass tells.
        starts = sorted({0, *_record_starts(source, starts[1:])})
    for start, end in zip(starts, [*starts[1:], source.size], strict=True):
        yield replace(source, start=start, end=end)


def _record_starts(source: SourceRange, wanted: list[int]) -> Iterator[int]:
    """Yields the first record that begins at or after each of the wanted offsets."""
    scanner = RecordScanner("\t" if source.format == "tsv" else ",")
    at = 0
    with files.open_read(source.path) as handle:
        while wanted and (block := handle.read(1 << 22)):
            ends = scanner.record_ends(np.frombuffer(block, np.uint8)) + at
            while wanted and len(ends) and ends[-1] >= wanted[0]:
                yield int(ends[np.searchsorted(ends, wanted[0])])
                wanted = wanted[1:]
            at += len(block)


def plan_tasks(
    sources: Iterable[SourceRange], *, target_bytes: int, splittable: bool
) -> Iterator[list[SourceRange]]:
    """Cuts large files and gathers small ones, so that tasks are of about `target_bytes` each."""
    gathered: list[SourceRange] = []
    gathered_bytes = 0
    for source in sources:
        for piece in _ranges(source, target_bytes=target_bytes, splittable=splittable):
            if gathered and gathered_bytes + piece.text_bytes > target_bytes:
                yield gathered
                gathered, gathered_bytes = [], 0
            gathered.append(piece)
            gathered_bytes += piece.text_bytes
    if gathered:
        yield gathered
