"""Answers to queries as input of text, from SQLite and from a real PostgreSQL server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recordmill.records.errors import RunError, UsageError, hide_passwords
from recordmill.transforms.sources import databases
from recordmill.transforms.sources.changes import InputChangedError
from recordmill.transforms.sources.databases import PASSWORD_VARIABLE, take_password
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.query_rows import list_query, open_query
from recordmill.transforms.sources.row_fields import LabelSpec, RowSpec
from recordmill.transforms.sources.rows import RowOptions
from recordmill.transforms.sources.work_items import SourceRange

from ...databases import Served, postgresql_server, sqlite_database
from .column_files import TEXTS, Read, read, read_sources

ROWS: list[dict[str, Any]] = [
    {"id": i * 3 - 20, "text": text, "other": f"o{i} {text}", "kind": ("train", "test")[i % 2],
     "label": f"l{i % 3}", "score": i / 4 + 0.125}
    for i, text in enumerate(TEXTS * 5)
]  # fmt: skip
QUERY = "SELECT * FROM docs; "
SPECS = {
    "sentences": DocumentSpec(),
    "lines": DocumentSpec(sentence_splitter="none"),
    "split_from": DocumentSpec(split_from="kind", split_names=("train", "test")),
    "kept": DocumentSpec(row=RowSpec(keep_fields=parse_fields("id:int,score:float,other"))),
    "classify": DocumentSpec(row=RowSpec(label=LabelSpec("label"), pair_field="other")),
    "missing": DocumentSpec(text_field="nothing"),
}


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with postgresql_server(tmp_path_factory.mktemp("server")) as served:
        yield served


@pytest.fixture(params=["sqlite", "sqlite-adbc", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Served:
    """A database with the rows in a table `docs`, in another order."""
    served: Served
    monkeypatch.setattr(databases, "_may_use_adbc", lambda: request.param == "sqlite-adbc")
    if request.param != "postgresql":
        served = sqlite_database(tmp_path / "a.db")
        numbers = "REAL"
    else:
        served = request.getfixturevalue("postgresql")
        served.execute("DROP TABLE IF EXISTS docs")
        numbers = "DOUBLE PRECISION"
    served.execute(
        "CREATE TABLE docs (id BIGINT, text TEXT, other TEXT, kind TEXT, label TEXT, "
        f"score {numbers})"
    )
    mixed = [tuple(row.values()) for row in ROWS[::2] + ROWS[1::2]]
    served.execute("INSERT INTO docs VALUES (?, ?, ?, ?, ?, ?)", mixed)
    return served


@pytest.fixture(params=[False, True], ids=["python", "adbc"])
def by_adbc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """By which module SQLite is read."""
    monkeypatch.setattr(databases, "_may_use_adbc", lambda: request.param)
    return bool(request.param)


def ranges(database: Served, target_bytes: int = 1 << 25, query: str = QUERY) -> list[SourceRange]:
    listed = [list_query(take_password(database.url), query, "id", "text")]
    items = cut_work_items(listed, target_bytes)
    return [source for item in items for source in item]


def read_query(database: Served, spec: DocumentSpec, target_bytes: int = 1 << 25) -> Read:
    limits = DocumentLimits(block_bytes=300)
    return read_sources(ranges(database, target_bytes), spec, limits)


@pytest.mark.parametrize("name", SPECS)
def test_documents_are_those_of_jsonl(tmp_path: Path, name: str, database: Served) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    documents, positions, _, rejects = read_query(database, SPECS[name])
    wanted, _, _, wanted_rejects = read(tmp_path / "a.jsonl", SPECS[name])
    assert documents == wanted
    assert [each.reason for each in rejects] == [each.reason for each in wanted_rejects]
    assert sorted([*positions, *(each.position for each in rejects)]) == list(range(len(ROWS)))


def test_nulls_before_all_texts(database: Served) -> None:
    """A driver that takes a column's type from its first rows would take these for numbers."""
    database.execute("DELETE FROM docs")
    rows = [(i, None if i < 600 or i % 3 else f"text {i}") for i in range(1200)]
    database.execute("INSERT INTO docs (id, text) VALUES (?, ?)", rows)
    documents, _, _, rejects = read_query(database, SPECS["lines"], 1 << 25)
    assert [each[0] for each in documents] == [[b"text %d" % i] for i in range(600, 1200, 3)]
    assert len(rejects) == 1000
    assert {each.reason for each in rejects} == {"field_not_text"}


def test_work_items_do_not_matter(database: Served) -> None:
    whole = read_query(database, DocumentSpec())
    for target_bytes in (30, 200, 400):
        found = ranges(database, target_bytes)
        assert len(found) > 2
        assert sum(each.query.rows for each in found if each.query) == len(ROWS)
        assert read_query(database, DocumentSpec(), target_bytes) == whole


def test_rows_of_one_number_are_in_order_of_their_texts(database: Served) -> None:
    database.execute("UPDATE docs SET id = 5")
    first = read_query(database, SPECS["lines"], 30)
    database.execute("CREATE TABLE turned AS SELECT * FROM docs ORDER BY text DESC, other")
    database.execute("DELETE FROM docs")
    database.execute("INSERT INTO docs SELECT * FROM turned")
    database.execute("DROP TABLE turned")
    assert read_query(database, SPECS["lines"], 30) == first


def test_numbers_far_apart_are_cut_by_their_rows(database: Served) -> None:
    database.execute("UPDATE docs SET id = -9223372036854775808 WHERE id = -20")
    database.execute("UPDATE docs SET id = 9223372036854775807 WHERE id = 82")
    found = ranges(database, 200)
    assert 4 < len(found) < len(ROWS)
    counts = [each.query.rows for each in found if each.query]
    assert sum(counts) == len(ROWS)
    assert max(counts) <= 2 * min(counts[1:-1])


def test_a_changed_answer_ends_the_run(database: Served) -> None:
    (source,) = ranges(database)
    database.execute("DELETE FROM docs WHERE id = 10")
    with pytest.raises(InputChangedError, match="35 rows had a id from -20 to 82, and 34 have"):
        list(read_documents(source, DocumentSpec()))


@pytest.mark.parametrize(
    ("query", "column", "message"),
    [
        ("SELECT text FROM docs", "id", "--partition_column must be a column of the answer to "
         "--query: text; got 'id'"),
        ("SELECT * FROM docs", "text", "--partition_column must be a column of integers, and "
         "'text' is string"),
        ("SELECT * FROM docs WHERE id > 1000", "id", "--query finds no row; see its conditions"),
        ("SELECT NULLIF(id, 10) AS id, text FROM docs", "id", "must have a number in each row, and "
         "'id' is null in 1 of 35"),
        ("SELECT * FROM books", "id", "cannot be read: .*books"),
        ("SELEC * FROM docs", "id", "cannot be read: .*syntax error"),
        ("DELETE FROM docs", "id", "cannot be read: "),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(database: Served, query: str, column: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        list_query(take_password(database.url), query, column, "text")
    assert "\n" not in str(caught.value)
    assert len(ranges(database)) == 1  # nothing was deleted


def test_a_query_may_end_with_a_comment(database: Served) -> None:
    assert len(ranges(database, query="SELECT * FROM docs -- all of them")) == 1


@pytest.mark.usefixtures("by_adbc")
def test_bytes_that_are_no_characters(tmp_path: Path) -> None:
    """SQLite alone lets them in."""
    served = sqlite_database(tmp_path / "a.db")
    served.execute("CREATE TABLE docs (id, text)")
    rows = [(1, "a"), (2, b"\xff"), (3, "c"), (4, None), (5, 17)]
    served.execute("INSERT INTO docs VALUES (?, ?)", rows)
    documents, _, _, rejects = read_query(served, SPECS["lines"])
    assert [lines for lines, *_ in documents] == [[b"a"], [b"c"], [b"17"]]
    assert [(each.position, each.reason) for each in rejects] == [
        (1, "undecodable"), (3, "field_not_text"),
    ]  # fmt: skip


@pytest.mark.usefixtures("by_adbc")
def test_a_damaged_file_is_a_reject(tmp_path: Path) -> None:
    served = sqlite_database(tmp_path / "a.db")
    served.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, text)")
    served.execute("INSERT INTO docs VALUES (?, ?)", [(i, f"row {i} " * 300) for i in range(200)])
    (source,) = ranges(served)
    data = bytearray((tmp_path / "a.db").read_bytes())
    data[200_000:300_000] = b"\xa5" * 100_000
    (tmp_path / "a.db").write_bytes(data)
    _, positions, _, (reject,) = read_sources([source], DocumentSpec())
    assert positions == list(range(len(positions)))
    assert len(positions) < 200
    assert (reject.position, reject.reason) == (len(positions), "broken_file")
    (tmp_path / "b.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(UsageError, match="cannot be read: file is not a database"):
        list_query(f"sqlite:///{tmp_path}/b.db", QUERY, "id", "text")
    with pytest.raises(UsageError, match="cannot be read: there is no such file"):
        list_query(f"sqlite:///{tmp_path}/c.db", QUERY, "id", "text")


def test_a_closed_connection_is_one_line() -> None:
    url = "postgresql://mill@127.0.0.1:1/none"
    with pytest.raises(UsageError, match=r"none cannot be read: .*Connection refused") as caught:
        list_query(url, QUERY, "id", "text")
    assert "\n" not in str(caught.value)


def test_a_connection_that_closes_meanwhile(postgresql: Served, tmp_path: Path) -> None:
    postgresql.execute("DROP TABLE IF EXISTS docs")
    postgresql.execute("CREATE TABLE docs (id INT, text TEXT)")
    postgresql.execute(
        "INSERT INTO docs SELECT i, repeat('text ', 10000) FROM generate_series(1, 400) i"
    )
    (source,) = ranges(postgresql)
    batches = read_documents(source, DocumentSpec())
    next(batches)
    postgresql.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    )
    with pytest.raises(RunError, match=r"cannot be read: .*; run the same command again"):
        list(batches)


def test_batches_have_few_bytes(database: Served) -> None:
    database.execute("UPDATE docs SET text = substr('" + "x" * 200_000 + "', 1)")
    (source,) = ranges(database)
    limits = DocumentLimits(block_bytes=1 << 20)
    sizes = [
        batch.lines.buffer.nbytes for batch in read_documents(source, DocumentSpec(), limits=limits)
    ]
    assert sum(sizes) >= 35 * 200_000
    assert max(sizes) < 4 << 20


def test_a_server_is_asked_once_for_its_types(postgresql: Served) -> None:
    postgresql.execute("DROP TABLE IF EXISTS docs")
    postgresql.execute("CREATE TABLE docs AS SELECT 1 AS id, 'a' AS text")
    databases._server_types.cache_clear()
    for _ in range(3):
        list(read_documents(ranges(postgresql)[0], DocumentSpec()))
    assert databases._server_types.cache_info().misses == 1


def test_passwords_are_taken_from_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "before")
    for url, password in (
        ("postgres://me:s%40crt@host:5432/db?sslmode=require", "s@crt"),
        ("postgresql://me@host:5432/db?sslmode=require&password=s%40crt", "s@crt"),
        ("postgresql://me@host:5432/db?sslmode=require", "before"),
    ):
        monkeypatch.setenv(PASSWORD_VARIABLE, "before")
        assert take_password(url) == "postgresql://me@host:5432/db?sslmode=require"
        assert os.environ[PASSWORD_VARIABLE] == password
        assert "crt" not in hide_passwords(f"it says {url} here")
    for url in ("postgresql:///db", "postgresql:///db?host=%2Frun", "postgresql://"):
        assert take_password(url) == url
    with pytest.raises(
        UsageError, match=r"postgresql://me:\*\*\*@host:x/db must be a URL"
    ) as error:
        take_password("postgresql://me:secret@host:x/db")
    assert "secret" not in str(error.value)


def test_keys_are_of_the_name_of_the_database(database: Served) -> None:
    (source,) = ranges(database)
    assert source.name in ("a.db", "postgres")
    assert replace(source, path="").query == source.query


@pytest.mark.usefixtures("by_adbc")
def test_one_who_writes_is_waited_for(tmp_path: Path) -> None:
    served = sqlite_database(tmp_path / "a.db")
    served.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, text TEXT)")
    served.execute("INSERT INTO docs VALUES (?, ?)", [(1, "one")])
    program = (
        "import sqlite3, sys, time; db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('BEGIN EXCLUSIVE'); print(flush=True); time.sleep(0.5); db.execute('COMMIT')"
    )
    line = [sys.executable, "-c", program, str(tmp_path / "a.db")]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as writer:
        assert writer.stdout
        writer.stdout.readline()
        (source,) = ranges(served)
    assert source.query
    assert source.query.rows == 1


def test_bytes_that_are_no_text_for_numbers(tmp_path: Path, by_adbc: bool) -> None:
    served = sqlite_database(tmp_path / "a.db")
    served.execute("CREATE TABLE docs (id, text TEXT)")
    served.execute("INSERT INTO docs VALUES (?, ?)", [(i, "one") for i in range(1001)])
    served.execute("INSERT INTO docs VALUES (CAST(x'ff' AS TEXT), 'two')")
    message = "a text that decides how to read it is not UTF-8" if by_adbc else "has others; choose"
    with pytest.raises(UsageError, match=message):
        ranges(served)


_IN_A_PROCESS = """
import sys
from recordmill.transforms.sources.databases import open_database
if "before" in sys.argv:
    import sqlite3
with open_database(f"sqlite:///{sys.argv[1]}") as database:
    print(type(database).__name__)
"""


@pytest.mark.parametrize(("loaded", "kind"), [("", "_Sqlite"), ("before", "_PythonSqlite")])
def test_two_copies_of_sqlite_never_read_one_file(tmp_path: Path, loaded: str, kind: str) -> None:
    """The locks of a program's own connection would be gone when the other copy closes the file."""
    sqlite_database(tmp_path / "a.db").execute("CREATE TABLE docs (id, text)")
    line = [sys.executable, "-c", _IN_A_PROCESS, str(tmp_path / "a.db"), loaded]
    assert subprocess.run(line, capture_output=True, text=True, check=True).stdout == f"{kind}\n"


def test_few_large_rows_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "_may_use_adbc", lambda: True)
    served = sqlite_database(tmp_path / "a.db")
    served.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, text TEXT, pair TEXT)")
    served.execute("INSERT INTO docs VALUES (?, ?, ?)", [(i, "x", "y" * 9000) for i in range(900)])
    (source,) = ranges(served)
    with open_query(source, RowOptions()) as opened:
        found = list(opened.rows(["text", "pair"], 90_000))
    assert sum(part.count for part in found) == 900
    assert max(part.count for part in found) <= 20


def test_what_no_batch_can_hold_is_read_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 2 GiB; here beyond 100 KB, as memory is short in tests."""

    def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows > 1 and batch.nbytes > 100_000:
            raise pa.ArrowInvalid("more than 2 GiB")
        return batch

    monkeypatch.setattr(databases, "_may_use_adbc", lambda: True)
    monkeypatch.setattr(databases, "_checked", checked)
    served = sqlite_database(tmp_path / "a.db")
    served.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, text TEXT)")
    rows = [(i, "y" * (i + 1 if i < 300 or i > 500 else 9000)) for i in range(900)]
    served.execute("INSERT INTO docs VALUES (?, ?)", rows)
    with open_query(list_query(served.url, QUERY, "id", "text"), RowOptions()) as opened:
        found = [
            text
            for part in opened.rows(["text"], 1 << 16)
            for text in part.columns["text"].to_pylist()
        ]
    assert found == [text for _, text in rows]
