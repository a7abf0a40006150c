"""CSV and TSV: a document a row."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.blocks import BrokenFileError, read_blocks, without_bom
from recordmill.transforms.sources.delimited import RecordScanner, delimiter_of, parse_row
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.record_reader import RecordReader
from recordmill.transforms.sources.row_fields import RecordRejectedError
from recordmill.transforms.sources.work_items import SourceRange, equal_starts, ranges_at
from recordmill.transforms.storage import files


class DelimitedRecords:
    """See `record_reader.RecordFormat`.

    Args:
      source: the range.
      spec: names the encoding, and the columns where the file's first record is no header.
      limits: sizes.
    """

    blank_bytes: bytes | None = b"\r\n"  # white space alone can be a row
    number_field = ""

    def __init__(self, source: SourceRange, spec: DocumentSpec, limits: DocumentLimits) -> None:
        self._delimiter = delimiter_of(source.format, spec.delimiter)
        self._header = read_header(source, spec, limits)
        # A row that swallowed the next would be an example with another's label in its text.
        self._strict = spec.row.label is not None
        self._quotes = spec.quotes
        self._scanner = RecordScanner(self._delimiter, quotes=spec.quotes)
        self._before_header = source.start == 0 and spec.header == "first_row"
        self._named_by = "--columns" if spec.columns else "the header"
        csv.field_size_limit(limits.record_bytes)

    def record_ends(self, block: bytes) -> Int64s:
        """Returns `[num_ends] int64`: the offsets in the next block just after each record."""
        return self._scanner.record_ends(np.frombuffer(block, np.uint8))

    def parse(self, record: bytes) -> dict[str, object] | None:
        """Returns the fields of a row by column; None for the header.

        Raises:
          RecordRejectedError: the row cannot be read, or has more or fewer fields than the header.
        """
        if self._before_header:
            self._before_header = False
            return None
        try:
            row = parse_row(
                record.decode("utf-8"), self._delimiter, quotes=self._quotes, strict=self._strict
            )
        except csv.Error as error:
            raise RecordRejectedError("broken_row", str(error)) from error
        if len(row) != len(self._header):
            detail = f"{len(row)} where {self._named_by} has {len(self._header)}"
            raise RecordRejectedError("wrong_number_of_fields", detail)
        return dict(zip(self._header, row, strict=True))

    def read_texts(
        self, data: bytes, starts: Int64s, ends: Int64s, *, name: str, most_bytes: int
    ) -> None:
        """Returns None: there is no kernel."""


def read_header(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits = READ_LIMITS
) -> list[str]:
    """Returns the column names of a CSV or TSV file, [] if it has no whole first record."""
    return list(spec.columns) or read_first_row(source, spec, limits)


def read_first_row(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits = READ_LIMITS
) -> list[str]:
    """Returns the fields of the first record, [] if there is no whole one."""
    delimiter = delimiter_of(source.format, spec.delimiter)
    scanner = RecordScanner(delimiter, quotes=spec.quotes)
    data = b""
    ends = np.zeros(0, np.int64)
    try:
        for block in read_blocks(source, spec, 0, limits.block_bytes):
            ends = scanner.record_ends(np.frombuffer(block, np.uint8)) + len(data)
            data += block
            if len(ends) or len(data) > limits.record_bytes:
                break
        first, _ = without_bom(data[: int(ends[0])] if len(ends) else data, 0)
        return parse_row(first.decode("utf-8"), delimiter, quotes=spec.quotes)
    except (BrokenFileError, UnicodeDecodeError, csv.Error):
        return []


def read_table(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
) -> Iterator[DocumentBatch]:
    """Yields the documents of a range of CSV or TSV, see `formats.SourceFormat.read`."""
    rows = DelimitedRecords(source, spec, limits)
    return RecordReader(source, spec, limits, maker, rows).read(source.start)


def cut_table_rows(
    source: SourceRange, target_bytes: int, options: CutOptions
) -> Iterator[SourceRange]:
    """Yields ranges of about so many bytes that begin with a row.

    Whether a line end is inside quotes depends on all bytes before it, so this takes a pass.
    """
    starts = equal_starts(source, target_bytes) if options.splittable else [0]
    yield from ranges_at(source, sorted({0, *_row_starts(source, starts[1:], options)}))


def _row_starts(source: SourceRange, wanted: list[int], options: CutOptions) -> Iterator[int]:
    """Yields the first row that begins at or after each of the wanted offsets."""
    delimiter = delimiter_of(source.format, options.delimiter)
    scanner = RecordScanner(delimiter, quotes=options.quotes)
    at = 0
    with files.open_read(source.path) as handle:
        while wanted and (block := handle.read(1 << 22)):
            ends = scanner.record_ends(np.frombuffer(block, np.uint8)) + at
            while wanted and len(ends) and ends[-1] >= wanted[0]:
                yield int(ends[np.searchsorted(ends, wanted[0])])
                wanted = wanted[1:]
            at += len(block)
