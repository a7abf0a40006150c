"""Databases as the input of text jobs: equal bytes for workers, resumed runs, passwords nowhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.transforms.sources.databases import PASSWORD_VARIABLE

from ..databases import PASSWORD, URL_PASSWORD, Served, postgresql_server, sqlite_database
from .jobs import LENGTHS, manifest, shard_bytes

FLAGS = (
    "--task=mlm", "--dupe_factor=1", *LENGTHS, "--num_shards=2", "--query=SELECT * FROM docs",
    "--partition_column=id",
)  # fmt: skip


def fill(served: Served, rows: int = 600) -> Served:
    served.execute("CREATE TABLE docs (id BIGINT PRIMARY KEY, text TEXT, kind TEXT)")
    found = [
        (i, f"the people of water {i}. it was {i % 7} of them", f"k{i % 3}") for i in range(rows)
    ]
    served.execute("INSERT INTO docs VALUES (?, ?, ?)", found)
    return served


def run(url: str, output: Path, vocab_file: str, *flags: str, workers: int = 1) -> int:
    return main(
        [
            "text", f"--input={url}", f"--output={output}", f"--vocab_file={vocab_file}", *FLAGS,
            f"--direct_num_workers={workers}", *flags,
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with postgresql_server(tmp_path_factory.mktemp("server")) as served:
        yield fill(served)


def test_passwords_are_written_nowhere(
    tmp_path: Path,
    vocab_file: str,
    postgresql: Served,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of a run of two workers that succeeds, of `plan`, and of one with a wrong password."""
    from recordmill.pipelines.planning import text_planner

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(PASSWORD_VARIABLE, "another")
    monkeypatch.setattr(text_planner, "work_item_bytes", lambda *_: 5_000)
    address = postgresql.url.partition("@")[2]
    url = f"postgresql://mill:{URL_PASSWORD}@{address}"
    assert run(url, tmp_path / "ds", vocab_file, "--keep_fields=id:int,kind", workers=2) == 0
    assert manifest(tmp_path / "ds")["counts"]["documents_read"] == 600
    assert manifest(tmp_path / "ds")["config"]["input"][0].startswith("postgresql://mill@")
    for flags in ([], ["--keep_fields=id:int"]):  # done already; another configuration
        assert run(url, tmp_path / "ds", vocab_file, *flags) == 2
    wrong = f"postgresql://mill:{URL_PASSWORD}no@{address}"
    assert run(wrong, tmp_path / "other", vocab_file) == 2
    assert run(url, tmp_path / "other", vocab_file, "--partition_column=text") == 2
    planned = ["plan", "text", f"--input={url}", f"--output={tmp_path}/no", *FLAGS]
    assert main([*planned, f"--vocab_file={vocab_file}"]) == 0
    assert main(["text", f"--inputs={url}", *FLAGS]) == 2
    printed = capfd.readouterr()
    assert "password authentication failed" in printed.err
    for secret in (PASSWORD, URL_PASSWORD):
        assert secret not in printed.out + printed.err
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_the_password_may_be_in_the_environment(
    tmp_path: Path, vocab_file: str, postgresql: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    url = f"postgresql://mill@{postgresql.url.partition('@')[2]}"
    assert run(url, tmp_path / "one", vocab_file) == 0
    assert os.environ[PASSWORD_VARIABLE] == PASSWORD
    database = fill(sqlite_database(tmp_path / "postgres"))
    assert run(database.url, tmp_path / "two", vocab_file, workers=2) == 0
    assert shard_bytes(tmp_path / "two") == shard_bytes(tmp_path / "one")


def test_a_table_that_changed_is_noticed(
    tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = fill(sqlite_database(tmp_path / "a.db"))
    assert run(database.url, tmp_path / "ds", vocab_file) == 0
    assert run(database.url, tmp_path / "ds", vocab_file) == 0
    database.execute("INSERT INTO docs VALUES (700, 'the people', 'k')")
    assert run(database.url, tmp_path / "ds", vocab_file) == 2
    assert "another configuration or input" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--query="], "needs --query, a SELECT, and --partition_column, a column of integers"),
        (["--text_field=body"], "--text_field must be a column of sqlite:////{path}/a.db: id, "),
        (["--text_field=id"], "--text_field must be a column of strings, and 'id' of sqlite:////"),
        (["--encoding=latin-1"], "--encoding has no effect on a database, whose strings are UTF-8"),
        (["--input={path}/b.txt"], "sqlite:////{path}/a.db must be the only input; join tables"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    vocab_file: str,
    flags: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    database = fill(sqlite_database(tmp_path / "a.db"), rows=3)
    path = str(tmp_path).lstrip("/")
    given = [flag.format(path=tmp_path) for flag in flags]
    assert run(database.url, tmp_path / "ds", vocab_file, *given) == 2
    found = capsys.readouterr().err
    assert message.format(path=path) in found
    assert found.count("\n") == 1
    assert not (tmp_path / "ds").exists()


def test_a_split_is_a_column_of_the_answer(
    tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = fill(sqlite_database(tmp_path / "a.db"))
    assert run(f"train={database.url}", tmp_path / "ds", vocab_file) == 2
    assert "cannot name a split; give --split_from" in capsys.readouterr().err
    flags = ("--split_from=kind", "--splits=k0,k1,k2")
    assert run(database.url, tmp_path / "ds", vocab_file, *flags) == 0
