"""What `--naming=seqio` and `--naming=tfx` write, and what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.pipelines.command_line import main
from recordmill.reader import load

from ..conftest import SharedFolder, bert_text, make_documents, run_text

FLAGS = ("--task=t5", "--dupe_factor=1", "--splits=train:0.8,eval:0.2", "--num_shards=2")
NAMES = {
    "seqio": ["train.tfrecord-00000-of-00002", "train.tfrecord-00001-of-00002"],
    "tfx": [f"Split-train/data_tfrecord-0000{i}-of-00002.gz" for i in range(2)],
}


@pytest.fixture(scope="module")
def folder(shared_folder: SharedFolder, vocab_file: str) -> Path:
    """One dataset in each naming."""

    def fill(folder: Path) -> None:
        (folder / "corpus.txt").write_text(bert_text(make_documents(30)))
        for naming in NAMES:
            flags = (f"--output={folder}/{naming}", f"--naming={naming}", *FLAGS)
            assert (
                run_text(f"--input={folder}/corpus.txt", f"--vocab_file={vocab_file}", *flags) == 0
            )

    return shared_folder("namings", fill)


@pytest.mark.parametrize("naming", NAMES)
def test_commands_and_our_reader_know_the_names(
    folder: Path, naming: str, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = folder / naming
    assert all((dataset / name).is_file() for name in NAMES[naming])
    assert main(["verify", str(dataset)]) == 0
    assert main(["inspect", str(dataset), "--vocab_file", vocab_file]) == 0
    assert "2 shards" in capsys.readouterr().out
    for split in ("train", "eval"):
        rows = list(load(dataset, split, batch_size=1, shuffle=False))
        found = {str(value.dtype) for row in rows for value in row.values()}
        assert rows
        assert found <= {"<dtype: 'int32'>", "<dtype: 'int64'>"}
    line = ["text", f"--input={folder}/corpus.txt", f"--vocab_file={vocab_file}", *FLAGS]
    again = [*line, f"--output={dataset}", f"--naming={naming}", "--direct_num_workers=1"]
    assert main(again) == 0
    assert "complete" in capsys.readouterr().out


def test_the_records_are_the_same(folder: Path) -> None:
    plain, packed = (
        list(tf.data.TFRecordDataset([str(folder / naming / n) for n in NAMES[naming]], form))
        for naming, form in (("seqio", ""), ("tfx", "GZIP"))
    )
    assert plain
    assert [r.numpy() for r in plain] == [r.numpy() for r in packed]


def test_a_cache_as_seqio_writes_it(folder: Path) -> None:
    tokens = {"dtype": "int32", "shape": [None]}
    cache = folder / "seqio"
    for split, shards in (("train", 2), ("eval", 1)):
        info = json.loads((cache / f"info.{split}.json").read_bytes())
        assert info.pop("seqio_version") == "0.0.20"
        assert info == {"num_shards": shards, "features": {"inputs": tokens, "targets": tokens}}
        # Of a BERT vocabulary [PAD] and [SEP], the end of text, are no tokens to seqio.
        rows = [
            {name: sum(value not in (0, 3) for value in values[0].numpy().tolist())
             for name, values in row.items()}
            for row in load(cache, split, batch_size=1, remainder="keep", shuffle=False)
        ]  # fmt: skip
        assert json.loads((cache / f"stats.{split}.json").read_bytes()) == {
            "examples": len(rows),
            "inputs_tokens": sum(row["inputs"] for row in rows),
            "inputs_max_tokens": max(row["inputs"] for row in rows),
            "targets_tokens": sum(row["targets"] for row in rows),
            "targets_max_tokens": max(row["targets"] for row in rows),
        }
    assert (cache / "COMPLETED").read_bytes() == b""
    others = [path.name for path in cache.rglob("*") if ".tfrecord" in path.name]
    assert len(others) == 3


def test_verify_names_a_cache_that_disagrees(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(folder / "seqio", cache)
    (cache / "COMPLETED").unlink()
    content = json.loads((cache / "info.train.json").read_bytes())
    (cache / "info.train.json").write_text(json.dumps(content | {"num_shards": 7}))
    stats = json.loads((cache / "stats.train.json").read_bytes())
    (cache / "stats.train.json").write_text(json.dumps(stats | {"inputs_tokens": 7}))
    assert main(["verify", str(cache)]) == 1
    found = capsys.readouterr().out
    assert "COMPLETED: missing" in found
    assert "info.train.json: num_shards must be 2 by the manifest, and is 7" in found
    tokens = stats["inputs_tokens"]
    assert f"stats.train.json: inputs_tokens must be {tokens} by the manifest, and is 7" in found


def test_verify_goes_on_without_statistics(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(folder / "seqio", cache)
    (cache / "_meta/statistics.json").write_text("[]")
    assert main(["verify", str(cache)]) == 1
    assert "_meta/statistics.json: must be an object, and is []" in capsys.readouterr().out


def test_other_names_have_no_tokens_of_features(folder: Path) -> None:
    seqio, tfx = (
        json.loads((folder / naming / "_meta/statistics.json").read_bytes())["train"]
        for naming in ("seqio", "tfx")
    )
    assert seqio.keys() - tfx.keys() == {
        f"{name}_{count}" for name in ("inputs", "targets") for count in ("tokens", "max_tokens")
    }


def test_tfx_reads_a_split(folder: Path) -> None:
    """As TFX's components do: `Split-*`, every file of it, by tfx_bsl."""
    from tfx_bsl.coders import example_coder

    records = tf.data.TFRecordDataset(
        sorted(str(p) for p in (folder / "tfx/Split-train").iterdir()), "GZIP"
    )
    coder = example_coder.ExamplesToRecordBatchDecoder()
    batch = coder.DecodeBatch([record.numpy() for record in records])
    assert batch.schema.names == ["inputs", "targets"]
    records = sum(1 for _ in load(folder / "seqio", "train", batch_size=1, remainder="keep"))
    assert batch.num_rows == records


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--naming=seqio", "--compression=GZIP"), "--naming=seqio needs --compression=NONE"),
        (("--naming=tfx", "--compression=ZLIB"), "--naming=tfx needs --compression=GZIP"),
        (("--naming=seqio", "--task=mlm_tokens"), "seqio needs --record_type=example for --task"),
    ],
)
def test_what_the_reader_could_not_read_is_refused(
    flags: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("a")
    line = ["text", f"--input={tmp_path}/a.txt", f"--output={tmp_path}/ds", "--vocab_file=v.txt"]
    assert main([*line, *flags]) == 2
    assert message in capsys.readouterr().err
