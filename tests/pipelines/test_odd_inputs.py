"""Whole commands over inputs that are no files, or lead outside: one line each, and no hang."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.command_line import main
from recordmill.transforms.images.decoding import decode
from recordmill.transforms.images.image_spec import DecodeSpec

from ..conftest import bert_text, make_documents, make_vocabulary
from ..pictures import WHOLE, jpeg


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


def _many_nulls(folder: Path) -> Path:
    """A file of some hundred bytes that says that it has 2 billion rows without text."""
    path = folder / "nulls.arrow"
    schema = pa.schema([("text", pa.null())])
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, schema) as writer:
        writer.write_batch(pa.record_batch([pa.nulls(2**31 - 1)], schema=schema))
    return path


def _null_column(folder: Path) -> Path:
    path = folder / "nulls.parquet"
    pq.write_table(pa.table({"text": pa.nulls(200_000, pa.string())}), path)
    return path


def _numbers(folder: Path) -> Path:
    path = folder / "numbers.json"
    if not path.exists():
        path.write_text(f"[{','.join(['1'] * 100_000)}]", encoding="utf-8")
    return path


def rejected(dataset: Path) -> list[dict[str, object]]:
    paths = sorted(dataset.rglob("rejected-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.parametrize("make", [_many_nulls, _null_column, _numbers])
@pytest.mark.parametrize("more", [[], ["--deduplicate=exact"]])
def test_small_files_of_many_rejects_end_at_once(
    folder: Path,
    make: Callable[[Path], Path],
    more: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert text(folder, f"--input={make(folder)}", *more) == 1
    error = capsys.readouterr().err
    assert "10001 inputs of a part of the input rejected" in error
    assert "--max_rejected" in error
    assert sum(p.stat().st_size for p in (folder / "ds").rglob("rejected-*")) < 1 << 22
    if not more:
        assert len(rejected(folder / "ds")) == 10_001


def test_a_missing_line_of_rejects_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text(folder, f"--input={_numbers(folder)}") == 1
    assert text(folder, f"--input={_numbers(folder)}", "--max_rejected=1") == 0, "the same, raised"
    assert main(["verify", str(folder / "ds")]) == 0
    (path,) = (folder / "ds").rglob("rejected-*.jsonl")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    capsys.readouterr()
    assert main(["verify", str(folder / "ds")]) == 1
    assert "must list 100000 inputs in all by the manifest, and lists 99999" in "".join(
        capsys.readouterr()
    )


@pytest.mark.slow
def test_lists_of_rejects_do_not_depend_on_how_the_input_is_cut(folder: Path) -> None:
    rows = [f'{{"text": "words {i}"}}' if i % 97 == 0 else "[1, 2, 3]" for i in range(60_000)]
    (folder / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (folder / "functions.py").write_text(
        'def some(document):\n    return None if document.text[-1] in "02468" else document\n'
    )
    line = [
        "text", f"--input={folder}/rows.jsonl", f"--vocab_file={folder}/vocab.txt", "--task=mlm",
        "--dupe_factor=1", f"--map={folder}/functions.py:some",
    ]  # fmt: skip
    lists: dict[str, list[bytes]] = {}
    for workers, name in ((1, "one"), (8, "eight"), (8, "resumed")):
        place = [f"--output={folder}/{name}", f"--direct_num_workers={workers}"]
        if name == "resumed":
            assert main([*line, *place, "--max_rejected=0.5"]) == 1
            place[1] = "--direct_num_workers=1"
        assert main([*line, *place, "--max_rejected=1"]) == 0
        paths = sorted((folder / name).rglob("rejected-*.jsonl"))
        lists[name] = [path.read_bytes() for path in paths]
    assert len(lists["one"]) < len(lists["eight"]), "the input is cut otherwise"
    assert b"".join(lists["one"]) == b"".join(lists["eight"]) == b"".join(lists["resumed"])
    assert b"".join(lists["one"]).count(b"\n") == rows.count("[1, 2, 3]")


def test_vocab_stops_over_its_budget_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["vocab", f"--input={_null_column(folder)}", f"--output={folder}/new.txt"]
    assert main([*line, "--direct_num_workers=1"]) == 1
    error = capsys.readouterr().err
    assert "rejected (field_not_text" in error
    assert "which alone are more than --max_rejected allows, 0.000% of all" in error


@pytest.mark.parametrize("command", ["text", "vocab"])
def test_a_share_of_the_input_is_a_budget_too(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"--output={folder}/new.txt"
    if command == "text":
        place = f"--output={folder}/ds"
    line = [command, f"--input={_many_nulls(folder)}", place, "--max_rejected=0.00002"]
    more = [f"--vocab_file={folder}/vocab.txt", "--task=mlm", "--deduplicate=exact"]
    assert main([*line, *(more if command == "text" else []), "--direct_num_workers=1"]) == 1
    error = capsys.readouterr().err
    assert "which alone are more than --max_rejected allows, 0.002% of all" in error


def test_existing_rows_stop_over_the_budget_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.csv").write_text("a,b\n1,2\n" + "1\n" * 12_000)
    line = ["examples", f"--input={folder}/rows.csv", f"--output={folder}/ds"]
    assert main([*line, "--direct_num_workers=1"]) == 1
    error = capsys.readouterr().err
    assert "10001 inputs of a part of the input rejected (wrong_number_of_fields 10001)" in error
    assert [each["position"] for each in rejected(folder / "ds")[:2]] == [8, 10]


def test_listing_images_over_the_budget_lists_all(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{i}.jpg,cat\n" for i in range(12_000)) + "cat/a.jpg,cat\n"
    (folder / "in/table.csv").write_text(f"path,label\n{rows}")
    line = ["images", f"--input={folder}/in", f"--annotations={folder}/in/table.csv"]
    assert main([*line, "--layout=table", f"--output={folder}/ds"]) == 1
    error = capsys.readouterr().err
    assert "12000 of 12001 inputs rejected (no_image 12000)" in error
    assert "all are listed in" in error
    assert len(rejected(folder / "ds")) == 12_000
    assert main(["plan", *line, "--layout=table", f"--output={folder}/planned"]) == 0
    assert "12,000 rejected so far" in "".join(capsys.readouterr())


RARE = ("rgb.jp2", "grey_16.j2k", "rgb.avif", "animated.avif", "rgb.tga", "runs.tga", "rgb.ppm",
        "grey.pgm", "one_bit.pbm")  # fmt: skip


def test_rare_formats_are_images_as_any_other(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    (tmp_path / "in/cat").mkdir(parents=True)
    for number, name in enumerate(RARE):
        (tmp_path / f"in/cat/{number}_{name.upper()}").write_bytes(WHOLE[name])
    line = ["images", f"--input={tmp_path}/in", f"--output={tmp_path}/ds", "--splits=train:1"]
    assert main([*line, "--direct_num_workers=1", "--format=imagenet"]) == 0
    found = {}
    for record in tf.data.TFRecordDataset([str(p) for p in tmp_path.glob("ds/train/*")]):
        feature = tf.train.Example.FromString(record.numpy()).features.feature
        name = feature["image/filename"].bytes_list.value[0].decode().partition("_")[2].lower()
        assert feature["image/format"].bytes_list.value == [b"PNG"]
        found[name] = tf.io.decode_image(feature["image/encoded"].bytes_list.value[0], channels=3)
    assert found.keys() == set(RARE)
    for name, shown in found.items():
        wanted = decode(WHOLE[name], DecodeSpec(), channels=3).pixels
        np.testing.assert_array_equal(shown.numpy(), wanted)


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
