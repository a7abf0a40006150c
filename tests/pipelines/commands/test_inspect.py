"""`recordmill inspect` on datasets that the jobs write, and on wrong input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from recordmill.pipelines.command_line import main

from ..conftest import Written


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["inspect", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def error(capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 2) -> str:
    assert main(["inspect", *map(str, arguments)]) == status
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    return printed


def test_text(bert_dataset: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, bert_dataset)  # which holds its vocabulary
    assert (bert_dataset / "_meta/vocab.txt").read_bytes() == Path(vocab_file).read_bytes()
    manifest = json.loads((bert_dataset / "_meta/manifest.json").read_bytes())
    train = sum(s["records"] for s in manifest["shards"] if s["split"] == "train")
    assert f"train       {train:,} records, 3 shards" in out
    assert "task        bert" in out
    assert out.count("[CLS]") == 3
    assert "[MASK→" in out
    assert "masked_lm_ids" not in out.split("train:0")[1]  # the text shows it
    assert "\x1b[" not in out
    assert out == run(capsys, bert_dataset, f"--vocab_file={vocab_file}")
    assert "[CLS]" not in run(capsys, bert_dataset / "train")


def test_colors(
    bert_dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[1m" in run(capsys, bert_dataset, "--color=always")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1m" in run(capsys, bert_dataset)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run(capsys, bert_dataset)


def test_records_by_number(bert_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, bert_dataset, "--record=validation:2", "--record=5")
    assert "validation:2  " in out
    assert "train:5  " in out
    message = error(capsys, bert_dataset, "--record=validation:100000")
    assert "--record must be less than the number of records" in message
    for wrong in ("x", "train:²", "9" * 30):
        message = error(capsys, bert_dataset, f"--record={wrong}")
        assert f"such as train:12, got '{wrong}'" in message


def test_json(bert_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(run(capsys, bert_dataset, "--json", "--examples=2"))
    assert content["task"] == "bert"
    assert content["finished"]
    assert [len(e["features"]["input_ids"]) for e in content["examples"]] == [64, 64]
    assert content["splits"]["validation"]["records"] > 0


def test_another_vocabulary(
    bert_dataset: Path, vocab_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "vocab"
    other.write_text(Path(vocab_file).read_text(encoding="utf-8") + "zzz\n", encoding="utf-8")
    assert "is another one" in error(capsys, bert_dataset, f"--vocab_file={other}")
    assert "cannot be read" in error(capsys, bert_dataset, "--vocab_file=nowhere")


def test_images(
    written: Callable[[str, str], Written], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = written("images", "small").dataset
    out = run(capsys, dataset, "--where=label==dog", f"--images={tmp_path}/sheet.png")
    assert out.count("(dog)") == 3
    assert "(cat)" not in out.split("train:")[1]
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width == 2 * (320 + 12) + 12
    first = json.loads(run(capsys, dataset, "--json", "--examples=1"))["examples"][0]
    name = first["features"]["image/filename"][0]
    out = run(capsys, dataset, f"--key={name}")
    shown = [line for line in out.splitlines() if line.startswith("  image/filename")]
    assert shown[1:]  # the first one is of the schema; the images are written in copies
    assert all(line.endswith(f'"{name}"') for line in shown[1:])
    assert main(["inspect", str(dataset), "--key=nothing.jpg"]) == 1
    out = capsys.readouterr().out
    assert "no record matches --key=nothing.jpg; 110 were read" in out
    assert "compared as they are stored" in out
    assert main(["inspect", str(dataset), "--where=label==7", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["examples"] == []
    assert "picture file" in error(capsys, dataset, "--images=sheet.txt")
    assert "cannot be written" in error(capsys, dataset, "--images=/nowhere/sheet.png")
    assert "in three ways" in error(capsys, dataset, "--key=a", "--where=label==1")


def test_an_unfinished_dataset(
    bert_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = Path(shutil.copytree(bert_dataset, tmp_path / "ds"))
    (dataset / "_SUCCESS").unlink()
    assert "NOT FINISHED" in run(capsys, dataset)
    (dataset / "_meta/manifest.json").write_text("{}")
    assert "recordmill verify" in error(capsys, dataset)


def test_wrong_usage(
    bert_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no file" in error(capsys, tmp_path / "nothing")
    assert "must be a dataset's folder, or a folder, file or glob of TFRecords, got ''" in error(
        capsys, ""
    )
    assert "--where must not be empty" in error(capsys, bert_dataset, "--where=")
    assert "--key must not be empty" in error(capsys, bert_dataset, "--key=")
    assert "unknown flag --exmples=3; did you mean --examples?" in error(
        capsys, bert_dataset, "--exmples=3"
    )
    assert "unexpected argument 'b'; write quotes around a glob" in error(capsys, bert_dataset, "b")
    assert "--examples must be at least 0" in error(capsys, bert_dataset, "--examples=-1")
    assert "did you mean 'train'" in error(capsys, bert_dataset, "--split=trian")
    assert "needs records with images" in error(
        capsys, bert_dataset, f"--images={tmp_path}/sheet.png"
    )
    shard = next(bert_dataset.glob("train/*"))
    broken = tmp_path / "train.tfrecord"
    broken.write_bytes(shard.read_bytes()[:-1])
    assert "ends inside a record" in error(capsys, broken, "--examples=100000", status=1)
