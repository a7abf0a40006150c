"""Find and name input files; `item_cutting.py` cuts them into work items.

Everything is a stream: files are not held in a list.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import msgspec

from recordmill.records.errors import UsageError
from recordmill.records.regular_files import NotRegularError
from recordmill.records.state import MAX_INT64, Count
from recordmill.transforms.sources.formats import FORMATS, format_of_name
from recordmill.transforms.storage import files
from recordmill.transforms.storage.boundary import Boundary, leaves
from recordmill.transforms.storage.globs import (
    ALL_BELOW,
    BROKEN_LINK,
    NOT_REGULAR,
    OUTSIDE,
    Finder,
    FoundFile,
    Glob,
    common_root,
    is_hidden,
    relative,
    whole_folders,
)

COMPRESSION_OF_EXTENSION = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}
_COMPRESSED_TARS = {".tgz": ".gz", ".tbz2": ".bz2", ".txz": ".xz", ".tzst": ".zst"}
TYPICAL_COMPRESSION_RATIO = 4


@dataclass(frozen=True, slots=True)
class QueryRange:
    """Rows of the answer to a query.

    Attributes:
      statement: a SELECT.
      column: of integers, in order of which rows are read.
      low, high: the least and the greatest of them in the range.
      rows: how many rows there were when the input was listed.
    """

    statement: str
    column: str
    low: int
    high: int
    rows: Count


@dataclass(frozen=True, slots=True)
class TableStream:
    """Rows of a table of BigQuery.

    Attributes:
      table: its resource name, projects/…/datasets/…/tables/….
      project: what requests are billed to.
      identity: what tells inputs apart.
      rows: about how many the table has.
      snapshot_ms: the table is read as it was then, in milliseconds since 1970; 0 for the answer to
        a query, which does not change.
      columns: those that are read; () for all.
      schema: of the rows, as Arrow's message in base64.
      name: of the stream; "" for the whole table.
      expires_ms: when the stream can no longer be read; 0 for the whole table.
    """

    table: str
    project: str
    identity: str
    rows: Count
    snapshot_ms: Count
    columns: tuple[str, ...]
    schema: str
    name: str = ""
    expires_ms: Count = 0


@dataclass(frozen=True, slots=True)
class SourceRange:
    """Bytes of an input file: the documents that begin in `[start, end)` are read, each whole.

    Attributes:
      path: the path of the file.
      name: its path relative to the input root: what keys are made of, so that moving the input
        changes nothing.
      format: by its name in `formats.FORMATS`, or "tfrecord".
      compression: "", "gz", "bz2", "xz" or "zst".
      start, end: in bytes as stored; `end` -1 is the end of the file, for compressed files mostly.
      size: of the whole file as stored.
      first_row: of columns, the number in the file of the first row that begins in the range.
      modified_ns: when the file was last changed; 0 where that is unknown.
      split: that its documents are for; "" where each document's is chosen.
      query: of a database, whose URL is the path: the rows of this range.
      stream: of a table of BigQuery, whose address is the path: the rows of this range.
      most: so many of its documents or records are read, from the first on; 0 for all.
      most_bytes: what these have, as they are read.
      most_end: of records, their positions are below it.
      outside: where a link outside of the input leads, which is rejected; "" for others.
    """

    path: str
    name: str
    format: str
    compression: str
    size: Count
    start: Count = 0
    end: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT64)] = -1
    modified_ns: int = 0
    split: str = ""
    outside: str = ""
    first_row: Count = 0
    query: QueryRange | None = None
    stream: TableStream | None = None
    most: Count = 0
    most_bytes: Count = 0
    most_end: Count = 0

    @property
    def read_bytes(self) -> int:
        """The size of the file, or what is read of it where that is a part."""
        return self.most_bytes if self.most else self.size

    @property
    def text_bytes(self) -> int:
        """The bytes of text in it, guessed for compressed files and for columns."""
        if self.most:
            return self.most_bytes
        if self.compression:
            return self.size * TYPICAL_COMPRESSION_RATIO
        stored = (self.size if self.end < 0 else self.end) - self.start
        form = FORMATS.get(self.format)
        return stored * form.ratio if form else stored


def equal_starts(source: SourceRange, target_bytes: int) -> list[int]:
    """Returns where ranges of equal size begin, of about so many bytes, from 0 on."""
    count = -(-source.size // target_bytes)
    return [source.size * i // count for i in range(count)]


def ranges_at(
    source: SourceRange, starts: Sequence[int], first_rows: Sequence[int] = ()
) -> Iterator[SourceRange]:
    """Yields the ranges of a file that begin at some positions, up to its end.

    Args:
      source: the file.
      starts: from 0 on.
      first_rows: the number of the first row of each range; () where rows have none.
    """
    if len(starts) == 1:
        yield source
        return
    ends, first_rows = [*starts[1:], source.size], first_rows or [0] * len(starts)
    for start, end, first_row in zip(starts, ends, first_rows, strict=True):
        yield replace(source, start=start, end=end, first_row=first_row)


def format_of(path: str, input_format: str) -> tuple[str, str]:
    """Returns the format of a file, and its compression, which its name says.

    Args:
      path: of the file.
      input_format: "auto": by the name.
    """
    base, extension = os.path.splitext(path)
    if extension.lower() in _COMPRESSED_TARS:
        base, extension = f"{base}.tar", _COMPRESSED_TARS[extension.lower()]
    compression = COMPRESSION_OF_EXTENSION.get(extension.lower(), "")
    if compression:
        extension = os.path.splitext(base)[1]
    if input_format != "auto":
        return input_format, compression
    return format_of_name(base if compression else path, extension) or "text", compression


def list_sources(
    patterns: list[str],
    *,
    input_format: str = "auto",
    input_compression: str = "auto",
    splits: Sequence[str] = (),
    allow_outside: Sequence[str] = (),
    skip_files: Sequence[str] = (),
    pass_over: Callable[[str, str], object] = lambda reason, path: None,
) -> Iterator[SourceRange]:
    """Yields the files that match, in order of name; each once.

    Args:
      patterns: globs; a folder stands for all files below it that are not hidden.
      input_format: of all files, or "auto".
      input_compression: of all files, or "auto".
      splits: for each pattern, the split that its files are for, "" for any; none for all any.
      allow_outside: folders beyond those of the globs that links may lead to.
      skip_files: files, folders and globs that are left out.
      pass_over: called with the reason and the path of each match that is left out: "hidden",
        "not_regular" or "skip_files".

    Raises:
      UsageError: a pattern matches nothing, or only empty files; or a file is for two splits.
    """
    globs = whole_folders(patterns)
    root = common_root(glob.root for glob in globs)
    boundary = Boundary((glob.root for glob in globs), allow_outside, skip_files)
    finder = Finder(boundary=boundary)
    below = replace(finder, skip=partial(_is_passed_over, pass_over))
    last, last_split, found_bytes = "", "", 0
    matches = (
        _tagged_matches(below if given[1].rest == ALL_BELOW else finder, *given)
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
            pass_over("not_regular", file.path)
            continue
        if boundary.skips(file.path):
            pass_over("skip_files", file.path)
            continue
        name = relative(file.path, root)
        kind, compression = format_of(file.path, input_format)
        if input_compression != "auto":
            compression = "" if input_compression == "none" else input_compression
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
    boundary.check_skipped()
    if not found_bytes:
        raise UsageError(f"--input {' '.join(patterns)} matches only empty files")


def _is_passed_over(pass_over: Callable[[str, str], object], name: str) -> bool:
    if is_hidden(name):
        pass_over("hidden", name)
    return is_hidden(name)


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
    except (OSError, ValueError) as error:
        raise UsageError(f"--input {pattern} cannot be listed: {error}") from error
    if not matched:
        is_folder = files.is_local(pattern) and os.path.isdir(pattern)
        raise UsageError(
            f"--input {pattern} {'has no file in it' if is_folder else 'matches no file'}"
        )
