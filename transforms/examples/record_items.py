"""The work items of a job of existing records: whole files, ranges of large ones, several small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import islice, pairwise
from typing import cast

from recordmill.records.codec.framing import HEADER_BYTES
from recordmill.transforms.examples.examples_spec import TableSpec
from recordmill.transforms.examples.record_source import (
    RecordFileRange,
    compression_of,
    record_starts,
)
from recordmill.transforms.sources.formats import ROW_FORMATS, CutOptions
from recordmill.transforms.sources.item_cutting import cut_source, gather
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files

_SNIFFED_AT_ONCE = 256
_TABLES = TableSpec()


def first_compression(source: SourceRange) -> str:
    """Returns how a file is compressed, by its first bytes; one that is no TFRecord as plain."""
    if source.format in ROW_FORMATS:
        return source.compression
    try:
        return compression_of(files.read_bytes(source.path, 0, HEADER_BYTES), source.name)
    except (ValueError, FileNotFoundError):
        return ""  # whoever reads it says what is wrong


def record_files(
    sources: Iterable[SourceRange],
    total_bytes: int,
    inputs: Mapping[str, tuple[str, float]] | None = None,
) -> Iterator[RecordFileRange]:
    """Yields files with their compression, and where each lies in the input.

    Args:
      sources: whole files, in order.
      total_bytes: of all.
      inputs: what a source says of its split -> the split, and the weight of its records; None
        where it names the split, and all weigh 1.
    """
    before = ordinal = 0
    rest = iter(sources)
    while group := list(islice(rest, _SNIFFED_AT_ONCE)):
        of_path = {source.path: source for source in group}
        found = files.map_files(lambda path: first_compression(of_path[path]), of_path)  # noqa: B023
        for source, compression in zip(group, found, strict=True):
            split, weight = inputs[source.split] if inputs else (source.split, 1.0)
            known = {f.name: getattr(source, f.name) for f in fields(SourceRange)}
            known |= {"compression": compression, "split": split}
            begin, before = before, before + source.read_bytes
            yield RecordFileRange(
                **known, weight=weight, begin_share=begin / max(total_bytes, 1),
                end_share=before / max(total_bytes, 1), ordinal=ordinal,
            )  # fmt: skip
            ordinal += 1


def cut_record_items(
    sources: Iterable[RecordFileRange], target_bytes: int, tables: TableSpec = _TABLES
) -> Iterator[list[RecordFileRange]]:
    """Cuts large files and gathers small files: work items of about `target_bytes` each.

    Args:
      sources: whole files, in order.
      target_bytes: of a work item.
      tables: how rows lie in files of them.
    """
    parts = (part for source in sources for part in _ranges(source, target_bytes, tables))
    return gather(parts, lambda part: part.text_bytes, target_bytes)


def _ranges(
    source: RecordFileRange, target_bytes: int, tables: TableSpec
) -> Iterator[RecordFileRange]:
    if source.format in ROW_FORMATS:
        options = CutOptions(delimiter=tables.delimiter, quotes=tables.quoting == "csv")
        ranges = cut_source(source, target_bytes, options)
        yield from cast("Iterator[RecordFileRange]", ranges)  # each is made of `source`
        return
    if source.compression or source.most or source.size <= target_bytes * 3 // 2:
        yield source
        return
    bounds = [*record_starts(source, target_bytes), source.size]
    for start, end in pairwise(bounds):
        yield replace(source, start=start, end=end)
