"""The command line of google-research/bert's create_pretraining_data.py, as people type it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main

from ..conftest import bert_text, make_documents
from .jobs import manifest, shard_bytes

# As in BERT's README, with the paths that are filled in.
LINE = """--input_file={inputs} --output_file={output} --vocab_file={vocab} --do_lower_case=True
--max_seq_length=128 --max_predictions_per_seq=20 --masked_lm_prob=0.15 --random_seed=12345
--dupe_factor=5"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(("a.txt", "b.txt", "c,d.txt")):
        text = bert_text(make_documents(20, seed=i))
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def bert(folder: Path, vocab_file: str, *flags: str, inputs: str, output: str = "out") -> int:
    line = LINE.format(inputs=inputs, output=folder / output, vocab=vocab_file)
    return main(["text", "--direct_num_workers=1", *line.split(), *flags])


def test_berts_line_writes_one_shard_of_all_files(folder: Path, vocab_file: str) -> None:
    inputs = f"{folder}/a.txt,{folder}/b.txt"
    assert bert(folder, vocab_file, inputs=inputs) == 0
    assert list(shard_bytes(folder / "out")) == ["train/train-00000-of-00001.tfrecords"]
    assert manifest(folder / "out")["counts"]["documents_read"] == 40
    # The same as with our own names.
    status = main(
        [
            "text", f"--input={inputs}", f"--output={folder}/own", f"--vocab_file={vocab_file}",
            "--dupe_factor=5", "--num_shards=1", "--direct_num_workers=1",
        ]
    )  # fmt: skip
    assert status == 0
    assert shard_bytes(folder / "own") == shard_bytes(folder / "out")


def test_a_number_of_shards_is_kept(folder: Path, vocab_file: str) -> None:
    assert bert(folder, vocab_file, "--num_shards=3", inputs=f"{folder}/a.txt") == 0
    assert len(shard_bytes(folder / "out")) == 3


@pytest.mark.parametrize(
    ("inputs", "files"),
    [
        ("{0}/a.txt,{0}/b.txt", 2),
        ("{0}/a.txt, {0}/b.txt,", 2),
        ("{0}/[ab].txt,{0}/c*.txt", 3),
        ("{0}/c,d.txt", 1),
        ("{0}/x,y/*.txt", 1),
    ],
)
def test_comma_lists(folder: Path, vocab_file: str, inputs: str, files: int) -> None:
    (folder / "x,y").mkdir()
    (folder / "x,y/e.txt").write_text(bert_text(make_documents(20, seed=7)), encoding="utf-8")
    source = f"--input={inputs.format(folder)}"
    flags = (f"--output={folder}/out", f"--vocab_file={vocab_file}", "--direct_num_workers=1")
    assert main(["text", source, *flags, "--dupe_factor=1"]) == 0
    assert manifest(folder / "out")["sources"]["files"] == files


def test_several_output_files_are_refused_with_the_flags_to_give(
    folder: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = f"one.tfrecord,{folder}/two.tfrecord"
    assert bert(folder, vocab_file, inputs=f"{folder}/a.txt", output=output) == 2
    assert "--output_file names 2 files" in (found := capsys.readouterr().err)
    assert "give --output=FOLDER --num_shards=2" in found
    assert found.count("\n") == 1


def test_a_comma_list_names_the_part_that_matches_nothing(
    folder: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bert(folder, vocab_file, inputs=f"{folder}/a.txt,{folder}/none.txt") == 2
    assert f"--input {folder}/none.txt matches no file" in capsys.readouterr().err
