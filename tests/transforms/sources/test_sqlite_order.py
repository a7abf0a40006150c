"""Rows of SQLite in the order that SQLite itself gives them, without its sorting."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recordmill.transforms.sources import databases
from recordmill.transforms.sources.databases import DatabaseError, Selection, open_database

ROWS = "docs WHERE docs.id BETWEEN -9000 AND 9000"
VALUES = ["", "a", "a\0b", "ä" * 40, "b" * 300, None, 7, 0.1, b"\xff\xfe", "\U0001f600 x"]


def write(path: Path, rows: Sequence[tuple[Any, ...]], encoding: str = "UTF-8") -> str:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.execute("CREATE TABLE docs (id, text, other)")
        connection.executemany("INSERT INTO docs VALUES (?, ?, ?)", rows)
    return f"sqlite:///{path}"


def read(url: str, names: Sequence[str], batch_bytes: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    with open_database(url) as database:
        for batch in database.batches(Selection(tuple(names), ROWS, "docs.id"), batch_bytes):
            for array in batch.values():
                array.validate(full=False)
                assert array.type == pa.large_string()
            columns = (batch[name].view(pa.large_binary()).to_pylist() for name in names)
            found += zip(*columns, strict=True)
    return found


def _nothing_is_ordered(*_: object) -> Iterator[list[Any]]:
    raise databases._UnorderedError
    yield []


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
@pytest.mark.parametrize("numbers", ["unique", "few", "one", "fractions"])
def test_rows_and_their_order_are_those_of_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: str, encoding: str
) -> None:
    draw = random.Random(numbers)
    ids: dict[str, list[Any]] = {
        "unique": draw.sample(range(-9000, 9000), 500),
        "few": [draw.randrange(60) for _ in range(500)],
        "one": [5] * 500,
        "fractions": [draw.choice([1, 2, 2.0, 2.5, 3]) for _ in range(500)],
    }
    rows = [(number, draw.choice(VALUES), draw.choice(VALUES)) for number in ids[numbers]]
    url = write(tmp_path / "a.db", rows, encoding)
    for names in (["text"], ["other", "text"], ["id"]):
        with monkeypatch.context() as patched:
            patched.setattr(databases._Sqlite, "_by_ties", _nothing_is_ordered)
            wanted = read(url, names, 1000)
        assert len(wanted) == 500
        for batch_bytes in (1, 200, 1000, 1 << 21):
            assert read(url, names, batch_bytes) == wanted


def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list to which the order of each statement is added that SQLite answers."""
    found: list[str] = []
    fetched = databases._Sqlite._fetched

    def kept(self: databases._Sqlite, statement: str, batch_bytes: int) -> Any:
        found.append(statement.partition(" ORDER BY ")[2])
        return fetched(self, statement, batch_bytes)

    monkeypatch.setattr(databases._Sqlite, "_fetched", kept)
    return found


def test_sqlite_sorts_texts_only_of_many_rows_of_one_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = statements(monkeypatch)
    rows = [(number, f"text {number % 7}", "") for number in [*range(100), 50, 50, 70]]
    read(write(tmp_path / "a.db", rows), ["text"], 1000)
    assert found == ["docs.id"]
    rows += [(90, "x" * 100, "")] * 300
    read(write(tmp_path / "b.db", rows), ["text"], 1000)
    assert found[1:] == ["docs.id", 'docs.id, CAST("text" AS TEXT) COLLATE BINARY']


def test_batches_have_as_many_bytes_as_asked_for(tmp_path: Path) -> None:
    rows = [(i, "x" * (300_000 if i % 10 == 3 else 50), "") for i in range(200)]
    url = write(tmp_path / "a.db", rows)
    with open_database(url) as database:
        selection = Selection(("text",), ROWS, "docs.id")
        sizes = [len(each["text"].buffers()[2]) for each in database.batches(selection, 1 << 16)]
    assert len(sizes) > 20
    assert max(sizes) < 1 << 21


def test_errors_of_sqlite_are_raised(tmp_path: Path) -> None:
    url = write(tmp_path / "a.db", [(i, "x" * 5000, "") for i in range(100)])
    data = bytearray((tmp_path / "a.db").read_bytes())
    data[100_000:300_000] = b"\xa5" * 200_000
    (tmp_path / "a.db").write_bytes(data)
    with pytest.raises(DatabaseError, match="malformed"):
        read(url, ["text"], 1000)


def test_rows_of_one_number_are_ordered_by_bytes() -> None:
    numbers = [1, 2, 2, 2, 2, 3, 3, 4]
    texts = [b"z", b"b", b"", None, b"a", b"b", b"a", b"a"]
    rows = [(number, text, b"-") for number, text in zip(numbers, texts, strict=True)]
    ordered = [text for _, text, _ in databases._in_order(rows)]
    assert ordered == [b"z", None, b"", b"a", b"b", b"a", b"b", b"a"]
