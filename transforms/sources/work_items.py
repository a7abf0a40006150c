"""Find and name input files, and cut them into work items of similar size.

Everything is a stream: neither files nor work items are held in a list.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from apache_beam.io.filesystem import BeamIOError

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.delimited import RecordScanner, delimiter_of
from recordmill.transforms.sources.json_values import SNIFFED_BYTES, has_object_lines
from recordmill.transforms.storage import files
from recordmill.transforms.storage.boundary import Boundary, leaves
from recordmill.transforms.storage.globs import (
    BROKEN_LINK,
    NOT_REGULAR,
    OUTSIDE,
    Finder,
    FoundFile,
    Glob,
    common_root,
    own_files,
    parse_glob,
    relative,
)
from recordmill.transforms.storage.regular_files import NotRegularError

COMPRESSION_OF_EXTENSION = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}
FORMAT_OF_EXTENSION = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
TYPICAL_COMPRESSION_RATIO = 4


@dataclass(frozen=True, slots=True)
class SourceRange:
    """Bytes of an input file: the documents that begin in `[start, end)` are read, each whole.

    Attributes:
      path: the path of the file.
      name: its path relative to the input root: what keys are made of, so that moving the input
        changes nothing.
      format: "text", "jsonl", "json", "csv" or "tsv"; of "json" the content decides whether it is
        JSONL.
      compression: "", "gz", "bz2", "xz" or "zst".
      start, end: in bytes; `end` -1 is the end of the file, and the only one for compressed files.
      size: of the whole file as stored.
      modified_ns: when the file was last changed; 0 where that is unknown.
      split: that its documents are for; "" where each document's is chosen.
      outside: where a link outside of the input leads, which is rejected; "" for others.
    """

    path: str
    name: str
    format: str
    compression: str
    size: int
    start: int = 0
    end: int = -1
    modified_ns: int = 0
    split: str = ""
    outside: str = ""

    @property
    def text_bytes(self) -> int:
        """The bytes of text in it, guessed for compressed files."""
        if self.compression:
            return self.size * TYPICAL_COMPRESSION_RATIO
        return (self.size if self.end < 0 else self.end) - self.start


def _format_of(path: str, input_format: str) -> tuple[str, str]:
    base, extension = os.path.splitext(path)
    compression = COMPRESSION_OF_EXTENSION.get(extension.lower(), "")
    if compression:
        extension = os.path.splitext(base)[1]
    if input_format != "auto":
        return input_format, compression
    if extension.lower() == ".json":
        return "json", compression
    return FORMAT_OF_EXTENSION.get(extension.lower(), "text"), compression


def list_sources(
    patterns: list[str],
    *,
    input_format: str = "auto",
    splits: Sequence[str] = (),
    allow_outside: Sequence[str] = (),
    pass_over: Callable[[str], object] = lambda _: None,
) -> Iterator[SourceRange]:
    """Yields the files that match, in order of name; each once.

    Args:
      patterns: globs.
      input_format: of all files, or "auto".
      splits: for each pattern, the split that its files are for, "" for any; none for all any.
      allow_outside: folders beyond those of the globs that links may lead to.
      pass_over: called with the path of each match that is no regular file.

    Raises:
      UsageError: a pattern matches nothing, or only empty files; or a file is for two splits.
    """
    globs = [own_files(parse_glob(pattern)) for pattern in patterns]
    root = common_root(glob.root for glob in globs)
    finder = Finder(boundary=Boundary((glob.root for glob in globs), allow_outside))
    last, last_split, found_bytes = "", "", 0
    matches = (
        _tagged_matches(finder, *given)
        for given in zip(patterns, globs, splits or [""] * len(patterns), strict=True)
    )
    for file, split in heapq.merge(*matches):
        if file.path == last:
            if split != last_split:
                raise UsageError(
                    f"--input gives {file.path} to the splits {last_split} and {split}; "
                    "a file can be in one"
                )
            continue
        last, last_split = file.path, split
        if file.size == NOT_REGULAR:
            pass_over(file.path)
            continue
        name = relative(file.path, root)
        kind, compression = _format_of(file.path, input_format)
        if file.size == OUTSIDE:
            yield SourceRange(
                file.path, name, kind, compression, 0, split=split, outside=leaves(file.path)
            )
            continue
        found_bytes += file.size
        yield SourceRange(
            file.path, name, kind, compression, file.size, modified_ns=file.modified_ns,
            split=split,
        )  # fmt: skip
    if not found_bytes:
        raise UsageError(f"--input {' '.join(patterns)} matches only empty files")


def _tagged_matches(
    finder: Finder, pattern: str, glob: Glob, split: str
) -> Iterator[tuple[FoundFile, str]]:
    return ((file, split) for file in _matches(finder, pattern, glob))


def _matches(finder: Finder, pattern: str, glob: Glob) -> Iterator[FoundFile]:
    matched = False
    try:
        for file in finder.find(glob):
            if file.size != BROKEN_LINK:
                matched = True
                yield file
    except NotRegularError as error:
        raise UsageError(f"--input {pattern} is {error.strerror}") from error
    except (BeamIOError, OSError, ValueError) as error:
        raise UsageError(f"--input {pattern} cannot be listed: {error}") from error
    if not matched:
        hint = ""
        if files.is_local(pattern) and os.path.isdir(pattern):
            hint = f"; for all files of that folder write {pattern.rstrip('/')}/*"
        raise UsageError(f"--input {pattern} matches no file{hint}")


def _ranges(
    source: SourceRange, *, target_bytes: int, splittable: bool, delimiter: str, quotes: bool
) -> Iterator[SourceRange]:
    if not splittable or source.compression or source.size <= target_bytes * 3 // 2:
        yield source
        return
    if source.format == "json":
        with files.open_read(source.path) as handle:
            if not has_object_lines(handle.read(SNIFFED_BYTES)):
                yield source
                return
        source = replace(source, format="jsonl")
    count = -(-source.size // target_bytes)
    starts = [source.size * i // count for i in range(count)]
    if source.format in ("csv", "tsv"):
        # Whether a line end is inside quotes depends on all bytes before it, so this takes a pass.
        starts = sorted({0, *_record_starts(source, starts[1:], delimiter, quotes)})
    for start, end in zip(starts, [*starts[1:], source.size], strict=True):
        yield replace(source, start=start, end=end)


def _record_starts(
    source: SourceRange, wanted: list[int], delimiter: str, quotes: bool
) -> Iterator[int]:
    """Yields the first record that begins at or after each of the wanted offsets."""
    scanner = RecordScanner(delimiter_of(source.format, delimiter), quotes=quotes)
    at = 0
    with files.open_read(source.path) as handle:
        while wanted and (block := handle.read(1 << 22)):
            ends = scanner.record_ends(np.frombuffer(block, np.uint8)) + at
            while wanted and len(ends) and ends[-1] >= wanted[0]:
                yield int(ends[np.searchsorted(ends, wanted[0])])
                wanted = wanted[1:]
            at += len(block)


def cut_work_items(
    sources: Iterable[SourceRange],
    *,
    target_bytes: int,
    splittable: bool,
    delimiter: str = "",
    quotes: bool = True,
) -> Iterator[list[SourceRange]]:
    """Cuts large files and gathers small ones: work items of about `target_bytes` each."""
    gathered: list[SourceRange] = []
    gathered_bytes = 0
    for source in sources:
        for part in _ranges(
            source,
            target_bytes=target_bytes,
            splittable=splittable,
            delimiter=delimiter,
            quotes=quotes,
        ):
            if gathered and gathered_bytes + part.text_bytes > target_bytes:
                yield gathered
                gathered, gathered_bytes = [], 0
            gathered.append(part)
            gathered_bytes += part.text_bytes
    if gathered:
        yield gathered
