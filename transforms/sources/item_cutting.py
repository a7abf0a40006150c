"""Cut input files into work items of similar size.

Everything is a stream: neither files nor work items are held in a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from recordmill.transforms.sources.arrow_rows import cut_arrow
from recordmill.transforms.sources.avro_rows import cut_avro
from recordmill.transforms.sources.bigquery_tables import cut_table
from recordmill.transforms.sources.delimited import RecordScanner, delimiter_of
from recordmill.transforms.sources.json_values import SNIFFED_BYTES, has_object_lines
from recordmill.transforms.sources.parquet_rows import cut_parquet
from recordmill.transforms.sources.query_rows import cut_query
from recordmill.transforms.sources.work_items import COLUMNS_RATIO, SourceRange
from recordmill.transforms.storage import files

PartT = TypeVar("PartT")


def cut_source(
    source: SourceRange, *, target_bytes: int, splittable: bool, delimiter: str, quotes: bool
) -> Iterator[SourceRange]:
    """Yields the ranges of a file that `cut_work_items` makes work items of."""
    if source.format == "bigquery":
        yield from cut_table(source, target_bytes)  # a small one too: its time is fixed so
        return
    if source.compression or source.text_bytes <= target_bytes * 3 // 2:
        yield source
        return
    if source.format == "sql":
        yield from cut_query(source, target_bytes)
        return
    stored_bytes = target_bytes // COLUMNS_RATIO.get(source.format, 1)
    if source.format == "parquet":
        yield from _at(source, cut_parquet(source, stored_bytes))
        return
    if source.format == "arrow":
        yield from _at(source, *cut_arrow(source, stored_bytes))
        return
    if source.format == "avro":
        yield from _at(source, *cut_avro(source, stored_bytes))
        return
    if not splittable or source.format == "webdataset":
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
    yield from _at(source, starts)


def _at(
    source: SourceRange, starts: Sequence[int], first_rows: Sequence[int] = ()
) -> Iterator[SourceRange]:
    """Yields the ranges that begin at some positions, up to the end of the file."""
    if len(starts) == 1:
        yield source
        return
    ends, first_rows = [*starts[1:], source.size], first_rows or [0] * len(starts)
    for start, end, first_row in zip(starts, ends, first_rows, strict=True):
        yield replace(source, start=start, end=end, first_row=first_row)


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
    parts = (
        part
        for source in sources
        for part in cut_source(
            source,
            target_bytes=target_bytes,
            splittable=splittable,
            delimiter=delimiter,
            quotes=quotes,
        )
    )
    return gather(parts, lambda part: part.text_bytes, target_bytes)


def gather(
    parts: Iterable[PartT], size_of: Callable[[PartT], int], target_bytes: int
) -> Iterator[list[PartT]]:
    """Yields work items of about `target_bytes`, in order: several small parts, or a large one."""
    gathered: list[PartT] = []
    gathered_bytes = 0
    for part in parts:
        size = size_of(part)
        if gathered and gathered_bytes + size > target_bytes:
            yield gathered
            gathered, gathered_bytes = [], 0
        gathered.append(part)
        gathered_bytes += size
    if gathered:
        yield gathered
