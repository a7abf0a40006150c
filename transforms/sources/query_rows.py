"""The answer to a query as rows, in order of a column of integers; ranges of it are work items.

Rows with the same number are ordered by the bytes of the texts that are read of them, so rows whose
order is open are equal. The number of a row in that order is its position: it depends on the answer
alone. How many rows a range had when it was planned is compared with how many it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from recordmill.records.errors import RunError, UsageError, hide_passwords, listed
from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.changes import InputChangedError
from recordmill.transforms.sources.databases import (
    DamagedDatabaseError,
    Database,
    DatabaseError,
    as_text,
    database_name,
    open_database,
    quoted,
)
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.rows import RowOptions, Rows, rejected
from recordmill.transforms.sources.work_items import QueryRange, SourceRange

_SAMPLED_ROWS = 1000
_USUAL_ROW_BYTES = 1000
_RANGE_BITS = 10


class QueryRows:
    """See `rows.RowSource`."""

    def __init__(self, source: SourceRange, database: Database) -> None:
        self._source = source
        self._query = source.query or QueryRange("", "", 0, -1, 0)
        self._database = database
        self.schema: pa.Schema = database.schema(_rows(self._query.statement))

    @property
    def num_rows(self) -> int:
        """The number of rows of the range, when it was planned."""
        return self._query.rows

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the rows of the range.

        Raises:
          InputChangedError: there are more or fewer of them than were planned.
        """
        query, first = self._query, self._source.first_row
        at = first
        read = list(names) or [query.column]
        order = ", ".join(
            [_number(query), *(f"{as_text(name)} {self._database.binary_order}" for name in read)]
        )
        try:
            for batch in self._database.texts(read, _within(query), order, batch_bytes):
                count = len(batch[read[0]])
                yield Rows(at, count, batch if names else {})
                at += count
        except DamagedDatabaseError as error:
            yield rejected(at, "broken_file", str(error))
            return
        if at - first != query.rows:
            raise InputChangedError(
                f"the answer to --query changed since the run was planned: {query.rows} rows had a "
                f"{query.column} from {query.low} to {query.high}, and {at - first} have; see that "
                "nothing writes to these rows, and start anew with --overwrite"
            )


@contextmanager
def open_query(source: SourceRange, options: RowOptions) -> Iterator[QueryRows]:
    """Opens a range.

    Raises:
      BrokenFileError: the file of the database is damaged.
      RunError: the database cannot be reached, or does not answer any more.
    """
    del options  # of files
    try:
        with open_database(source.path) as database:
            yield QueryRows(source, database)
    except DamagedDatabaseError as error:
        raise BrokenFileError(str(error)) from error
    except DatabaseError as error:
        raise RunError(
            f"{source.path} cannot be read: {error}; run the same command again"
        ) from error


def list_query(url: str, statement: str, column: str, text_field: str) -> SourceRange:
    """Returns the answer to a query as a source.

    Args:
      url: of the database, without password.
      statement: a SELECT.
      column: of integers, by which it is cut.
      text_field: the column whose size counts.

    Raises:
      UsageError: the database or the query cannot be used, or the column is not of integers.
    """
    statement = statement.strip().rstrip(";")
    rows, name = _rows(statement), quoted(column)
    try:
        with open_database(url) as database:
            schema = database.schema(rows)
            if column not in schema.names:
                raise UsageError(
                    "--partition_column must be a column of the answer to --query: "
                    f"{listed(schema.names)}; got {column!r}"
                )
            kind = schema.field(column).type
            if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
                raise UsageError(
                    f"--partition_column must be a column of integers, and {column!r} is {kind}; "
                    "write CAST(… AS BIGINT) AS another name in --query"
                )
            ((count, filled, low, high),) = database.values(
                f"SELECT count(*), count({name}), min({name}), max({name}) FROM {rows}"
            )
            _check_numbers(column, count, filled, (low, high))
            size = _row_bytes(
                database, rows, name, text_field if text_field in schema.names else ""
            )
    except DatabaseError as error:
        raise UsageError(f"--input {hide_passwords(url)} cannot be read: {error}") from error
    query = QueryRange(statement, column, low, high, count)
    return SourceRange(url, database_name(url), "sql", "", count * size, query=query)


def _check_numbers(column: str, count: int, filled: int, ends: tuple[object, object]) -> None:
    if not count:
        raise UsageError("--query finds no row; see its conditions")
    if filled < count:
        raise UsageError(
            f"--partition_column must have a number in each row, and {column!r} is null in "
            f"{count - filled} of {count}; add WHERE {column} IS NOT NULL to --query"
        )
    if not all(isinstance(end, int) for end in ends):
        raise UsageError(
            f"--partition_column must be a column of integers, and {column!r} has others; choose "
            "another, or CAST it in --query"
        )


def _row_bytes(database: Database, rows: str, column: str, text_field: str) -> int:
    """Returns about how many bytes of text a row has."""
    if not text_field:
        return _USUAL_ROW_BYTES
    size = database.text_bytes.format(quoted(text_field))
    ((total, count),) = database.values(
        f"SELECT sum(size), count(*) FROM (SELECT {size} AS size FROM {rows} "
        f"ORDER BY {column} LIMIT {_SAMPLED_ROWS}) AS sampled"
    )
    return max(1, int(total or 0) // count)


def cut_query(source: SourceRange, target_bytes: int, options: CutOptions) -> Iterator[SourceRange]:
    """Yields ranges of about so many bytes, by the numbers that there are.

    Raises:
      UsageError: the database does not answer any more.
    """
    del options  # of text
    query = source.query
    if query is None:
        yield source
        return
    most_rows = max(1, target_bytes * query.rows // max(source.size, 1))
    first, held = 0, replace(query, rows=0)
    try:
        with open_database(source.path) as database:
            for part in _counted(database, query, most_rows):
                if held.rows and held.rows + part.rows > most_rows:
                    yield _range(source, held, first)
                    first, held = first + held.rows, replace(query, rows=0)
                low = held.low if held.rows else part.low
                held = replace(part, low=low, rows=held.rows + part.rows)
    except DatabaseError as error:
        raise UsageError(f"--input {source.path} cannot be read: {error}") from error
    yield _range(source, held, first)


def _range(source: SourceRange, part: QueryRange, first: int) -> SourceRange:
    whole = source.query.rows if source.query else part.rows
    size = source.size * part.rows // max(whole, 1)
    return replace(source, size=max(size, 1), query=part, first_row=first)


def _counted(database: Database, query: QueryRange, most_rows: int) -> Iterator[QueryRange]:
    """Yields parts of a range, in order, of at most so many rows where their numbers differ."""
    name = _number(query)
    shift = max(0, (query.high - query.low).bit_length() - _RANGE_BITS)
    found = database.values(
        f"SELECT min({name}), max({name}), count(*) FROM {_within(query)} "
        f"GROUP BY CAST({name} AS BIGINT) >> {shift} ORDER BY 1"
    )
    for low, high, rows in found:
        part = replace(query, low=low, high=high, rows=rows)
        if rows > most_rows and low < high:
            yield from _counted(database, part, most_rows)
        else:
            yield part


def _rows(statement: str) -> str:
    """Returns a query as a FROM clause has it; it may end with a comment."""
    return f"(\n{statement}\n) AS recordmill_rows"


def _within(query: QueryRange) -> str:
    rows = _rows(query.statement)
    return f"{rows} WHERE {_number(query)} BETWEEN {query.low} AND {query.high}"


def _number(query: QueryRange) -> str:
    """Returns the column of numbers, and not the text that an answer may have under its name."""
    return f"recordmill_rows.{quoted(query.column)}"
