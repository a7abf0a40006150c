"""Rows of tables about images, of text or of columns, each with the reason if it cannot be used.

Tables of text go through `documents.py`, in blocks and ranges; these go through one reader.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import orjson
import pyarrow as pa

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.blocks import BROKEN_STREAM, BrokenFileError
from recordmill.transforms.sources.column_format import ColumnFormat, Damage
from recordmill.transforms.sources.document_spec import READ_LIMITS
from recordmill.transforms.sources.formats import COLUMN_FORMATS, format_of_name
from recordmill.transforms.sources.input_spec import USUAL_COMPRESSION_RATIO
from recordmill.transforms.sources.open_columns import open_columns
from recordmill.transforms.sources.work_items import (
    COMPRESSION_OF_EXTENSION,
    SourceRange,
)
from recordmill.transforms.storage import files
from recordmill.transforms.storage.unpacking import open_decompressed

_TABLES = ("csv", "tsv", "jsonl", *COLUMN_FORMATS)
_LONGEST_FIELD = 1 << 26  # characters; Python's csv module stops at 128 Ki, a mask's runs do not


@dataclass(frozen=True, slots=True)
class TableRow:
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


def read_rows(path: str) -> Iterator[TableRow]:
    """Yields the rows of a table, in order; blank lines are none.

    Raises:
      UsageError: the table cannot be read, or has no header.
    """
    if table_format(path)[0] in COLUMN_FORMATS:
        yield from _column_rows(path)
        return
    with _open(path) as text:
        if table_format(path)[0] == "jsonl":
            yield from _jsonl_rows(text, path)
        else:
            reader = _csv_reader(text, path)
            yield from _csv_rows(reader, _header(reader, path))


def read_columns(path: str) -> list[str]:
    """Returns the columns of a table; of JSONL, those of the first row that can be read.

    Raises:
      UsageError: the table cannot be read, or is empty.
    """
    if table_format(path)[0] in COLUMN_FORMATS:
        with _columns(path) as opened:
            return _plain_columns(opened.schema)
    if table_format(path)[0] != "jsonl":
        with _open(path) as text:
            return _header(_csv_reader(text, path), path)
    for row in read_rows(path):
        if not row.problem:
            return list(row.values)
    raise UsageError(f"--annotations {path} has no rows that can be read")


@contextmanager
def _columns(path: str) -> Iterator[ColumnFormat]:
    try:
        source = SourceRange(path, path, table_format(path)[0], "", files.size(path))
        with open_columns(source) as opened:
            yield opened
    except (OSError, BrokenFileError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--annotations {path} cannot be read: {reason}") from error


def _plain_columns(fields: Any, outer: str = "") -> list[str]:
    """Returns the columns that have no bytes; of structs their fields, as image.path."""
    names = []
    for field in fields:
        if pa.types.is_struct(field.type):
            names += _plain_columns(list(field.type), f"{outer}{field.name}.")
        elif not (pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)):
            names.append(f"{outer}{field.name}")
    return names


def _column_rows(path: str) -> Iterator[TableRow]:
    with _columns(path) as opened:
        for rows in opened.rows(_plain_columns(opened.schema), READ_LIMITS.block_bytes):
            if isinstance(rows, Damage):
                yield TableRow(rows.position + 1, {}, rows.detail)
                continue
            columns = {name: array.to_pylist() for name, array in rows.columns.items()}
            for i in range(rows.count):
                values = {name: column[i] for name, column in columns.items()}
                yield TableRow(rows.first + i + 1, values)


@contextmanager
def _open(path: str) -> Iterator[io.TextIOWrapper]:
    try:
        with files.open_read(path) as handle:
            compression = table_format(path)[1]
            most_bytes = max(USUAL_COMPRESSION_RATIO * files.size(path), READ_LIMITS.unpacked_bytes)
            stream = open_decompressed(handle, compression, most_bytes)
            # Bytes that are no UTF-8 become surrogates, and affect only their own row.
            yield io.TextIOWrapper(
                cast(Any, stream), encoding="utf-8-sig", errors="surrogateescape", newline=""
            )
    except (OSError, *BROKEN_STREAM) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--annotations {path} cannot be read: {reason}") from error


def _csv_reader(text: io.TextIOWrapper, path: str) -> Any:
    csv.field_size_limit(_LONGEST_FIELD)
    return csv.reader(_lines(text, path), delimiter="\t" if table_format(path)[0] == "tsv" else ",")


def _lines(text: io.TextIOWrapper, path: str) -> Iterator[str]:
    """Yields lines with their ends.

    Raises:
      UsageError: one has no end: it would be held whole, whatever its size.
    """
    while line := text.readline(_LONGEST_FIELD):
        if len(line) == _LONGEST_FIELD:
            raise UsageError(
                f"--annotations {path} must be a table; it has a line of more than "
                f"{_LONGEST_FIELD >> 20} Mi characters"
            )
        yield line


def _header(reader: Any, path: str) -> list[str]:
    try:
        for fields in reader:
            if fields:
                return [name.strip() for name in fields]
    except csv.Error as error:
        raise UsageError(
            f"--annotations {path} must begin with a line of column names; it is no table: {error}"
        ) from error
    raise UsageError(f"--annotations {path} must begin with a line of column names; it is empty")


def _csv_rows(reader: Any, header: Sequence[str]) -> Iterator[TableRow]:
    number = 0
    while True:
        number += 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield TableRow(number, {}, str(error))
            continue
        if not fields:
            number -= 1
        elif len(fields) != len(header):
            problem = f"{len(fields)} fields, and the header has {len(header)}"
            yield TableRow(number, {}, problem)
        else:
            problem = "" if _is_unicode("".join(fields)) else "not UTF-8"
            yield TableRow(number, dict(zip(header, fields, strict=True)), problem)


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _jsonl_rows(text: io.TextIOWrapper, path: str) -> Iterator[TableRow]:
    for number, line in enumerate((line for line in _lines(text, path) if line.strip()), 1):
        try:
            values = orjson.loads(line.encode("utf-8", "surrogateescape"))
        except ValueError as error:
            yield TableRow(number, {}, f"no JSON: {error}")
            continue
        if isinstance(values, dict):
            yield TableRow(number, values)
        else:
            yield TableRow(number, {}, "no JSON object")


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
