"""Input files: finding them, naming them, cutting them into tasks of like size."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.delimited import RecordScanner

COMPRESSIONS = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}
FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
TYPICAL_COMPRESSION_RATIO = 4
_WILDCARD = re.compile(r"[*?\[]")


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
    """

    path: str
    name: str
    format: str
    compression: str
    size: int
    start: int = 0
    end: int = -1

    @property
    def text_bytes(self) -> int:
        """The bytes of text in it, guessed for compressed files."""
        if self.compression:
            return self.size * TYPICAL_COMPRESSION_RATIO
        return (self.size if self.end < 0 else self.end) - self.start


def glob_root(pattern: str) -> str:
    """Returns the folder before the first wildcard."""
    match = _WILDCARD.search(pattern)
    fixed = pattern[: match.start()] if match else pattern
    return fixed.rpartition("/")[0]


def common_root(roots: Iterable[str]) -> str:
    """Returns what folders share: names relative to it are different for different files."""
    roots = list(roots)
    root = roots[0]
    while not all(f"{other}/".startswith(f"{root}/") for other in roots) and root:
        root = root.rpartition("/")[0]
    return root


def _format_of(path: str, input_format: str) -> tuple[str, str]:
    base, extension = os.path.splitext(path)
    compression = COMPRESSIONS.get(extension.lower(), "")
    if compression:
        extension = os.path.splitext(base)[1]
    if input_format != "auto":
        return input_format, compression
    return FORMATS.get(extension.lower(), "text"), compression


def list_sources(patterns: list[str], *, input_format: str = "auto") -> list[SourceRange]:
    """Returns the files that match, in order of name; each once.

    Raises:
      UsageError: a pattern matches nothing, or only empty files.
    """
    # Beam finds no file for a wildcard without a folder.
    patterns = [pattern if "/" in pattern else f"./{pattern}" for pattern in patterns]
    root = common_root(glob_root(pattern) for pattern in patterns)
    found: dict[str, SourceRange] = {}
    for pattern in patterns:
        try:
            matches = FileSystems.match([pattern])[0].metadata_list
        except (BeamIOError, OSError, ValueError) as error:
            raise UsageError(f"--input {pattern} cannot be listed: {error}") from error
        matches = [m for m in matches if not (files.is_local(m.path) and os.path.isdir(m.path))]
        if not matches:
            hint = ""
            if files.is_local(pattern) and os.path.isdir(pattern):
                hint = f"; for all files of that folder write {pattern.rstrip('/')}/*"
            raise UsageError(f"--input {pattern} matches no file{hint}")
        for item in matches:
            name = item.path[len(root) :].lstrip("/") if root else item.path
            kind, compression = _format_of(item.path, input_format)
            size = item.size_in_bytes
            found[item.path] = SourceRange(item.path, name, kind, compression, size)
    if not any(source.size for source in found.values()):
        raise UsageError(f"--input {' '.join(patterns)} matches only empty files")
    return sorted(found.values(), key=lambda source: source.name)


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
) -> list[list[SourceRange]]:
    """Cuts large files and gathers small ones, so that tasks are of about `target_bytes` each."""
    tasks: list[list[SourceRange]] = []
    gathered: list[SourceRange] = []
    gathered_bytes = 0
    for source in sources:
        for piece in _ranges(source, target_bytes=target_bytes, splittable=splittable):
            if gathered and gathered_bytes + piece.text_bytes > target_bytes:
                tasks.append(gathered)
                gathered, gathered_bytes = [], 0
            gathered.append(piece)
            gathered_bytes += piece.text_bytes
    if gathered:
        tasks.append(gathered)
    return tasks
