"""Rows of any source to documents: a row is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Int64s
from recordmill.records.errors import listed
from recordmill.records.hashing import U64
from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.open_rows import open_rows
from recordmill.transforms.sources.row_fields import RecordRejectedError
from recordmill.transforms.sources.row_lines import cut_rows
from recordmill.transforms.sources.rows import (
    NO_SCHEMA,
    JsonType,
    RowOptions,
    RowReject,
    Rows,
    RowSource,
    column_of,
    column_type,
    column_values,
    without_column,
)
from recordmill.transforms.sources.text_arrays import is_text, plain_strings, row_lines
from recordmill.transforms.sources.work_items import SourceRange


class RowReader:
    """Makes documents of the rows of a range.

    A document's position is that of its row: a byte, a number, or a hash of the row.

    Args:
      opened: the range.
      spec: names the columns.
      limits: sizes.
      maker: of the batches.
    """

    def __init__(
        self, opened: RowSource, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
    ) -> None:
        self._opened = opened
        self._spec = spec
        self._limits = limits
        self._maker = maker
        self._texts, self._others = spec.text_names, spec.other_names
        self._names = column_names(spec)
        self._missing = missing_column(opened.schema, self._names)

    def read(self) -> Iterator[DocumentBatch]:
        """Yields the documents in order."""
        names = [] if self._missing else self._names
        for rows in self._opened.rows(names, self._limits.block_bytes):
            if self._missing:
                rows = without_column(rows, self._missing)
            if rows.count:
                yield self._batch(rows)
            else:
                self._reject(rows.rejects)
                yield from self._maker.remaining()
        yield from self._maker.remaining()

    def _reject(self, rejects: Sequence[RowReject]) -> None:
        for reject in sorted(rejects, key=lambda each: each.position):
            self._maker.reject(*reject)

    def _batch(self, rows: Rows) -> DocumentBatch:
        """Makes a batch of rows, without those that are rejects."""
        problems: dict[int, tuple[str, str]] = {}
        arrays = self._text_arrays(rows, problems)
        lines = row_lines(arrays)
        if not rows.is_utf8:
            lines = self._decodable(lines, arrays, problems)
        self._check_sizes(lines, problems)
        splits, groups, carried = self._check_others(rows, problems)
        positions, identities = rows.positions(), rows.identities
        rejects = list(rows.rejects)
        for row, (reason, detail) in problems.items():
            stage = "read" if reason in ("undecodable", "line_too_long") else "parse"
            shown = f"{rows.names[row]}: {detail}" if rows.names else detail
            rejects.append(RowReject(int(positions[row]), stage, reason, shown))
        self._reject(rejects)
        if problems:
            keep = np.ones(rows.count, np.bool_)
            keep[list(problems)] = False
            lines, positions = lines.select(np.repeat(keep, len(arrays))), positions[keep]
            groups = None if groups is None else groups[keep]
            splits = None if splits is None else splits[keep]
            identities = None if identities is None else identities[keep]
            if carried is not None:
                carried = [carried[i] for i in np.flatnonzero(keep)]
        lines, of_row = cut_rows(lines, len(arrays), self._spec)
        return self._maker.batch(
            lines, of_row, positions, groups=groups, splits=splits, carried=carried,
            identities=identities,
        )  # fmt: skip

    def _text_arrays(self, rows: Rows, problems: dict[int, tuple[str, str]]) -> list[pa.Array]:
        """Returns the columns of text, and adds the rows in which one is null or no text."""
        arrays = []
        for name in self._texts:
            array = rows.columns[name]
            filled = self._spec.must_be_filled(name)
            if rows.is_utf8 and not is_text(array.type):  # of records, whose values have types
                array = _texts_of_json(array, name, problems)
            elif not is_text(array.type):
                for row in range(rows.count):
                    problems.setdefault(row, ("field_not_text", f"{name!r} is {array.type}"))
                array = pa.nulls(rows.count, pa.string())
            if array.null_count:
                reason = "no_text" if filled else "field_not_text"
                nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
                for row in nulls.tolist():
                    problems.setdefault(row, (reason, f"{name!r} is null"))
            array = plain_strings(array)
            if filled:
                for row in np.flatnonzero(row_lines([array]).blank()).tolist():
                    problems.setdefault(row, ("no_text", f"{name!r} is {array[row].as_py()!r}"))
            arrays.append(array)
        return arrays

    def _decodable(
        self, lines: Lines, arrays: list[pa.Array], problems: dict[int, tuple[str, str]]
    ) -> Lines:
        """Replaces what is no UTF-8, or adds its rows; see --encoding_errors."""
        if _are_valid(arrays):
            return lines
        replaced: dict[int, bytes] = {}
        for i in np.flatnonzero(lines.non_ascii).tolist():
            try:
                text = self._spec.decode(lines[i]).encode()
            except UnicodeDecodeError as error:
                problems.setdefault(i // len(arrays), ("undecodable", error.reason))
                continue
            if text != lines[i]:
                replaced[i] = text
        return lines.replace(replaced) if replaced else lines

    def _check_sizes(self, lines: Lines, problems: dict[int, tuple[str, str]]) -> None:
        sizes = (lines.ends - lines.starts).reshape(-1, len(self._texts)).sum(axis=1)
        for row in np.flatnonzero(sizes > self._limits.record_bytes).tolist():
            problems[row] = ("line_too_long", "")

    def _check_others(
        self, rows: Rows, problems: dict[int, tuple[str, str]]
    ) -> tuple[Int64s | None, U64 | None, list[tuple[str, ...]] | None]:
        """Reads what else flags name, row by row, and adds the rows that have it not.

        Returns:
          `[rows] int64` splits, `[rows] uint64` groups, and what is carried: None where not asked.
        """
        spec, row_spec = self._spec, self._spec.row
        if not self._others:
            return None, None, None
        values = {name: row_values(rows.columns[name], spec) for name in self._others}
        splits, groups = [0] * rows.count, [0] * rows.count
        carried: list[tuple[str, ...]] = [()] * rows.count
        for row in range(rows.count):
            if row in problems:
                continue
            fields = {name: column[row] for name, column in values.items()}
            try:
                _check_values(fields)
                splits[row] = spec.split_of(fields)
                carried[row] = row_spec.carried(fields)
                groups[row] = spec.group_of(fields)
            except RecordRejectedError as error:
                problems[row] = (error.reason, error.detail)
        return spec.splits(splits), spec.groups(groups), carried if row_spec.is_carried else None


def column_names(spec: DocumentSpec) -> list[str]:
    """Returns the names of the columns that are read, each once."""
    return list(dict.fromkeys([*spec.text_names, *spec.other_names]))


def missing_column(schema: pa.Schema, names: Sequence[str]) -> str:
    """Returns that a column is not there, and which are; "" where all are, or nobody knows."""
    if schema is NO_SCHEMA:
        return ""
    for name in names:
        if column_type(schema, name) is None:
            return f"no {name!r} among {listed(schema.names)}"
    return ""


def _texts_of_json(array: pa.Array, name: str, problems: dict[int, tuple[str, str]]) -> pa.Array:
    """Returns the texts among values of several types, and adds the rows of others."""
    values = column_values(array)
    for row, value in enumerate(values):
        if not isinstance(value, str | None):
            problems.setdefault(row, ("field_not_text", f"{name!r} is {type(value).__name__}"))
    return column_of([value if isinstance(value, str) else None for value in values])


def _are_valid(arrays: list[pa.Array]) -> bool:
    try:
        for array in arrays:
            array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def row_values(array: pa.Array, spec: DocumentSpec) -> list[Any]:
    """Returns the values of a column as JSON knows them; an error where there is none such.

    Args:
      array: of any type.
      spec: says what stands for text that is no UTF-8.
    """
    if isinstance(array.type, JsonType):
        return column_values(array)
    if pa.types.is_temporal(array.type) and not pa.types.is_duration(array.type):
        array = array.cast(pa.string())
    try:
        return [_plain(value) for value in array.to_pylist()]
    except ValueError:
        return [_value(each, spec) for each in array]


def _value(scalar: pa.Scalar, spec: DocumentSpec) -> Any:
    try:
        try:
            return _plain(scalar.as_py())
        except UnicodeDecodeError:
            if not is_text(scalar.type):
                raise
            return spec.decode(pa.array([scalar]).cast(pa.large_binary())[0].as_py())
    except UnicodeDecodeError as error:
        return RecordRejectedError("undecodable", error.reason)
    except ValueError as error:
        return RecordRejectedError("bad_row", str(error))


def _check_values(fields: dict[str, Any]) -> None:
    """Raises the first error that stands for a value."""
    for value in fields.values():
        if isinstance(value, RecordRejectedError):
            raise value


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def read_rows(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
) -> Iterator[DocumentBatch]:
    """Yields the documents of a range of rows, see `formats.SourceFormat.read`."""
    if not source.size:
        return
    options = RowOptions(spec, limits, strict=spec.row.label is not None)
    try:
        with open_rows(source, options) as opened:
            yield from RowReader(opened, spec, limits, maker).read()
    except BrokenFileError as error:
        maker.reject(0, "read", error.reason, str(error))
        yield from maker.remaining()
