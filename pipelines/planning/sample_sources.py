"""Parts of files, for the sample of `recordmill plan`: evenly over all bytes of the input.

The input counts as one long text, file after file. A part is a piece of it at a place drawn in each
of equal steps, so small files, long lines and rare forms are in the sample as often as their bytes
are in the input. JSON lines are read in place, by the rule of work items: the records that
begin in a range, each whole. Of other files as much is copied.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import IO, Any, Generic, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.transforms.sources.blocks import BROKEN_STREAM, BrokenFileError
from recordmill.transforms.sources.delimited import RecordScanner, delimiter_of
from recordmill.transforms.sources.formats import COLUMN_FORMATS, FORMATS, CutOptions
from recordmill.transforms.sources.item_cutting import cut_source
from recordmill.transforms.sources.json_values import SNIFFED_BYTES, has_object_lines
from recordmill.transforms.sources.open_rows import open_rows
from recordmill.transforms.sources.rows import column_type
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.unpacking import open_decompressed

_SEED = 1
_STORED_READ_BYTES = 1 << 9  # reading ahead would blur how much of a file a copy is
_ROWS_BYTES = 1 << 16  # of a batch of rows

SourceT = TypeVar("SourceT", bound=SourceRange)


@dataclass(frozen=True, slots=True)
class SamplePart(Generic[SourceT]):
    """A part of the input.

    Attributes:
      source: for a work item.
      input_bytes: of it, as the listing counts them.
    """

    source: SourceT
    input_bytes: float


@dataclass(frozen=True, slots=True)
class Layout:
    """How records lie in the files.

    Attributes:
      splittable: whether a file of lines can be cut between them.
      delimiter, quotes: of CSV and TSV.
      columns: of files of columns, those that are read; () for all.
      copy_records: copies the first records of a file of TFRecords to some files, so many bytes to
        each; yields how many stored bytes these are of. None: there are no such files.
    """

    splittable: bool
    delimiter: str = ""
    quotes: bool = True
    columns: tuple[str, ...] = ()
    copy_records: Callable[[Any, Sequence[int], Sequence[str]], Iterator[float]] | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some text bytes of a file, from an offset on, for a part of the sample."""

    part: int
    offset: int
    length: int


def sample_sources(
    sources: Iterable[SourceT], total: int, layout: Layout, folder: str, *, parts: int, wanted: int
) -> list[list[SamplePart[SourceT]]]:
    """Returns what each part of the sample is made of; one part of all where the input is small.

    Args:
      sources: whole files, in order.
      total: their text bytes.
      layout: how records lie in them.
      folder: for copies.
      parts: how many to take.
      wanted: text bytes of all together.
    """
    if total <= wanted:
        return [[SamplePart(replace(s, split=""), s.text_bytes) for s in sources if s.text_bytes]]
    taken: list[list[SamplePart[SourceT]]] = [[] for _ in range(parts)]
    for source, pieces in _pieces(sources, total, parts, wanted // parts):
        for piece, part in _take(source, pieces, layout, folder, sum(map(len, taken))):
            taken[piece].append(part)
    return taken


def _pieces(
    sources: Iterable[SourceT], total: int, parts: int, length: int
) -> Iterator[tuple[SourceT, list[_Piece]]]:
    """Yields the files that the sample has something of, each with what."""
    step, draws = total / parts, random.Random(_SEED)  # equal steps could be those of lines
    begins = [int(number * step + draws.random() * (step - length)) for number in range(parts)]
    first = before = 0
    for source in sources:
        end = before + source.text_bytes
        found = []
        while first < parts and begins[first] + length <= before:
            first += 1
        for number in range(first, parts):
            if begins[number] >= end:
                break
            low = max(begins[number], before)
            high = min(begins[number] + length, end)
            found.append(_Piece(number, low - before, high - low))
        if found:
            yield source, found
        before = end


def _take(
    source: SourceT, pieces: Sequence[_Piece], layout: Layout, folder: str, copies: int
) -> Iterator[tuple[int, SamplePart[SourceT]]]:
    """Yields the pieces of a file with their parts of the sample."""
    source = replace(source, split="")  # a sample has one
    if pieces[0].length == source.text_bytes:
        yield pieces[0].part, SamplePart(source, source.text_bytes)
        return
    source = replace(source, most=0)  # shares are of whole files
    lines = _lines_of(source) if layout.splittable and not source.compression else ""
    if lines:
        for piece in pieces:
            end = piece.offset + piece.length
            part = replace(source, format=lines, start=piece.offset, end=end)
            yield piece.part, SamplePart(part, piece.length)
        return
    paths = [files.join(folder, f"part-{copies + n:04d}") for n in range(len(pieces))]
    for piece, path, kind, share in _copied(source, pieces, layout, paths):
        part = replace(
            source, path=path, name=path[len(folder) + 1 :], format=kind, compression="",
            size=files.size(path), modified_ns=0, query=None, stream=None,
        )  # fmt: skip
        yield piece.part, SamplePart(part, share * source.text_bytes)


def _lines_of(source: SourceRange) -> str:
    """Returns the format of a file whose lines are documents, "" for none such.

    A document of text may be as long as its file: of those, pieces are documents of the sample.
    """
    if source.format == "json":
        with files.open_read(source.path) as handle:
            return "jsonl" if has_object_lines(handle.read(SNIFFED_BYTES)) else ""
    return source.format if source.format == "jsonl" else ""


def _copied(
    source: SourceRange, pieces: Sequence[_Piece], layout: Layout, paths: Sequence[str]
) -> Iterator[tuple[_Piece, str, str, float]]:
    """Yields pieces that are copied: where to, in which format, and the share of the file it is.

    Where a file cannot be begun in between, copies follow each other from its beginning.
    """
    lengths = [piece.length for piece in pieces]
    kind = source.format
    try:
        if source.format in COLUMN_FORMATS:
            kind = "parquet"
            shares = _copy_columns(source, pieces, layout, paths)
        elif source.format == "tfrecord" and layout.copy_records:
            packed = layout.copy_records(source, lengths, paths)
            shares = (stored / max(source.size, 1) for stored in packed)
        elif source.format == "text" and not source.compression:
            shares = map(_copy_lines, repeat(source), pieces, paths)
        else:
            shares = _copy_first(source, lengths, layout, paths)
        for piece, path, share in zip(pieces, paths, shares, strict=False):
            if share:
                yield piece, path, kind, share
    except (*BROKEN_STREAM, BrokenFileError, OSError):
        return  # a reject of the job, not of its estimate


class _Stored(io.RawIOBase):
    """A stored file that is read in small steps, and says how far."""

    def __init__(self, stored: IO[bytes]) -> None:
        self._stored = stored
        self.used = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stored.read(min(len(buffer), _STORED_READ_BYTES))
        buffer[: len(data)] = data
        self.used += len(data)
        return len(data)


def _copy_lines(source: SourceRange, piece: _Piece, path: str) -> float:
    """Copies the lines that begin in a piece of a file of text; returns the share that it is."""
    with files.open_read(source.path, piece.offset) as stored:
        data = stored.read(piece.length)
    if piece.offset:
        data = data[data.find(b"\n") + 1 :]
    data = data[: data.rfind(b"\n") + 1] or data
    files.write_bytes(path, data)
    return len(data) / source.size


def _copy_first(
    source: SourceRange, lengths: Sequence[int], layout: Layout, paths: Sequence[str]
) -> Iterator[float]:
    """Copies a file from its beginning; yields the share of it that each copy is."""
    with files.open_read(source.path) as handle:
        stored = _Stored(handle)
        stream = handle
        if source.compression:
            stream = open_decompressed(cast("IO[bytes]", stored), source.compression)
        data, at_end = stream.read(sum(lengths)), not stream.read(1)
    share = 1.0 if at_end else (stored.used or len(data)) / max(source.size, 1)
    ends = [len(data)]
    if source.format in ("csv", "tsv") and not at_end:
        scanner = RecordScanner(delimiter_of(source.format, layout.delimiter), quotes=layout.quotes)
        found = scanner.record_ends(np.frombuffer(data, np.uint8))
        ends = [int(found[-1])] if len(found) else ends
    elif source.format in FORMATS and (mark := FORMATS[source.format].end):
        wanted = (len(data) * number // len(lengths) for number in range(1, len(lengths) + 1))
        marks = [data.rfind(mark, 0, each) for each in wanted]
        ends = [*dict.fromkeys(at + len(mark) for at in marks if at >= 0)] or ends
    for begin, end, path in zip([0, *ends], ends, paths, strict=False):
        files.write_bytes(path, data[begin:end])
        yield share * (end - begin) / max(len(data), 1)


def _copy_columns(
    source: SourceRange, pieces: Sequence[_Piece], layout: Layout, paths: Sequence[str]
) -> Iterator[float]:
    """Copies rows of the ranges that pieces begin in; yields the share of the file of each copy.

    Of a range, such as a row group, the first rows are copied: as great a share of them as the
    piece is of the range's bytes.
    """
    waiting = list(zip(pieces, paths, strict=True))
    ranges: Iterable[SourceRange] = [source]
    if source.format != "bigquery":  # which makes streams for ranges
        ranges = cut_source(source, pieces[0].length, CutOptions())
    at = 0.0
    for each in ranges:
        at += each.text_bytes
        here = [one for one in waiting if one[0].offset < at]
        if not here:
            continue
        waiting = waiting[len(here) :]
        share = each.text_bytes / max(source.text_bytes, 1)
        total = _count_rows(each)
        wanted = [max(1, round(total * one[0].length / each.text_bytes)) for one in here]
        copied = _copy_rows(each, layout.columns, wanted, [path for _, path in here])
        for rows in chain(copied, repeat(0, len(here))):
            yield share * rows / max(total, 1)
            here = here[1:]
            if not here:
                break


def _count_rows(source: SourceRange) -> int:
    with open_rows(source) as opened:
        if source.format in ("sql", "bigquery"):
            return opened.num_rows
        return sum(batch.count for batch in opened.rows([], _ROWS_BYTES))


def _copy_rows(
    source: SourceRange, columns: Sequence[str], wanted: Sequence[int], paths: Sequence[str]
) -> Iterator[int]:
    """Copies so many rows to each file, as Parquet, with the columns that the job reads."""
    waiting = list(zip(wanted, paths, strict=True))
    parts: list[pa.Table] = []
    with open_rows(source) as opened:
        given = columns or tuple(opened.schema.names)
        names = [name for name in given if column_type(opened.schema, name) is not None]
        for batch in opened.rows(names, _ROWS_BYTES):
            if batch.rejects:
                break
            rows = pa.table(batch.columns) if names else pa.table({"rows": range(batch.count)})
            while waiting and rows.num_rows:
                first = rows.slice(0, waiting[0][0] - sum(part.num_rows for part in parts))
                parts.append(first)
                rows = rows.slice(first.num_rows)
                if sum(part.num_rows for part in parts) == waiting[0][0]:
                    yield _write_rows(parts, waiting.pop(0)[1])
                    parts = []
            if not waiting:
                return
    if parts:
        yield _write_rows(parts, waiting[0][1])


def _write_rows(parts: Sequence[pa.Table], path: str) -> int:
    table = pa.concat_tables(parts)
    pq.write_table(table, path)
    return int(table.num_rows)
