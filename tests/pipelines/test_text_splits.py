"""Splits that a corpus brings along: named globs, a field of each record; nested fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.codec.framing import scan_records

from ..conftest import bert_text, make_documents
from .jobs import LENGTHS, manifest, records_by_split, shard_bytes

FLAGS = ("--task=mlm_tokens", "--max_seq_length=64", "--direct_num_workers=1")


def run(output: Path, vocab_file: str, *flags: str) -> int:
    return main(["text", f"--output={output}", f"--vocab_file={vocab_file}", *FLAGS, *flags])


def words(output: Path, split: str) -> set[str]:
    """Returns which of the words "for", "his" and "with" the records of a split have."""
    found = set()
    for name, data in shard_bytes(output).items():
        if name.startswith(f"{split}/"):
            assert scan_records(np.frombuffer(data, np.uint8))[2] == ""
            found |= {word for word in ("for", "his", "with") if word.encode() in data}
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, word in (("train", "for"), ("dev", "his"), ("test", "with")):
        (tmp_path / split).mkdir()
        count = 60 if split == "train" else 10
        for part in "ab":
            text = f"{word} {word} {word}\n\n" * count
            (tmp_path / split / f"{part}.txt").write_text(text, encoding="utf-8")
    return tmp_path


class TestNamedGlobs:
    def test_every_file_is_in_the_split_of_its_glob(self, folder: Path, vocab_file: str) -> None:
        globs = (f"--input=train={folder}/train/*.txt", f"--input=dev={folder}/dev/*.txt")
        assert run(folder / "ds", vocab_file, *globs) == 0
        assert words(folder / "ds", "train") == {"for"}
        assert words(folder / "ds", "dev") == {"his"}
        assert records_by_split(folder / "ds") == {"train": 120, "dev": 20}

    def test_lists_and_repetitions(self, folder: Path, vocab_file: str) -> None:
        train = f"--input=train={folder}/train/a.txt,{folder}/train/b.txt"
        more = ("--input", f"train={folder}/test/*.txt", f"dev={folder}/dev/*.txt")
        assert run(folder / "ds", vocab_file, train, *more, "--num_shards=train:2,dev:1") == 0
        assert words(folder / "ds", "train") == {"for", "with"}
        assert manifest(folder / "ds")["sources"]["files"] == 6

    def test_only_train_gets_copies(self, folder: Path, vocab_file: str) -> None:
        globs = (f"--input=train={folder}/train/*.txt", f"--input=dev={folder}/dev/*.txt")
        flags = ("--task=mlm", *LENGTHS, "--dupe_factor=3")
        assert run(folder / "ds", vocab_file, *globs, *flags) == 0
        statistics = json.loads((folder / "ds/_meta/statistics.json").read_bytes())
        assert statistics["dev"]["examples"] == 20
        assert statistics["train"]["examples"] == 3 * 120

    def test_plan(self, folder: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]) -> None:
        globs = (f"--input=train={folder}/train/*.txt", f"--input=dev={folder}/dev/*.txt")
        flags = (f"--output={folder}/ds", f"--vocab_file={vocab_file}", "--task=mlm")
        assert main(["plan", "text", *flags, *globs, "--max_seq_length=64"]) == 0
        assert "dev" in capsys.readouterr().out

    def test_a_folder_with_an_equals_sign_is_a_folder(
        self, folder: Path, vocab_file: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / "year=2020").mkdir()
        (folder / "year=2020/a.txt").write_text(bert_text(make_documents(9)), encoding="utf-8")
        monkeypatch.chdir(folder)
        assert run(folder / "ds", vocab_file, "--input=year=2020/*.txt") == 0
        assert list(shard_bytes(folder / "ds")) == ["train/train-00000-of-00001.tfrecords"]

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["--input={0}/dev/*"], "--input must name a split for every glob or for none"),
            (["--splits=a:0.5,b:0.5"], "--splits has no effect where --input names the splits"),
            (["--input=dev={0}/train/a.txt"], "a.txt to the splits dev and train"),
            (["--split_by=x"], "--split_by has no effect where --input names the splits"),
            (["--input=dev={0}/none*"], "/none* matches no file"),
        ],
    )
    def test_mistakes(
        self,
        folder: Path,
        vocab_file: str,
        flags: list[str],
        message: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        given = [flag.format(folder) for flag in flags]
        assert run(folder / "ds", vocab_file, f"--input=train={folder}/train/*", *given) == 2
        found = capsys.readouterr().err
        assert message in found
        assert found.count("\n") == 1


def write_rows(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return f"--input={path}"


class TestSplitFrom:
    ROWS = [{"text": "for for", "set": "train"}] * 30 + [{"text": "his his", "set": "dev"}] * 9

    def test_a_field_names_the_split(self, tmp_path: Path, vocab_file: str) -> None:
        source = write_rows(tmp_path / "a.jsonl", self.ROWS)
        flags = ("--split_from=set", "--splits=train,dev")
        assert run(tmp_path / "ds", vocab_file, source, *flags) == 0
        assert words(tmp_path / "ds", "train") == {"for"}
        assert words(tmp_path / "ds", "dev") == {"his"}

    def test_another_value_is_a_reject(self, tmp_path: Path, vocab_file: str) -> None:
        rows = [*self.ROWS, {"text": "with", "set": "test"}, {"text": "with", "set": None}]
        source = write_rows(tmp_path / "a.jsonl", rows)
        flags = ("--split_from=set", "--splits=train,dev")
        assert run(tmp_path / "ds", vocab_file, source, *flags) == 1
        assert (
            run(tmp_path / "ds", vocab_file, source, *flags, "--max_rejected=1", "--overwrite") == 0
        )
        assert manifest(tmp_path / "ds")["counts"]["rejected"] == {"no_split": 2}

    def test_a_nested_field_and_csv(self, tmp_path: Path, vocab_file: str) -> None:
        rows = [{"text": row["text"], "meta": {"set": row["set"]}} for row in self.ROWS]
        source = write_rows(tmp_path / "a.jsonl", rows)
        flags = ("--splits=train,dev", "--num_shards=1")
        assert run(tmp_path / "ds", vocab_file, source, "--split_from=meta.set", *flags) == 0
        table = "".join(f"{row['text']},{row['set']}\n" for row in self.ROWS)
        (tmp_path / "a.csv").write_text(f"text,set\n{table}")
        source = f"--input={tmp_path}/a.csv"
        assert run(tmp_path / "csv", vocab_file, source, "--split_from=set", *flags) == 0
        assert words(tmp_path / "csv", "dev") == words(tmp_path / "ds", "dev") == {"his"}

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            ([], "--split_from=set needs the names of the splits, without shares"),
            (["--splits=train:0.5,dev:0.5"], "needs the names of the splits, without shares"),
            (["--splits=train,dev", "--split_by=x"], "--split_by has no effect with --split_from"),
        ],
    )
    def test_mistakes(
        self,
        tmp_path: Path,
        vocab_file: str,
        flags: list[str],
        message: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        source = write_rows(tmp_path / "a.jsonl", self.ROWS)
        assert run(tmp_path / "ds", vocab_file, source, "--split_from=set", *flags) == 2
        assert message in capsys.readouterr().err


class TestNestedFields:
    def test_a_path_finds_the_text(self, tmp_path: Path, vocab_file: str) -> None:
        rows = [{"meta": {"page": {"text": "with with"}}, "text": "for"}] * 20
        source = write_rows(tmp_path / "a.jsonl", rows)
        assert run(tmp_path / "ds", vocab_file, source, "--text_field=meta.page.text") == 0
        assert words(tmp_path / "ds", "train") == {"with"}

    def test_a_field_whose_name_has_a_dot_comes_first(
        self, tmp_path: Path, vocab_file: str
    ) -> None:
        rows = [{"meta.text": "his his", "meta": {"text": "for for"}}] * 20
        source = write_rows(tmp_path / "a.jsonl", rows)
        assert run(tmp_path / "ds", vocab_file, source, "--text_field=meta.text") == 0
        assert words(tmp_path / "ds", "train") == {"his"}

    def test_what_is_not_there_is_a_reject(self, tmp_path: Path, vocab_file: str) -> None:
        rows: list[dict[str, Any]] = [{"meta": {"text": "his"}}] * 20
        rows += [{"meta": "text"}, {"meta": {"other": 1}}]
        source = write_rows(tmp_path / "a.jsonl", rows)
        flags = ("--text_field=meta.text", "--max_rejected=1")
        assert run(tmp_path / "ds", vocab_file, source, *flags) == 0
        assert manifest(tmp_path / "ds")["counts"]["rejected"] == {"field_missing": 2}
