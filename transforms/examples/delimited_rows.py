"""Rows of CSV and TSV as Arrow's columns, some megabytes of them at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.records.arrays import Int64s
from recordmill.records.schema import DType
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.examples.examples_spec import TableSpec
from recordmill.transforms.sources.blocks import without_bom
from recordmill.transforms.sources.delimited import RecordScanner, delimiter_of, parse_row
from recordmill.transforms.sources.delimited_records import read_header
from recordmill.transforms.sources.document_spec import READ_LIMITS
from recordmill.transforms.sources.record_reader import split_records
from recordmill.transforms.sources.work_items import SourceRange

_TYPES: dict[DType, pa.DataType] = {
    "int64": pa.int64(), "float32": pa.float64(), "bytes": pa.string(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """Rows of a table.

    Attributes:
      positions: `[rows] int64`: the number of each in its file, of CSV and TSV its first byte.
      columns: name -> `[rows]`.
      rejects: rows that are not among these.
    """

    positions: Int64s
    columns: dict[str, pa.Array]
    rejects: list[Reject]


class DelimitedRows:
    """Reads the rows that begin in a range of a file.

    Args:
      source: the range.
      spec: of the columns.
    """

    def __init__(self, source: SourceRange, spec: TableSpec) -> None:
        self._source = source
        self._spec = spec.delimited
        self._delimiter = delimiter_of(source.format, spec.delimiter)
        self._quotes = self._spec.quotes
        self._header = read_header(source, self._spec)
        self._picked = [name for name in spec.columns or self._header if name in self._header]
        self._missing = next((n for n in spec.columns if n not in self._header), "")
        self._types = dict(spec.types)
        self._skips_header = source.start == 0 and spec.header == "first_row"
        self._rejects: list[Reject] = []
        csv.field_size_limit(READ_LIMITS.record_bytes)

    def read(self, block_bytes: int) -> Iterator[ParsedRows]:
        """Yields the rows in order."""
        scanner = RecordScanner(self._delimiter, quotes=self._quotes)
        blocks = split_records(
            self._source, self._spec, self._source.start,
            replace(READ_LIMITS, block_bytes=block_bytes),
            lambda block: scanner.record_ends(np.frombuffer(block, np.uint8)), self._reject,
        )  # fmt: skip
        for block in blocks:
            yield self._batch(*block)
            del block  # before the next one is read
        if self._rejects:
            yield self._parsed(np.zeros(0, np.int64), {})

    def _batch(self, data: bytes, position: int, starts: Int64s, ends: Int64s) -> ParsedRows:
        """Parses the records `data[start:end]`."""
        if self._skips_header and len(starts):
            self._skips_header = False
            starts, ends = starts[1:], ends[1:]
        if position == 0 and len(starts) and starts[0] == 0:
            starts = starts.copy()
            _, starts[0] = without_bom(data[: int(ends[0])], 0)
        rows: list[list[str]] = []
        kept: list[int] = []
        for start, row in zip(starts.tolist(), self._rows(data, starts, ends), strict=True):
            if isinstance(row, tuple):
                self._reject(position + start, *row)
            elif self._missing and row:
                detail = f"no {self._missing!r} among {', '.join(self._header[:20])}"
                self._reject(position + start, "parse", "field_missing", detail)
            elif row and len(row) != len(self._header):
                detail = f"{len(row)} where there are {len(self._header)} columns"
                self._reject(position + start, "parse", "wrong_number_of_fields", detail)
            elif row:
                rows.append(row)
                kept.append(position + start)
        return self._typed(rows, np.array(kept, np.int64))

    def _typed(self, rows: list[list[str]], positions: Int64s) -> ParsedRows:
        """Returns rows as columns of their types."""
        columns: dict[str, pa.Array] = {}
        fits = np.ones(len(rows), np.bool_)
        by_column = dict(zip(self._header, zip(*rows, strict=True), strict=True)) if rows else {}
        for name in self._picked if rows else ():
            dtype = self._types.get(name, "bytes")
            columns[name], unfit = typed_column(by_column[name], dtype)
            for row in unfit:
                if fits[row]:
                    fits[row] = False
                    detail = f"{name!r} is {by_column[name][row]!r:.80} and must be {dtype}"
                    self._reject(int(positions[row]), "parse", "bad_row", detail)
        if not fits.all():
            columns = {name: array.filter(pa.array(fits)) for name, array in columns.items()}
        return self._parsed(positions[fits], columns)

    def _parsed(self, positions: Int64s, columns: dict[str, pa.Array]) -> ParsedRows:
        """Returns rows, with the rejects since the last ones."""
        rejects, self._rejects = self._rejects, []
        return ParsedRows(positions, columns, rejects)

    def _rows(
        self, data: bytes, starts: Int64s, ends: Int64s
    ) -> list[list[str] | tuple[str, str, str]]:
        """Returns the fields of each record, none of a blank one, or why it cannot be read."""
        if not len(starts):
            return []
        block = data[int(starts[0]) : int(ends[-1])]
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self._quotes else csv.QUOTE_NONE
        try:
            text = io.StringIO(block.decode("utf-8"), newline="")
            rows = list(csv.reader(text, delimiter=self._delimiter, quoting=quoting, strict=True))
            if len(rows) == len(starts):
                return list(rows)
        except (csv.Error, UnicodeDecodeError):
            pass  # found below, row by row
        return [
            self._row(data[start:end])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]

    def _row(self, record: bytes) -> list[str] | tuple[str, str, str]:
        try:
            text = record.decode("utf-8")
            return parse_row(text, self._delimiter, quotes=self._quotes, strict=True)
        except UnicodeDecodeError as error:
            return "read", "undecodable", error.reason
        except csv.Error as error:
            return "parse", "broken_row", str(error)

    def _reject(self, position: int, stage: str, reason: str, detail: str) -> None:
        self._rejects.append(Reject(self._source.name, position, stage, reason, detail))


def infer_types(columns: Mapping[str, Sequence[str]]) -> tuple[tuple[str, DType], ...]:
    """Returns the types of columns that some rows of CSV show: numbers where all values are.

    A value without characters is none; a column that has only such is text.

    Args:
      columns: name -> values.
    """
    return tuple((name, _infer(values)) for name, values in columns.items())


def _infer(values: Sequence[str]) -> DType:
    array = pa.array([value for value in values if value], pa.string())
    if len(array):
        for dtype in ("int64", "float32"):
            try:
                array.cast(_TYPES[dtype])
            except pa.ArrowInvalid:
                continue
            return dtype
    return "bytes"


def typed_column(values: Sequence[str], dtype: DType) -> tuple[pa.Array, list[int]]:
    """Returns a column of CSV as an array, and the rows whose value is not of its type.

    A number without characters is null.
    """
    array = pa.array(values, pa.string())
    if dtype == "bytes":
        return array, []
    given = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    try:
        return given.cast(_TYPES[dtype]), []
    except pa.ArrowInvalid:
        found: list[pa.Scalar | None] = []
        unfit = []
        for row, value in enumerate(given):
            try:
                found.append(value.cast(_TYPES[dtype]).as_py())
            except pa.ArrowInvalid:
                unfit.append(row)
                found.append(None)
        return pa.array(found, _TYPES[dtype]), unfit
