"""Columns as the input of text jobs: equal bytes for all parts of files and workers, mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from recordmill.pipelines.command_line import main

from .jobs import LENGTHS, manifest, records_by_split, shard_bytes

FLAGS = ("--task=mlm", "--dupe_factor=1", *LENGTHS, "--num_shards=2")
ROWS = [
    {"text": f"the people of water {i}. it was {i % 7} of them", "id": i, "kind": f"k{i % 3}"}
    for i in range(600)
]


def write(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def write_arrow(path: Path, rows: list[dict[str, Any]], part_rows: int = 1 << 20) -> Path:
    """Writes a stream, as Hugging Face's datasets do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, part_rows)
    return path


def run(source: Path | str, output: Path, vocab_file: str, *flags: str, workers: int = 1) -> int:
    return main(
        [
            "text", f"--input={source}", f"--output={output}", f"--vocab_file={vocab_file}",
            *FLAGS, f"--direct_num_workers={workers}", *flags,
        ]
    )  # fmt: skip


def test_row_groups_work_items_and_workers_do_not_change_bytes(
    tmp_path: Path, vocab_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.pipelines.planning import text_planner

    flags = ("--keep_fields=id:int,kind", "--split_by=kind", "--splits=train:0.6,validation:0.4")
    source = write(tmp_path / "one/a.parquet", ROWS)
    assert run(source, tmp_path / "ds", vocab_file, *flags) == 0
    assert manifest(tmp_path / "ds")["counts"]["documents_read"] == len(ROWS)
    wanted = shard_bytes(tmp_path / "ds")
    source = write(tmp_path / "many/a.parquet", ROWS, row_group_size=70, compression="zstd")
    monkeypatch.setattr(text_planner, "work_item_bytes", lambda *_: 5_000)
    assert run(source, tmp_path / "again", vocab_file, *flags, workers=2) == 0
    assert shard_bytes(tmp_path / "again") == wanted


def test_batches_of_arrow_and_workers_do_not_change_bytes(
    tmp_path: Path, vocab_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.pipelines.planning import text_planner

    flags = ("--keep_fields=id:int,kind",)
    assert (
        run(write_arrow(tmp_path / "one/a.arrow", ROWS), tmp_path / "ds", vocab_file, *flags) == 0
    )
    assert manifest(tmp_path / "ds")["counts"]["documents_read"] == len(ROWS)
    wanted = shard_bytes(tmp_path / "ds")
    source = write_arrow(tmp_path / "many/a.arrow", ROWS, 70)
    monkeypatch.setattr(text_planner, "work_item_bytes", lambda *_: 5_000)
    assert run(source, tmp_path / "again", vocab_file, *flags, workers=2) == 0
    assert shard_bytes(tmp_path / "again") == wanted
    planned = [f"--input={source}", f"--vocab_file={vocab_file}", f"--output={tmp_path}/no"]
    assert main(["plan", "text", *planned, *FLAGS]) == 0


def test_a_saved_dataset_has_its_splits(tmp_path: Path, vocab_file: str) -> None:
    for split, rows in (("train", ROWS), ("test", ROWS[:60])):
        write_arrow(tmp_path / "saved" / split / "data.arrow", rows)
        state = {"_data_files": [{"filename": "data.arrow"}]}
        (tmp_path / "saved" / split / "state.json").write_text(json.dumps(state))
    (tmp_path / "saved/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert run(tmp_path / "saved", tmp_path / "ds", vocab_file) == 0
    # Some windows are cut in two.
    assert records_by_split(tmp_path / "ds") == {"train": 601, "test": 61}


def test_rejects_are_accounted(
    tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = [dict(row) for row in ROWS]
    rows[33]["text"] = None
    write(tmp_path / "in/a.parquet", rows)
    broken = write(tmp_path / "in/b.parquet", ROWS)
    broken.write_bytes(broken.read_bytes()[:-9])
    assert run(f"{tmp_path}/in/*", tmp_path / "ds", vocab_file) == 1
    assert "broken_file 1, field_not_text 1" in capsys.readouterr().err.splitlines()[-1]
    assert run(f"{tmp_path}/in/*", tmp_path / "ds", vocab_file, "--max_rejected=0.1") == 0
    found = manifest(tmp_path / "ds")["counts"]
    assert found["documents_read"] == len(rows) - 1
    (lines,) = (path.read_text() for path in tmp_path.glob("ds/_meta/rejected/**/*.jsonl"))
    rejects = [json.loads(line) for line in lines.splitlines()]
    assert [(each["source"], each["position"], each["reason"]) for each in rejects] == [
        ("a.parquet", 33, "field_not_text"), ("b.parquet", 0, "broken_file"),
    ]  # fmt: skip


def encrypted(path: Path, *, plain_footer: bool) -> None:
    class Client(pe.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key: bytes, _: str) -> bytes:
            return key

        def unwrap_key(self, key: bytes, _: str) -> bytes:
            return key

    properties = pe.CryptoFactory(lambda _: Client()).file_encryption_properties(
        pe.KmsConnectionConfig(),
        pe.EncryptionConfiguration(
            footer_key="k", column_keys={"k": ["text"]}, plaintext_footer=plain_footer,
            double_wrapping=False, data_key_length_bits=128,
        ),
    )  # fmt: skip
    table = pa.Table.from_pylist(ROWS)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("a.parquet", ["--text_field=body"], "--text_field must be a column of {path}: text, id, "
         "kind; got 'body'"),
        ("a.parquet", ["--keep_fields=url"], "--keep_fields must be a column of {path}: text"),
        ("a.parquet", ["--text_field=id"], "--text_field must be a column of strings, and 'id' of "
         "{path} is int64"),
        ("a.parquet", ["--encoding=latin-1"], "--encoding has no effect on Parquet, whose strings"),
        ("a.parquet", ["--delimiter=;"], "--delimiter is for CSV and TSV, and the input"),
        ("a.parquet", ["--input_format=jsonl"], "--input {path} is a Parquet file, not JSONL; give "
         "--input_format=parquet"),
        ("other", [], "--input {path} is a Parquet file, not plain text; give "
         "--input_format=parquet"),
        ("a.arrow", ["--text_field=body"], "--text_field must be a column of {path}: text, id, "
         "kind; got 'body'"),
        ("a.txt", [], "--input {path} is an Arrow stream, not plain text; give "
         "--input_format=arrow"),
        ("b.arrow", [], "--input {path} is a Parquet file, not an Arrow file; leave it out, or "
         "name the format"),
        ("c.feather", [], "--input {path} is a Feather file of version 1; write it anew, as "
         "pyarrow.feather.write_feather does"),
        ("locked.parquet", [], "--input {path} is an encrypted Parquet file; decrypt it first"),
        ("half.parquet", [], "--input {path}: columns of the Parquet file are encrypted; decrypt"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    tmp_path: Path,
    vocab_file: str,
    name: str,
    flags: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    if name in ("locked.parquet", "half.parquet"):
        encrypted(path, plain_footer=name == "half.parquet")
    elif name in ("a.arrow", "a.txt"):
        write_arrow(path, ROWS[:3])
    elif name == "c.feather":
        path.write_bytes(b"FEA1" + bytes(60) + b"FEA1")
    else:
        write(path, ROWS[:3])
    assert run(path, tmp_path / "ds", vocab_file, *flags) == 2
    found = capsys.readouterr().err
    assert message.format(path=path) in found
    assert found.count("\n") == 1
    assert not (tmp_path / "ds").exists()


def test_the_format_can_be_named(tmp_path: Path, vocab_file: str) -> None:
    source = write(tmp_path / "blob", ROWS)
    assert run(source, tmp_path / "ds", vocab_file, "--input_format=parquet") == 0
    assert manifest(tmp_path / "ds")["counts"]["documents_read"] == len(ROWS)


def test_a_later_file_without_the_column_is_rejected_row_by_row(
    tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in/a.parquet", ROWS)
    write(tmp_path / "in/b.parquet", [{"body": "the people"}] * 5)
    assert run(f"{tmp_path}/in/*", tmp_path / "ds", vocab_file) == 1
    assert "field_missing 5" in capsys.readouterr().err


def test_a_vocabulary_is_that_of_jsonl(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", ROWS)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    for kind in ("parquet", "jsonl"):
        flags = (f"--input={tmp_path}/a.{kind}", f"--output={tmp_path}/{kind}.txt")
        assert main(["vocab", *flags, "--vocab_size=100", "--direct_num_workers=1"]) == 0
    assert (tmp_path / "parquet.txt").read_bytes() == (tmp_path / "jsonl.txt").read_bytes()
