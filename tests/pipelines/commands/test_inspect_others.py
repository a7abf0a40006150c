"""`recordmill inspect` and `report` on odd files: damaged, missing, of other kinds, unfinished."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.reader.framing import masked_crc32c

from ...reader.small_datasets import write_numbers


def framed(*records: bytes) -> bytes:
    content = b""
    for data in records:
        header = struct.pack("<Q", len(data))
        content += header + struct.pack("<I", masked_crc32c(header))
        content += data + struct.pack("<I", masked_crc32c(data))
    return content


def message(number: int, *parts: bytes) -> bytes:
    """A field of protobuf that holds bytes, of which there are fewer than 128."""
    data = b"".join(parts)
    return bytes([number << 3 | 2, len(data)]) + data


def entry(name: str, value: bytes) -> bytes:
    return message(1, message(1, name.encode()), message(2, value))


def example(**features: bytes) -> bytes:
    return message(1, *(entry(name, value) for name, value in features.items()))


def int64s(*values: int) -> bytes:
    return message(3, message(1, bytes(values)) if values else b"")


def floats(*values: float) -> bytes:
    return message(2, message(1, struct.pack(f"<{len(values)}f", *values)))


def texts(*values: bytes) -> bytes:
    return message(1, *(message(1, value) for value in values))


def inspect(
    capsys: pytest.CaptureFixture[str], path: Path, *flags: str, status: int = 0
) -> tuple[str, str]:
    assert main(["inspect", str(path), *flags]) == status
    printed = capsys.readouterr()
    return printed.out, printed.err


def write(path: Path, *records: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(framed(*records))
    return path


def shard_of(dataset: Path) -> Path:
    return sorted(dataset.glob("train/*"))[1]


def test_a_record_of_an_uncounted_file_is_named_by_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(2):
        numbers = (example(id=int64s(10 * i + j)) for j in range(9))
        write(tmp_path / f"train-0000{i}-of-00002", *numbers)
    out, _ = inspect(capsys, tmp_path, "--examples=4")
    assert "\ntrain:1  " in out
    assert "train:2" not in out
    assert f"\ntrain  {tmp_path}/train-00001-of-00002, record 0, " in out
    content = json.loads(inspect(capsys, tmp_path, "--examples=4", "--json")[0])
    assert [each["number"] for each in content["examples"]] == [0, 1, None, None]
    assert "\ntrain:9  " in inspect(capsys, tmp_path, "--record=train:9")[0]


def test_files_that_are_no_records_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(3):
        write(tmp_path / f"train-0000{i}-of-00003", example(id=int64s(i)))
    damaged = tmp_path / "train-00001-of-00003"
    content = bytearray(damaged.read_bytes())
    content[3] ^= 1
    damaged.write_bytes(content)
    (tmp_path / "train-00002-of-00003").write_bytes(b"")
    (tmp_path / "y.tfrecord").write_text("this is no file of records")
    for name in ("README.txt", "x.tfrecord.md5", "a.json-00000-of-00002"):
        (tmp_path / name).write_text("neither is this, and its name does not say so")
    out, _ = inspect(capsys, tmp_path, status=1)
    assert out.count("PROBLEM") == 2
    assert f"{damaged} is TFRecords by its name, and does not begin as one" in out
    assert f"{tmp_path}/y.tfrecord is TFRecords by its name" in out
    assert f"{tmp_path}/train-00002-of-00003 has 0 bytes" in out
    assert "2 shards" in out
    content = json.loads(inspect(capsys, tmp_path, "--json", status=1)[0])
    assert len(content["problems"]) == 2
    assert main(["report", str(tmp_path), f"--html={tmp_path}/r.html"]) == 1
    assert capsys.readouterr().err.count("is TFRecords by its name") == 2
    assert "is TFRecords by its name" in (tmp_path / "r.html").read_text()
    for each in ("00000", "00001"):
        (tmp_path / f"train-{each}-of-00003").write_bytes(b"")
    write(tmp_path / "validation.tfrecord", example(id=int64s(1)))
    assert "\nvalidation:0  " in inspect(capsys, tmp_path, status=1)[0]
    _, error = inspect(capsys, tmp_path / "y.tfrecord", status=2)
    assert "none of its 1 files has TFRecords: " in error
    assert "is TFRecords by its name" not in inspect(capsys, tmp_path / "README.txt", status=2)[1]


def test_an_unfinished_run_is_no_dataset_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = tmp_path / "one"
    write(one / "_tmp/shards/train/train-00000-of-00002.tfrecords", example(id=int64s(1)))
    (one / "_tmp/of_recordmill").write_text("")
    for path in (one, one / "_tmp/shards", tmp_path, one / "_tmp/shards/train/*"):
        out, error = inspect(capsys, path, status=1)
        assert (out, error) == ("", f"recordmill: {one} is not finished: run its command again\n")
    assert main(["report", str(one), f"--html={tmp_path}/r.html"]) == 1
    assert "is not finished: run its command again" in capsys.readouterr().err
    write(tmp_path / "other/train.tfrecord", example(id=int64s(1)))
    out, _ = inspect(capsys, tmp_path, status=1)
    assert f"{one} is not finished" in out
    assert "1 shard," in out
    other = write(tmp_path / "theirs/_tmp/train.tfrecord", example(id=int64s(1)))
    assert "train:0  " in inspect(capsys, other.parent.parent)[0]


def test_a_dataset_without_success_is_said_by_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = write_numbers(tmp_path / "ds", [3])
    (dataset / "_SUCCESS").unlink(missing_ok=True)
    assert main(["report", str(dataset), f"--html={tmp_path}/r.html"]) == 0
    assert "is not finished: run its command again" in capsys.readouterr().err
    assert "not finished" in (tmp_path / "r.html").read_text()


def test_records_that_are_no_examples_are_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "r.tfrecord", bytes(range(200, 240)), b"\xff\xfe", b"image\xff")
    out, _ = inspect(capsys, path)
    assert "the bytes of a record that is no tf.train.Example" in out
    assert "40 bytes: c8 c9 ca cb cc cd ce cf d0 d1 d2 d3 d4 d5 d6 d7…" in out
    assert "2 bytes: ff fe\n" in out
    content = json.loads(inspect(capsys, path, "--json")[0])
    assert content["examples"][1]["features"] == {"record": [{"bytes": 2, "begins": "fffe"}]}
    assert main(["report", str(path), f"--html={tmp_path}/r.html"]) == 0


def test_no_examples_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = write_numbers(tmp_path / "ds", [3, 4])
    other = write(tmp_path / "train.tfrecord", example(id=int64s(1)))
    for path in (dataset, other):
        out, _ = inspect(capsys, path, "--examples=0")
        assert "id " in out
        assert "train:" not in out


def test_missing_files_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = write_numbers(tmp_path / "ds", [3, 4])
    shard = shard_of(dataset)
    index = next(dataset.glob("_meta/index/**/*00001*"))
    content = index.read_bytes()
    index.unlink()
    out, _ = inspect(capsys, dataset, "--record=1", status=1)
    assert f"{index}, the index of a shard, is missing; see what else is broken" in out
    _, error = inspect(capsys, dataset, "--record=5", status=1)
    assert error.count("\n") == 1
    assert f"{index} is missing" in error
    index.write_bytes(content)
    shard.write_bytes(shard.read_bytes()[:-1])
    out, _ = inspect(capsys, dataset, "--record=1", status=1)
    assert f"{shard} must have" in out
    shard.unlink()
    out, _ = inspect(capsys, dataset, "--record=1", status=1)
    assert f"{shard} is missing; see what else is broken with `recordmill verify`" in out
    _, error = inspect(capsys, dataset, status=1)
    assert error.count("\n") == 1
    assert f"{shard} is missing" in error


@pytest.mark.parametrize("name", ["manifest.json", "train-00001", "folder"])
def test_what_may_not_be_read_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    # As root, who runs some tests, may read all files, the system's calls refuse here.
    dataset = write_numbers(tmp_path / "ds", [3, 4])
    really_open, really_scan = os.open, os.scandir

    def refuse(path: Any, *arguments: Any, **options: Any) -> Any:
        if name in str(path):
            raise PermissionError(13, "Permission denied", path)
        return really_open(path, *arguments, **options)

    def refuse_folder(path: Any = ".") -> Any:
        if str(path).endswith("folder"):
            raise PermissionError(13, "Permission denied", str(path))
        return really_scan(path)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "scandir", refuse_folder)
    path = tmp_path / "folder" if name == "folder" else dataset
    path.mkdir(exist_ok=True)
    _, error = inspect(capsys, path, status=2 if name == "folder" else 1)
    assert error.count("\n") == 1
    assert "cannot be read: permission denied" in error
    assert name in error


def test_json_has_no_nan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = floats(float("nan"), float("inf"), float("-inf"), 0.5)
    path = write(tmp_path / "r.tfrecord", example(score=numbers))

    def constant(text: str) -> float:
        raise AssertionError(f"{text} is not JSON")

    content = json.loads(inspect(capsys, path, "--json")[0], parse_constant=constant)
    found = content["examples"][0]["features"]["score"]
    assert found == ["NaN", "Infinity", "-Infinity", 0.5]


def test_the_type_of_features_without_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features = {"ints": int64s(), "nothing": b"", "texts": texts(), "sometimes": b""}
    path = write(
        tmp_path / "r.tfrecord",
        example(**features),
        example(**{**features, "sometimes": floats(1)}),
    )
    lines = inspect(capsys, path)[0].splitlines()
    found = {line.split()[0]: line.split()[1] for line in lines if line.startswith("  ")}
    assert (lines[lines.index("features") + 1].split()[:2]) == ["ints", "int64"]
    out = "\n".join(lines)
    for name, dtype in (("texts", "bytes"), ("nothing", "unknown"), ("sometimes", "float32")):
        assert any(line.split()[:2] == [name, dtype] for line in lines), (name, out, found)


def test_sequence_examples_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = message(1, message(1, b"frame"), message(2, message(1, floats(0.5, 1)) * 3))
    record = message(1, entry("id", int64s(7))) + message(2, steps)
    out, _ = inspect(capsys, write(tmp_path / "s.tfrecord", record))
    assert "SequenceExamples; context: id; steps: frame" in out
    assert "bytes, a SequenceExample" in out
    assert "3 steps: 0.5, 1, 0.5, 1, 0.5, 1" in out
