"""Whole commands over inputs that are no files, or lead outside: one line each, and no hang."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.command_line import main

from ..conftest import bert_text, make_documents, make_vocabulary
from ..pictures import jpeg


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in/cat").mkdir(parents=True)
    (tmp_path / "in/a.txt").write_text(bert_text(make_documents(30, seed=1)), encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("\n".join(make_vocabulary()) + "\n", encoding="utf-8")
    (tmp_path / "in/cat/a.jpg").write_bytes(jpeg())
    os.mkfifo(tmp_path / "fifo.txt")
    os.mkfifo(tmp_path / "in/fifo.txt")
    os.mkfifo(tmp_path / "in/cat/fifo.jpg")
    return tmp_path


def text(folder: Path, *more: str) -> int:
    given = [f"--input={folder}/in/*.txt", f"--vocab_file={folder}/vocab.txt", *more]
    place = [f"--output={folder}/ds", "--direct_num_workers=1", "--dupe_factor=1"]
    return main(["text", *given, *place, "--task=mlm"])


def test_text_passes_over_a_fifo_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text(folder) == 0
    shown = capsys.readouterr().err
    assert f"files passed over: not_regular 1, such as {folder}/in/fifo.txt" in shown


@pytest.mark.parametrize("flag", ["--vocab_file", "--input"])
def test_a_flag_that_names_one_is_refused(
    folder: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["text", f"--output={folder}/ds", "--task=mlm"]
    given = {"--input": f"{folder}/in/a.txt", "--vocab_file": f"{folder}/vocab.txt"}
    given[flag] = f"{folder}/fifo.txt"
    assert main([*line, *(f"{name}={value}" for name, value in given.items())]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{flag} {folder}/fifo.txt" in error
    assert "a fifo, and only regular files are read" in error


def test_images_count_it_in_the_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["images", f"--input={folder}/in", f"--output={folder}/ds", "--direct_num_workers=1"]
    assert main(line) == 0
    assert "not_regular 2" in "".join(capsys.readouterr())


def test_a_link_outside_is_in_the_list_of_rejects(folder: Path) -> None:
    (folder / "secret.jpg").write_bytes(b"first bytes that nobody may see")
    (folder / "in/cat/s.jpg").symlink_to(folder / "secret.jpg")
    line = ["images", f"--input={folder}/in", f"--output={folder}/ds", "--direct_num_workers=1"]
    assert main([*line, "--max_rejected=0.9"]) == 0
    [path] = (folder / "ds/_meta/rejected").glob("*.jsonl")
    reject = json.loads(path.read_text())
    assert (reject["source"], reject["reason"]) == ("cat/s.jpg", "outside_input")
    assert "first bytes" not in path.read_text()


@pytest.mark.parametrize(
    ("command", "given", "output"),
    [
        ("text", "in", "in/ds"), ("text", "in/**/*.txt", "in/ds"), ("text", "link", "in/ds"),
        ("text", "in", "link/ds"), ("text", "train={0}/in", "in/ds"), ("examples", "in", "in/ds"),
        ("images", "in", "in/ds"), ("vocab", "in/*.txt", "in/vocab.txt"),
        ("vocab", "in", "link/vocab.txt"),
    ],
)  # fmt: skip
def test_what_a_job_writes_is_not_its_next_input(
    folder: Path, command: str, given: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "link").symlink_to(folder / "in")
    pattern = given.format(folder) if "{0}" in given else f"{folder}/{given}"
    flags = [f"--vocab_file={folder}/vocab.txt", "--task=mlm"] if command == "text" else []
    line = [command, f"--input={pattern}", f"--output={folder}/{output}", *flags]
    assert main([*line, "--direct_num_workers=1"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    named = f"also matches what is written to --output {folder}/{output}; choose an output outside"
    assert named in error
    assert {path.name for path in (folder / "in").iterdir()} == {"a.txt", "cat", "fifo.txt"}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("command", ["images", "text"])
def test_of_a_thousand_columns_a_message_names_some(
    tmp_path: Path, command: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["text", "path", *(f"column_{n}" for n in range(997)), "x" * 5000]
    table = tmp_path / f"table.{kind}"
    if kind == "csv":
        table.write_text(f"{','.join(names)}\n{','.join('y' * len(names))}\n")
    else:
        content = {name: [b"\xff\xd8\xff"] if name == "path" else ["y"] for name in names}
        pq.write_table(pa.table(content), table)
    (tmp_path / "vocab.txt").write_text("\n".join(make_vocabulary()) + "\n", encoding="utf-8")
    flags = ["--label_field=colour"]
    if command == "text":
        flags += [f"--vocab_file={tmp_path}/vocab.txt", "--task=classify"]
    assert main([command, f"--input={table}", f"--output={tmp_path}/ds", *flags]) == 2
    error = capsys.readouterr().err
    assert "--label_field must be a column of" in error
    assert re.search(r", column_1\d and 9\d\d more; got 'colour'", error)
    assert len(error) < 600
