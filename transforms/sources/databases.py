"""Databases by URL: their addresses without passwords, and queries.

Both are read by ADBC, whose answers are columns: of PostgreSQL in its binary form of COPY. Every
value is read as text, of which both have one form each.

ADBC has a copy of SQLite's library. Locks of files belong to a process: where Python's module has
the same file open, a second copy would release its locks (sqlite.org/howtocorrupt.html). So where
this process has loaded that module, SQLite is read by it, more slowly; a worker has not.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.records.errors import UsageError, hide_passwords

_SCHEMES = ("sqlite", "postgresql", "postgres")
_SECRETS = ("password", "sslpassword")
PASSWORD_VARIABLE = "PGPASSWORD"  # libpq's own
_LARGEST_STEP = 4096
_BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"
_BATCH_ROWS = "adbc.sqlite.query.batch_rows"
_BUSY_MILLISECONDS = 5000  # to wait for one who writes, as Python's own module does
_LOOKED_AT = 64  # rows whose sizes say how many a batch should have
_MOST_BATCH_ROWS = 256  # small batches cost little, and are joined


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

    def texts(
        self, names: Sequence[str], rows: str, order: str, batch_bytes: int
    ) -> Iterator[dict[str, pa.Array]]:
        """Yields columns as texts, in batches of about `batch_bytes`, or of one row with more.

        Args:
          names: of the columns.
          rows: a FROM clause names, and maybe WHERE chooses.
          order: as ORDER BY has it.
          batch_bytes: that a batch should have.
        """
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


def as_text(name: str) -> str:
    """Returns the text of a column's values, as SQL has it."""
    return f"CAST({quoted(name)} AS TEXT)"


class _Answers:
    """What both databases do alike."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def values(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]

    @contextmanager
    def _answer(self, statement: str, **settings: str) -> Iterator[Iterator[pa.RecordBatch]]:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**settings)
            cursor.execute(statement)
            yield iter(cursor.fetch_record_batch())


class _Sqlite(_Answers):
    binary_order = "COLLATE BINARY"
    text_bytes = "length(CAST({} AS BLOB))"

    def schema(self, rows: str) -> pa.Schema:
        """Returns the columns; their types are those of some first values, as SQLite has none."""
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(f"SELECT * FROM {rows} LIMIT 0")
            names = [column[0] for column in cursor.description]
        kinds = ", ".join(f"typeof({quoted(name)})" for name in names)
        found = self.values(f"SELECT {kinds} FROM {rows} LIMIT 1000")
        columns = zip(*found, strict=True) if found else [()] * len(names)
        known = (
            ("text", pa.string()), ("blob", pa.binary()), ("real", pa.float64()),
            ("integer", pa.int64()),
        )  # fmt: skip
        types = [
            next((kind for name, kind in known if name in values), pa.null()) for values in columns
        ]
        return pa.schema(list(zip(names, types, strict=True)))

    def texts(
        self, names: Sequence[str], rows: str, order: str, batch_bytes: int
    ) -> Iterator[dict[str, pa.Array]]:
        # A column gets its type from the first batch, and one of nulls alone would get none.
        columns = [f"ifnull({as_text(name)}, '')" for name in names]
        missing = [f"{quoted(name)} IS NULL" for name in names]
        statement = f"SELECT {', '.join(columns + missing)} FROM {rows} ORDER BY {order}"
        sizes = " + ".join(f"ifnull(octet_length({quoted(name)}), 0)" for name in names)
        ((largest,),) = self.values(
            f"SELECT max(size) FROM (SELECT {sizes} AS size FROM {rows} LIMIT {_LOOKED_AT})"
        )
        step = max(1, min(_MOST_BATCH_ROWS, batch_bytes // max(largest or 0, 1)))
        for batch in self._batches(statement, step, batch_bytes):
            arrays = zip(names, batch.columns, batch.columns[len(names) :], strict=False)
            yield {name: _with_nulls(texts, nulls) for name, texts, nulls in arrays}

    def _batches(self, statement: str, step: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
        at = 0
        while step:
            settings = {_BATCH_ROWS: str(step)}
            try:
                with self._answer(f"{statement} LIMIT -1 OFFSET {at}", **settings) as answer:
                    for batch in _joined(map(_checked, answer), most_bytes):
                        yield batch
                        at += batch.num_rows
                step = 0
            except pa.ArrowInvalid:  # a batch beyond 2 GiB; SQLite has at most 1 GB in a value
                if step == 1:
                    raise
                step = 1


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch; raises pa.ArrowInvalid for texts beyond what 32 bits count."""
    for column in batch.columns:
        if pa.types.is_string(column.type):
            offsets = np.frombuffer(column.buffers()[1], np.int32)
            if offsets.min(initial=0) < 0:
                raise pa.ArrowInvalid("a batch has more than 2 GiB of text")
    return batch


class _PythonSqlite(_Sqlite):
    def texts(
        self, names: Sequence[str], rows: str, order: str, batch_bytes: int
    ) -> Iterator[dict[str, pa.Array]]:
        self._connection.text_factory = bytes  # whether they are characters is checked later
        step = 16
        texts = ", ".join(map(as_text, names))
        statement = f"SELECT {texts} FROM {rows} ORDER BY {order}"
        with closing(self._connection.execute(statement)) as cursor:
            while found := cursor.fetchmany(step):
                arrays = {
                    name: pa.array(column, pa.large_binary()).view(pa.large_string())
                    for name, column in zip(names, zip(*found, strict=True), strict=True)
                }
                yield arrays
                size = sum(array.nbytes for array in arrays.values()) // len(found)
                step = max(1, min(4 * step, batch_bytes // max(size, 1), _LARGEST_STEP))


def _joined(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yields batches joined to some of about so many bytes."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _LARGEST_STEP or size >= most_bytes:
            yield pa.concat_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_batches(held)


def _with_nulls(texts: pa.Array, nulls: pa.Array) -> pa.Array:
    """Returns texts that are null where a number is not 0."""
    if not pc.max(nulls).as_py():
        return texts
    return pc.if_else(pc.equal(nulls, 0), texts, None)


def _may_use_adbc() -> bool:
    return "sqlite3" not in sys.modules and find_spec("adbc_driver_sqlite") is not None


@contextmanager
def _open_sqlite(url: str) -> Iterator[_Sqlite]:
    path = _sqlite_path(url)
    if not os.path.isfile(path):
        raise DatabaseError("there is no such file")
    if not os.access(path, os.R_OK):  # of which the driver says that memory is short
        raise DatabaseError("Permission denied")
    address = f"file:{quote(os.path.abspath(path))}?mode=ro"
    with _by_adbc(address) if _may_use_adbc() else _by_python(address) as database:
        yield database


@contextmanager
def _by_adbc(address: str) -> Iterator[_Sqlite]:
    manager, dbapi = _adbc("sqlite")
    try:
        with dbapi.connect(address) as connection:
            database = _Sqlite(connection)
            database.values(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
            yield database
    except UnicodeDecodeError as error:  # SQLite holds any bytes as text
        raise DatabaseError("a text that decides how to read it is not UTF-8") from error
    except (manager.Error, pa.ArrowException, OSError) as error:
        raise _sqlite_error(error) from error


@contextmanager
def _by_python(address: str) -> Iterator[_Sqlite]:
    import sqlite3

    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            yield _PythonSqlite(connection)
    except sqlite3.DatabaseError as error:
        raise _sqlite_error(error) from error


def _sqlite_error(error: Exception) -> DatabaseError:
    message = _reason(error)
    if "malformed" in message or "not a database" in message:
        return DamagedDatabaseError(message)
    return DatabaseError(message)


def _reason(error: Exception) -> str:
    """Returns what the library of a database says, without what its driver adds."""
    text = str(error).partition("\nquery: ")[0]
    return " ".join(re.sub(r"^[A-Z_]+: \[SQLite\] (Failed to prepare query: )?", "", text).split())


class _Postgresql(_Answers):
    binary_order = 'COLLATE "C"'
    text_bytes = "octet_length(CAST({} AS TEXT))"

    def schema(self, rows: str) -> pa.Schema:
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {rows} LIMIT 0")
            return cursor.fetch_arrow_table().schema

    def texts(
        self, names: Sequence[str], rows: str, order: str, batch_bytes: int
    ) -> Iterator[dict[str, pa.Array]]:
        columns = [f"{as_text(name)} AS {quoted(name)}" for name in names]
        statement = f"SELECT {', '.join(columns)} FROM {rows} ORDER BY {order}"
        with self._answer(statement, **{_BATCH_BYTES: str(batch_bytes)}) as answer:
            for batch in answer:
                for begin in range(0, batch.num_rows, _LARGEST_STEP):
                    part = batch.slice(begin, _LARGEST_STEP)
                    yield dict(zip(names, part.columns, strict=True))


def _adbc(database: str) -> tuple[Any, Any]:
    """Returns ADBC's manager, and the module by which connections to a database are made."""
    try:
        import adbc_driver_manager

        return adbc_driver_manager, import_module(f"adbc_driver_{database}.dbapi")
    except ImportError as error:
        raise DatabaseError("databases need pip install 'recordmill[sql]'") from error


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
    manager, dbapi = _adbc("postgresql")
    try:
        types = _server_types(url, os.environ.get(PASSWORD_VARIABLE), os.getpid())
        opened = manager.AdbcConnection(types)
        kept: Any = _NeverClosed()
        with dbapi.Connection(kept, opened) as connection:
            with connection.cursor() as cursor:
                cursor.execute("SET client_encoding TO 'UTF8'")
                cursor.execute("SET default_transaction_read_only TO on")
            connection.commit()
            yield _Postgresql(connection)
    except (manager.Error, pa.ArrowException, OSError) as error:
        raise DatabaseError(hide_passwords(" ".join(str(error).split()))) from error
