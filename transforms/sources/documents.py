"""Read the documents of an input range: batches of lines in one buffer, with each line's document.

The reader reads blocks and never holds a whole document: a document that is longer than a batch
continues in the next one. The documents depend on the file alone, and not on the bounds of blocks
and ranges: the range in which a document begins reads all of it, wherever it ends.

`plain_text.py` reads text, `record_reader.py` JSONL, CSV and TSV, `column_reader.py` Parquet,
`tar_samples.py` WebDataset's tars, `element_rows.py` elements of a
PCollection.
"""

from __future__ import annotations

from collections.abc import Iterator

from recordmill.transforms.sources.blocks import BrokenFileError, first_line, read_blocks
from recordmill.transforms.sources.column_reader import ColumnReader
from recordmill.transforms.sources.delimited_records import DelimitedRecords
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.element_rows import read_element_rows
from recordmill.transforms.sources.json_records import JsonLines, JsonValues
from recordmill.transforms.sources.json_values import (
    SNIFFED_BYTES,
    has_object_lines,
    read_beginning,
)
from recordmill.transforms.sources.long_documents import without_long_documents
from recordmill.transforms.sources.open_columns import open_columns
from recordmill.transforms.sources.plain_text import TextReader
from recordmill.transforms.sources.record_reader import RecordReader
from recordmill.transforms.sources.tar_samples import SampleReader
from recordmill.transforms.sources.work_items import COLUMN_FORMATS, ELEMENTS, SourceRange
from recordmill.transforms.storage.regular_files import NotRegularError


def read_documents(
    source: SourceRange,
    spec: DocumentSpec,
    *,
    groups: bool = True,
    limits: DocumentLimits = READ_LIMITS,
) -> Iterator[DocumentBatch]:
    """Yields the documents that begin in a range; a file that cannot be read is a reject.

    Memory: some blocks, the longest record, and the longest document up to
    `limits.open_document_bytes` and `spec.max_document_bytes`, whatever the size of the range.

    Args:
      source: the range.
      spec: how documents lie in it.
      groups: whether groups are wanted; else they are all equal, which saves a pass over the text.
      limits: sizes.
    """
    batches = _documents_of(source, spec, groups=groups, limits=limits)
    if spec.max_document_bytes:
        return without_long_documents(batches, spec.max_document_bytes, source.name)
    return batches


def _documents_of(
    source: SourceRange, spec: DocumentSpec, *, groups: bool, limits: DocumentLimits
) -> Iterator[DocumentBatch]:
    hashed_bytes = limits.hashed_bytes if groups else 0
    if source.format == ELEMENTS:
        yield from read_element_rows(source, spec, hashed_bytes)
        return
    maker = BatchMaker(source, hashed_bytes=hashed_bytes)
    if source.outside:
        maker.reject(0, "read", "outside_input", source.outside)
        yield from maker.remaining()
        return
    try:
        yield from _read(source, spec, limits, maker)
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotRegularError) as error:
        maker.reject(0, "read", "unreadable_file", str(error))
        yield from maker.remaining()


def _read(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
) -> Iterator[DocumentBatch]:
    if source.format in COLUMN_FORMATS:
        return _read_columns(source, spec, limits, maker)
    if source.format == "json":
        beginning = _beginning(source, spec)
        if not has_object_lines(beginning):
            return RecordReader(source, spec, limits, maker, JsonValues()).read(0)
    if source.format in ("json", "jsonl"):
        start = 0 if source.compression else first_line(source, limits)[0]
        return RecordReader(source, spec, limits, maker, JsonLines()).read(start)
    if source.format in ("csv", "tsv"):
        rows = DelimitedRecords(source, spec, limits)
        return RecordReader(source, spec, limits, maker, rows).read(source.start)
    if source.format == "webdataset":
        return SampleReader(source, spec, limits, maker).read()
    return TextReader(source, spec, limits, maker).read()


def _read_columns(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
) -> Iterator[DocumentBatch]:
    if not source.size:
        return
    try:
        with open_columns(source, ratio=spec.max_compression_ratio) as opened:
            yield from ColumnReader(opened, spec, limits, maker).read()
    except BrokenFileError as error:
        maker.reject(0, "read", error.reason, str(error))
        yield from maker.remaining()


def _beginning(source: SourceRange, spec: DocumentSpec) -> bytes:
    try:
        return read_beginning(read_blocks(source, spec, 0, SNIFFED_BYTES))
    except BrokenFileError:
        return b""
