"""Tables about images: rows as values of Python, each with the reason if it cannot be used."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.document_spec import READ_LIMITS
from recordmill.transforms.sources.formats import COLUMN_FORMATS, DELIMITED, format_of_name
from recordmill.transforms.sources.json_rows import JsonLines
from recordmill.transforms.sources.open_rows import open_rows
from recordmill.transforms.sources.rows import (
    RowOptions,
    RowReject,
    Rows,
    RowSource,
    column_values,
)
from recordmill.transforms.sources.work_items import COMPRESSION_OF_EXTENSION, SourceRange
from recordmill.transforms.storage import files

_TABLES = (*DELIMITED, "jsonl", *COLUMN_FORMATS)
_OPTIONS = RowOptions(partial=True)
_FATAL = ("broken_file", "decompression_bomb", "not_text")  # nothing behind it can be read
_PROBLEMS = {
    "undecodable": "not UTF-8: ", "not_json": "no JSON object: ",
    "wrong_number_of_fields": "fields: ",
}  # fmt: skip


class TableRow(NamedTuple):
    """A row by column, numbered from 1; `problem` is the reason if it cannot be used."""

    number: int
    values: dict[str, Any]
    problem: str = ""


def table_format(path: str) -> tuple[str, str]:
    """Returns "csv", "tsv", "jsonl", a format of columns or "" by the name, and the compression."""
    base, extension = os.path.splitext(path.lower())
    compression = COMPRESSION_OF_EXTENSION.get(extension, "")
    kind = format_of_name("", os.path.splitext(base)[1] if compression else extension)
    if kind not in _TABLES or (compression and kind in COLUMN_FORMATS):
        kind = ""
    return kind, compression


def is_table(path: str) -> bool:
    """Returns whether a file is a table, by its name."""
    return table_format(path)[0] != ""


def table_columns(path: str) -> list[str]:
    """Returns the columns of a table but those of bytes; of JSONL, those of its first row.

    Raises:
      UsageError: the table cannot be read, or has none.
    """
    with _opened(path) as opened:
        return list(_columns(opened, path))


def read_rows(path: str) -> Iterator[TableRow]:
    """Yields the rows of a table, in order; blank lines are none.

    Raises:
      UsageError: the table cannot be read, or has no header.
    """
    is_numbered = table_format(path)[0] in COLUMN_FORMATS
    number = 0
    with _opened(path) as opened:
        columns = _columns(opened, path)
        for rows in opened.rows(list(columns.values()), READ_LIMITS.block_bytes):
            if not rows.rejects:
                first = rows.first if is_numbered else number
                for number, values in enumerate(_values(rows, columns), first + 1):
                    yield TableRow(number, values)
                continue
            for position, row in _in_order(rows, columns):
                number = position + 1 if is_numbered else number + 1
                if isinstance(row, dict):
                    yield TableRow(number, row)
                    continue
                if not is_numbered:
                    _check_goes_on(row, path)
                yield TableRow(number, {}, _PROBLEMS.get(row.reason, "") + row.detail)


def _check_goes_on(reject: RowReject, path: str) -> None:
    """Checks that what is behind a reject can be read.

    Raises:
      UsageError: it cannot.
    """
    if reject.reason in _FATAL:
        raise UsageError(f"--annotations {path} cannot be read: {reject.detail}")
    if reject.reason == "line_too_long":
        raise UsageError(
            f"--annotations {path} must be a table; it has a line of more than "
            f"{READ_LIMITS.record_bytes >> 20} MiB"
        )


def _in_order(
    rows: Rows, columns: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, Any] | RowReject]]:
    """Yields the values of rows by column and the rejects among them, with their positions."""
    placed = zip(rows.positions().tolist(), _values(rows, columns), strict=True)
    rejects = ((reject.position, reject) for reject in rows.rejects)
    return iter(sorted([*placed, *rejects], key=lambda each: each[0]))


def _values(rows: Rows, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    if rows.count:
        values = [column_values(rows.columns[name]) for name in columns.values()]
        for row in zip(*values, strict=True):
            yield dict(zip(columns, row, strict=True))


@contextmanager
def _opened(path: str) -> Iterator[RowSource]:
    kind, compression = table_format(path)
    try:
        source = SourceRange(path, path, kind, compression, files.size(path))
        with open_rows(source, _OPTIONS) as opened:
            yield opened
    except (OSError, BrokenFileError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--annotations {path} cannot be read: {reason}") from error


def _columns(opened: RowSource, path: str) -> dict[str, str]:
    """Returns the names of columns, without white space around them -> as they are read."""
    if isinstance(opened, JsonLines):
        names = opened.first_names()
    else:
        names = _plain_columns(opened.schema)
    if names:
        return {name.strip(): name for name in names}
    for rows in opened.rows([], READ_LIMITS.block_bytes):
        for reject in rows.rejects:
            _check_goes_on(reject, path)
    if isinstance(opened, JsonLines):
        raise UsageError(f"--annotations {path} has no rows that can be read")
    raise UsageError(
        f"--annotations {path} must begin with a line of column names; it is empty, or that line "
        "cannot be read"
    )


def _plain_columns(fields: Any, outer: str = "") -> list[str]:
    """Returns the columns that have no bytes; of structs their fields, as image.path."""
    names = []
    for field in fields:
        if pa.types.is_struct(field.type):
            names += _plain_columns(list(field.type), f"{outer}{field.name}.")
        elif not (pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)):
            names.append(f"{outer}{field.name}")
    return names


def as_text(value: Any) -> str:
    """Returns a value as text: None as none, numbers as JSON has them.

    Raises:
      ValueError: it is neither text nor a number.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float):
        return json.dumps(value)
    raise ValueError(f"neither text nor number: {str(value)[:100]}")
