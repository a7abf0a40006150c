"""--skip_files: a run goes on without a file that ends a worker, and says which it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.command_line import main

from ..conftest import make_documents, make_vocabulary
from ..pictures import jpeg
from .jobs import shard_bytes

ONE = ("--direct_num_workers=1", "--overwrite")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "vocab.txt").write_text("\n".join(make_vocabulary()) + "\n", encoding="utf-8")
    for seed, name in enumerate("abc"):
        texts = [" ".join(lines) for lines in make_documents(20, seed=seed)]
        pq.write_table(pa.table({"text": texts}), tmp_path / f"in/{name}.parquet")
    return tmp_path


def text(folder: Path, source: str, *more: str) -> int:
    flags = [f"--vocab_file={folder}/vocab.txt", "--task=mlm", f"--output={folder}/ds"]
    return main(["text", f"--input={source}", *flags, "--dupe_factor=1", *more])


def test_text_is_what_it_is_without_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"{folder}/in/*.parquet"
    assert text(folder, source, *ONE, f"--skip_files={folder}/in/b.parquet") == 0
    shown = capsys.readouterr().err
    assert f"files passed over: skip_files 1, such as {folder}/in/b.parquet" in shown
    left = shard_bytes(folder / "ds")
    assert text(folder, source, *ONE, f"--skip_files={folder}/in/[b]*") == 0
    assert shard_bytes(folder / "ds") == left
    (folder / "in/b.parquet").unlink()
    assert text(folder, source, *ONE) == 0
    assert shard_bytes(folder / "ds") == left


def test_a_pattern_must_match(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert text(folder, f"{folder}/in", *ONE, f"--skip_files={folder}/in/d.parquet") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"--skip_files must match files of --input, and {folder}/in/d.parquet matches" in error
    assert text(folder, f"{folder}/in", *ONE, f"--skip_files={folder}/in/") == 2
    assert "matches only empty files" in capsys.readouterr().err


def test_other_commands_have_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [f"--input={folder}/in", f"--skip_files={folder}/in/a.parquet"]
    assert main(["examples", *line, f"--output={folder}/examples", *ONE]) == 0
    rows = sum(len(data) for data in shard_bytes(folder / "examples").values())
    assert main(["examples", line[0], f"--output={folder}/all", *ONE]) == 0
    assert rows < sum(len(data) for data in shard_bytes(folder / "all").values())
    for name in ("cat/a", "cat/b", "dog/a"):
        (folder / f"pictures/{name}.jpg").parent.mkdir(parents=True, exist_ok=True)
        (folder / f"pictures/{name}.jpg").write_bytes(jpeg())
    line = [f"--input={folder}/pictures", f"--skip_files={folder}/pictures/cat/b.jpg"]
    assert main(["images", *line, f"--output={folder}/images", *ONE]) == 0
    assert "skip_files 1" in "".join(capsys.readouterr())
    shutil.rmtree(folder / "images")
    line[1] = f"--skip_files={folder}/pictures/cow"
    assert main(["images", *line, f"--output={folder}/images", *ONE]) == 2
    assert "--skip_files must match files" in capsys.readouterr().err


ENDING = """
import os, signal
def end(document):
    if document.key.startswith("b.parquet"):
        os.kill(os.getpid(), signal.SIGSEGV)
    return document
"""


def test_a_file_that_ends_a_worker_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ending.py").write_text(ENDING)
    many = pa.table({"text": [f"row {i} of many" for i in range(60_000)]})  # read while it ends
    pq.write_table(many, folder / "in/b.parquet")
    flags = [f"--map={folder}/ending.py:end", "--direct_num_workers=2"]
    assert text(folder, f"{folder}/in", *flags) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "a worker died: signal 11 killed it, while it did item " in error
    named = f", and read {folder}/in/b.parquet; run the same command again, or leave that file out "
    assert f"{named}by --skip_files and start anew with --overwrite" in error
    flags.append("--overwrite")
    assert text(folder, f"{folder}/in", *flags, f"--skip_files={folder}/in/b.parquet") == 0
