"""CSV and TSV: rows by the columns that their header names."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.blocks import BrokenFileError, read_blocks, without_bom
from recordmill.transforms.sources.delimited import (
    RecordScanner,
    csv_rows,
    delimiter_of,
    parse_row,
)
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.record_rows import RecordBlock, RecordRows, without_empty_lines
from recordmill.transforms.sources.row_fields import RecordRejectedError
from recordmill.transforms.sources.rows import RowMaker, RowOptions, Rows
from recordmill.transforms.sources.work_items import SourceRange, equal_starts, ranges_at
from recordmill.transforms.storage import files

_ROWS_AT_ONCE = 256


class DelimitedRows(RecordRows):
    """See `rows.RowSource`.

    Args:
      source: the range.
      options: how it is read: the encoding, and the columns where the first row is no header.
    """

    blank_bytes: bytes | None = b"\r\n"  # white space alone can be a row

    def __init__(self, source: SourceRange, options: RowOptions) -> None:
        super().__init__(source, options)
        spec = options.spec
        self._delimiter = delimiter_of(source.format, spec.delimiter)
        self._header = read_header(source, spec, options.limits)
        self._numbers = {name: i for i, name in enumerate(self._header)}
        self.schema = pa.schema([(name, pa.string()) for name in self._numbers])
        self._scanner = RecordScanner(
            self._delimiter, quotes=spec.quotes, begins_file=source.start == 0
        )
        self._before_header = source.start == 0 and spec.header == "first_row"
        self._named_by = "--columns" if spec.columns else "the header"
        csv.field_size_limit(options.limits.record_bytes)

    def record_ends(self, block: bytes) -> Int64s:
        """Returns `[num_ends] int64`: the offsets in the next block just after each record."""
        return self._scanner.record_ends(np.frombuffer(block, np.uint8))

    def parse(self, record: bytes) -> dict[str, object] | None:
        """Returns the fields of a row by column.

        Raises:
          RecordRejectedError: the row cannot be read, or has more or fewer fields than the header.
        """
        try:
            row = parse_row(
                record.decode("utf-8"), self._delimiter, quotes=self.options.spec.quotes,
                strict=self.options.strict,
            )  # fmt: skip
        except csv.Error as error:
            raise RecordRejectedError("broken_row", str(error)) from error
        if len(row) != len(self._header):
            raise RecordRejectedError("wrong_number_of_fields", self._width(len(row)))
        return dict(zip(self._header, row, strict=True))

    def block_rows(self, block: RecordBlock, maker: RowMaker) -> Rows:
        """Returns the rows of some records, parsed at once where all can be read."""
        if self._before_header:
            block = self._without_header(block, maker)
        found = self._parse_all(block, [self._numbers[name] for name in maker.names])
        if found is None:
            return super().block_rows(without_empty_lines(block), maker)
        columns, widths = found
        offsets = block.position + block.starts
        for i in np.flatnonzero((widths != len(self._header)) & (widths > 0)).tolist():
            detail = self._width(int(widths[i]))
            maker.reject(int(offsets[i]), "parse", "wrong_number_of_fields", detail)
        arrays = [pa.array(values, pa.string()) for values in columns]
        return maker.rows(arrays, offsets[(widths == len(self._header)) & (widths > 0)])

    def _width(self, width: int) -> str:
        return f"{width} where {self._named_by} has {len(self._header)}"

    def _without_header(self, block: RecordBlock, maker: RowMaker) -> RecordBlock:
        """Leaves out the first record that is not blank, which is a reject if it is no UTF-8."""
        block = without_empty_lines(block)
        for i, (start, end) in enumerate(zip(block.starts, block.ends, strict=True)):
            at = block.position + int(start)
            record, at = without_bom(block.data[start:end], at)
            if not record.strip(self.blank_bytes):
                continue
            self._before_header = False
            try:
                self.options.spec.decode(record)
            except UnicodeDecodeError as error:
                maker.reject(at + error.start, "read", "undecodable", error.reason)
            return block._replace(starts=block.starts[i + 1 :], ends=block.ends[i + 1 :])
        return block._replace(starts=block.starts[:0], ends=block.ends[:0])

    def _parse_all(
        self, block: RecordBlock, numbers: Sequence[int]
    ) -> tuple[list[list[str]], Int64s] | None:
        """Returns columns of the rows as wide as the header, and `[records]` how wide each is.

        Returns:
          None where a record cannot be read.
        """
        data, position, starts, ends = block
        columns: list[list[str]] = [[] for _ in numbers]
        widths: list[int] = []
        if not len(starts):
            return columns, np.zeros(0, np.int64)
        if int((ends - starts).max()) > self.options.limits.record_bytes:
            return None
        begin = int(starts[0])
        _, skipped = without_bom(data[begin : begin + 3], position + begin)
        width = len(self._header)
        try:
            text = str(memoryview(data)[skipped - position : int(ends[-1])], "utf-8")
            reader = csv_rows(
                text, self._delimiter, quotes=self.options.spec.quotes, strict=self.options.strict
            )
            # Lists that live long make the garbage collector look at all that there is.
            while rows := list(islice(reader, _ROWS_AT_ONCE)):
                sizes = list(map(len, rows))
                widths += sizes
                if set(sizes) != {width} or not width:
                    rows = [row for row in rows if len(row) == width > 0]
                for column, number in zip(columns, numbers, strict=True):
                    column += [row[number] for row in rows]
        except (csv.Error, UnicodeDecodeError):
            return None
        return (columns, np.array(widths, np.int64)) if len(widths) == len(starts) else None


def read_header(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits = READ_LIMITS
) -> list[str]:
    """Returns the column names of a CSV or TSV file, [] if it has no whole first record."""
    return list(spec.columns) or read_first_row(source, spec, limits)


def read_first_row(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits = READ_LIMITS
) -> list[str]:
    """Returns the fields of the first record that is not blank, [] if none can be read."""
    delimiter = delimiter_of(source.format, spec.delimiter)
    data = first = b""
    try:
        for block in read_blocks(source, spec, 0, limits.block_bytes):
            data += block
            first = without_bom(data, 0)[0].lstrip(b"\r\n")
            scanner = RecordScanner(delimiter, quotes=spec.quotes)
            ends = scanner.record_ends(np.frombuffer(first, np.uint8))
            if len(ends):
                first = first[: int(ends[0])]
                break
            if len(data) > limits.record_bytes:
                break
        return parse_row(first.decode("utf-8"), delimiter, quotes=spec.quotes)
    except (BrokenFileError, UnicodeDecodeError, csv.Error):
        return []


@contextmanager
def open_table(source: SourceRange, options: RowOptions) -> Iterator[DelimitedRows]:
    """Opens a range of CSV or TSV, see `formats.SourceFormat.opened`."""
    yield DelimitedRows(source, options)


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
    scanner = RecordScanner(delimiter, quotes=options.quotes, begins_file=True)
    at = 0
    with files.open_read(source.path) as handle:
        while wanted and (block := handle.read(1 << 22)):
            ends = scanner.record_ends(np.frombuffer(block, np.uint8)) + at
            while wanted and len(ends) and ends[-1] >= wanted[0]:
                yield int(ends[np.searchsorted(ends, wanted[0])])
                wanted = wanted[1:]
            at += len(block)
