"""Databases by URL: their addresses without passwords, and queries.

SQLite is read by Python's own module. PostgreSQL is read by ADBC, whose answers are columns, in
PostgreSQL's binary form of COPY. Every value is read as text, of which both have one form each.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from recordmill.records.errors import UsageError, hide_passwords

_SCHEMES = ("sqlite", "postgresql", "postgres")
_SECRETS = ("password", "sslpassword")
PASSWORD_VARIABLE = "PGPASSWORD"  # libpq's own
_LARGEST_STEP = 4096
_BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"


class DatabaseError(Exception):
    """A database, or a query, cannot be used; the message is one line, without passwords."""


class DamagedDatabaseError(DatabaseError):
    """The file of a database is damaged."""


class Database(Protocol):
    """An open database.

    Attributes:
      binary_order: what compares texts by their bytes in ORDER BY.
      text_bytes: the function that gives the bytes of a text.
    """

    binary_order: str
    text_bytes: str

    def schema(self, rows: str) -> pa.Schema:
        """Returns the columns of what a FROM clause names."""
        ...

    def values(self, statement: str) -> list[tuple[Any, ...]]:
        """Returns the whole answer to a statement whose answer is small."""
        ...

    def batches(
        self, statement: str, names: Sequence[str], batch_bytes: int
    ) -> Iterator[dict[str, pa.Array]]:
        """Yields an answer of texts, in batches of about so many bytes."""
        ...


def is_database(pattern: str) -> bool:
    """Returns whether a value of --input is the URL of a database."""
    scheme, separator, _ = pattern.partition("://")
    return bool(separator) and scheme in _SCHEMES


def take_password(url: str) -> str:
    """Returns the URL of a database without its password, which this process keeps.

    The password goes to the environment, where libpq looks for it here and in the workers of this
    machine. It is written nowhere.

    Raises:
      UsageError: the URL makes no sense.
    """
    try:
        parts = urlsplit(url)
        secret = parts.password
        if parts.port == 0:
            raise ValueError("port 0")
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise UsageError(
            f"--input {hide_passwords(url)} must be a URL such as "
            "postgresql://user@host:5432/database, with special characters as %20"
        ) from error
    if parts.scheme == "sqlite":
        return f"sqlite:///{os.path.abspath(_sqlite_path(url))}"
    given = dict(query)
    if secret is not None or "password" in given:
        os.environ[PASSWORD_VARIABLE] = given.get("password", unquote(secret or ""))
    user, at, host = parts.netloc.rpartition("@")
    plain = urlencode([(key, value) for key, value in query if key not in _SECRETS])
    netloc = f"{user.partition(':')[0]}{at}{host}"
    # Where the host is left to libpq, as in postgresql:///corpus, urlunsplit drops the slashes.
    return f"postgresql://{netloc}{urlunsplit(('', '', parts.path, plain, ''))}"


def database_name(url: str) -> str:
    """Returns the name of a database: what the keys of its documents are made of."""
    if url.startswith("sqlite:"):
        return os.path.basename(_sqlite_path(url))
    return urlsplit(url).path.strip("/") or "postgresql"


@contextmanager
def open_database(url: str) -> Iterator[Database]:
    """Opens a database, to be read only.

    Raises:
      DatabaseError: it cannot be opened, or what is asked of it meanwhile cannot be answered.
    """
    opened = _open_sqlite(url) if url.startswith("sqlite:") else _open_postgresql(url)
    with opened as database:
        yield database


def quoted(name: str) -> str:
    """Returns a column's name as SQL has it."""
    return '"{}"'.format(name.replace('"', '""'))


def _sqlite_path(url: str) -> str:
    """Returns the path in sqlite:///relative.db or sqlite:////absolute.db."""
    path = url.partition("://")[2]
    if not path.startswith("/") or path == "/":
        raise UsageError(
            f"--input {url} must be sqlite:///FILE, or sqlite:////FILE for a path from the root on"
        )
    return path[1:]


class _Sqlite:
    binary_order = "COLLATE BINARY"
    text_bytes = "length(CAST({} AS BLOB))"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def schema(self, rows: str) -> pa.Schema:
        """Returns the columns; their types are those of some first values, as SQLite has none."""
        cursor = self._connection.execute(f"SELECT * FROM {rows} LIMIT 0")
        names = [column[0] for column in cursor.description]
        kinds = ", ".join(f"typeof({quoted(name)})" for name in names)
        found = self._connection.execute(f"SELECT {kinds} FROM {rows} LIMIT 1000").fetchall()
        columns = zip(*found, strict=True) if found else [()] * len(names)
        known = (
            (b"text", pa.string()), (b"blob", pa.binary()), (b"real", pa.float64()),
            (b"integer", pa.int64()),
        )  # fmt: skip
        types = [
            next((kind for name, kind in known if name in values), pa.null()) for values in columns
        ]
        return pa.schema(list(zip(names, types, strict=True)))

    def values(self, statement: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement).fetchall()

    def batches(
        self, statement: str, names: Sequence[str], batch_bytes: int
    ) -> Iterator[dict[str, pa.Array]]:
        step = 16
        with closing(self._connection.execute(statement)) as cursor:
            while rows := cursor.fetchmany(step):
                arrays = {
                    name: pa.array(column, pa.large_binary()).view(pa.large_string())
                    for name, column in zip(names, zip(*rows, strict=True), strict=True)
                }
                yield arrays
                size = sum(array.nbytes for array in arrays.values()) // len(rows)
                step = max(1, min(4 * step, batch_bytes // max(size, 1), _LARGEST_STEP))


@contextmanager
def _open_sqlite(url: str) -> Iterator[_Sqlite]:
    path = _sqlite_path(url)
    if not os.path.isfile(path):
        raise DatabaseError("there is no such file")
    try:
        address = f"file:{quote(os.path.abspath(path))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            connection.text_factory = bytes  # whether they are characters is checked later
            yield _Sqlite(connection)
    except sqlite3.DatabaseError as error:
        message = " ".join(str(error).split())
        if "malformed" in message or "not a database" in message:
            raise DamagedDatabaseError(message) from error
        raise DatabaseError(message) from error


class _Postgresql:
    binary_order = 'COLLATE "C"'
    text_bytes = "octet_length(CAST({} AS TEXT))"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def schema(self, rows: str) -> pa.Schema:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {rows} LIMIT 0")
            return cursor.fetch_arrow_table().schema

    def values(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]

    def batches(
        self, statement: str, names: Sequence[str], batch_bytes: int
    ) -> Iterator[dict[str, pa.Array]]:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{_BATCH_BYTES: str(batch_bytes)})
            cursor.execute(statement)
            for batch in cursor.fetch_record_batch():
                for begin in range(0, batch.num_rows, _LARGEST_STEP):
                    part = batch.slice(begin, _LARGEST_STEP)
                    yield dict(zip(names, part.columns, strict=True))


@cache
def _server_types(url: str, password: str | None, process: int) -> Any:
    """Returns what ADBC knows of a server: it takes 30 ms to ask for, and holds no connection."""
    import adbc_driver_postgresql

    return adbc_driver_postgresql.connect(url)


class _NeverClosed:
    """What connections close in the place of what is kept for all of them."""

    def close(self) -> None:
        """Keeps it."""


@contextmanager
def _open_postgresql(url: str) -> Iterator[_Postgresql]:
    try:
        import adbc_driver_manager
        import adbc_driver_postgresql  # noqa: F401
        from adbc_driver_manager import dbapi
    except ImportError as error:
        raise DatabaseError("PostgreSQL needs pip install 'recordmill[sql]'") from error
    try:
        types = _server_types(url, os.environ.get(PASSWORD_VARIABLE), os.getpid())
        opened = adbc_driver_manager.AdbcConnection(types)
        kept: Any = _NeverClosed()
        with dbapi.Connection(kept, opened) as connection:
            with connection.cursor() as cursor:
                cursor.execute("SET client_encoding TO 'UTF8'")
                cursor.execute("SET default_transaction_read_only TO on")
            connection.commit()
            yield _Postgresql(connection)
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
        raise DatabaseError(hide_passwords(" ".join(str(error).split()))) from error
