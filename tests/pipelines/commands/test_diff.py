"""`recordmill diff`: equal datasets, other records, other configurations."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.schema import Feature, Schema

from ...reader.small_datasets import NUMBERS, numbers, write_dataset, write_numbers
from ..conftest import Written
from .test_inspect_others import framed


def diff(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, Any]:
    status = main(["diff", *map(str, arguments), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_no_difference(
    bert_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(bert_dataset, tmp_path / "copy")
    status, found = diff(capsys, bert_dataset, other)
    assert (status, found["values"]) == (0, [])
    assert found["records"]["only_in_a"] == {"count": 0, "examples": []}
    manifest = json.loads((bert_dataset / "_meta/manifest.json").read_bytes())
    assert found["records"]["in_both"] == manifest["counts"]["examples"]
    assert main(["diff", str(bert_dataset), str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "records in both" in lines[0]
    shards = len(manifest["shards"])
    assert lines[1].startswith(f"of them, the records of {shards} shards were not read")
    assert lines[2] == "no difference by the checksums in the manifests"
    assert found["records"]["shards_not_read"] == shards
    assert main(["diff", str(bert_dataset), str(other), "--read_all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ("records in both" in lines[0], lines[1:]) == (True, ["no difference"])


def test_other_order_and_shards_are_no_other_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_numbers(tmp_path / "a", [3, 4])
    other = write_dataset(tmp_path / "b", {"train": [numbers(3, 4), numbers(0, 3)]}, NUMBERS)
    assert diff(capsys, one, other)[0] == 0
    third = write_numbers(tmp_path / "c", [2, 2, 3], "GZIP")
    status, found = diff(capsys, one, third)
    assert status == 1
    assert found["values"] == [{"path": "shards.train", "a": 2, "b": 3}]
    assert found["records"]["in_both"] == 7


def test_records_that_only_one_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write_numbers(tmp_path / "a", [10, 10], test=[5])
    splits = {"train": [numbers(0, 10), numbers(12, 10)], "test": [numbers(20, 5)]}
    other = write_dataset(tmp_path / "b", splits, NUMBERS)
    status, found = diff(capsys, one, other, "--examples=10")
    assert status == 1
    found["records"]["only_in_a"]["examples"].sort()
    # 20 and 21 are once in the first, as its test, and twice in the second.
    assert found["records"] == {
        "only_in_a": {"count": 2, "examples": ["train:10", "train:11"]},
        "only_in_b": {"count": 2, "examples": found["records"]["only_in_b"]["examples"]},
        "changed": {"count": 0, "examples": []},
        "in_both": 23,
        "shards_not_read": 2,
    }
    assert main(["diff", str(one), str(other), "--examples=1"]) == 1
    shown = capsys.readouterr().out
    assert "2 records only in a, such as train:1" in shown
    assert re.search(r'    text +"record 1[01]"', shown)
    by_key = diff(capsys, one, other, "--key=text", "--examples=10")[1]["records"]
    assert (by_key["only_in_a"]["count"], by_key["in_both"]) == (2, 23)
    nothing = {"values": [], "records": None, "unfinished": []}
    assert diff(capsys, one, other, "--no-records") == (0, nothing)


def test_another_configuration(
    written: Callable[[str, str], Written], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = written("images", "small")
    assert job.case.run(job.source, tmp_path / "ds", *job.case.fewer) == 0
    capsys.readouterr()
    status, found = diff(capsys, job.dataset, tmp_path / "ds", "--key=image/filename")
    assert status == 1
    assert any(value["path"].startswith("config.") for value in found["values"])
    assert any(value["path"].startswith("statistics.") for value in found["values"])


def test_wrong_usage(bert_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = str(bert_dataset)
    assert main(["diff", same, same + "/nothing"]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert main(["diff", same, same, "--key=nothing"]) == 2
    assert "--key must be a feature of every record, and 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut", "shard", "index", "success", "flip"])
def test_damage_that_manifests_do_not_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    one = write_numbers(tmp_path / "a", [3, 4])
    other = Path(shutil.copytree(one, tmp_path / "b"))
    shard, index = sorted(other.glob("train/*"))[1], next(other.glob("_meta/index/**/*00001*"))
    data = shard.read_bytes()
    if damage == "cut":
        shard.write_bytes(data[:-7])
    elif damage == "flip":
        shard.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    else:
        {"shard": shard, "index": index, "success": other / "_SUCCESS"}[damage].unlink()
    if damage == "flip":  # nothing is read, and that is said
        assert main(["diff", str(one), str(other)]) == 0
        assert "2 shards were not read" in capsys.readouterr().out
    flags = ["--read_all"] if damage == "flip" else ["--no-records"]
    assert main(["diff", str(one), str(other), *flags]) == 1
    printed = capsys.readouterr()
    if damage == "success":
        assert f"{other} is not finished: run its command again\n" in printed.out
        assert diff(capsys, one, other)[1]["unfinished"] == [str(other)]
        return
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    expected = {
        "cut": f"{shard} must have {len(data)} bytes, as the manifest says, and has",
        "shard": f"{shard} is missing",
        "index": f"{index}, the index of a shard, is missing",
        "flip": f"{shard}: record 0 cannot be read: the checksum of the data does not match",
    }
    assert expected[damage] in printed.err


def labelled(folder: Path, classes: tuple[str, ...], labels: list[int]) -> Path:
    """A dataset of records 0, 1, …, in two shards, with these labels."""
    schema = Schema(
        (
            Feature("id", "int64", (), ""),
            Feature("label", "int64", (), "", False, "classes", (), classes),
        )
    )
    half = len(labels) // 2
    shards: list[dict[str, Any]] = [
        {"id": np.arange(begin, end), "label": np.array(labels[begin:end])}
        for begin, end in ((0, half), (half, len(labels)))
    ]
    return write_dataset(folder, {"train": shards}, schema)


def test_records_of_a_key_that_have_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = labelled(tmp_path / "a", ("cat", "dog"), [0] * 30)
    other = labelled(tmp_path / "b", ("cat", "dog"), [0] * 10 + [1] * 20 + [0] * 2)
    status, found = diff(capsys, one, other, "--key=id", "--examples=40")
    assert status == 1
    records = found["records"]
    assert (records["in_both"], records["changed"]["count"]) == (10, 20)
    assert records["only_in_a"]["count"] == 0
    assert records["only_in_b"]["count"] == 2
    assert sorted(records["only_in_b"]["examples"]) == ["train:30", "train:31"]
    examples = records["changed"]["examples"]
    assert sorted(int(each["a"].partition(":")[2]) for each in examples) == list(range(10, 30))
    assert all(each["a"] == each["b"] and each["features"] == ["label"] for each in examples)
    assert main(["diff", str(one), str(other), "--key=id", "--examples=2"]) == 1
    out = capsys.readouterr().out
    assert "\n20 records changed: the same key, another content\n" in out
    assert out.count(": label\n") == 2
    assert out.count("    label in a  0 (cat)\n    label in b  1 (dog)\n") == 2
    same = labelled(tmp_path / "c", ("cat", "dog"), [0] * 30)
    assert diff(capsys, one, same, "--key=id")[0] == 0


def test_other_numbers_of_classes_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = labelled(tmp_path / "a", ("cat", "dog"), [0, 1, 0, 1])
    other = labelled(tmp_path / "b", ("ant", "cat", "dog"), [1, 2, 1, 2])
    status, found = diff(capsys, one, other)
    assert status == 1
    assert found["values"] == [
        {"path": "classes.label.ant", "b": 0},
        {"path": "classes.label.cat", "a": 0, "b": 1},
        {"path": "classes.label.dog", "a": 1, "b": 2},
    ]
    assert main(["diff", str(one), str(other)]) == 1
    out = capsys.readouterr().out
    assert re.search(r"classes\.label\.cat +0  ->  1\n", out)
    assert out.endswith("\nthe records differ; classes differ\n")


def test_sections_are_short_and_the_end_says_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_numbers(tmp_path / "a", [3, 4])
    other = Path(shutil.copytree(one, tmp_path / "b"))
    for dataset, count in ((one, 1), (other, 200)):
        path = dataset / "_meta/manifest.json"
        content = json.loads(path.read_bytes())
        content["config"]["input"] = [dataset.name]
        content["sources"] = {"names": {f"{i}.txt": count for i in range(count)}}
        path.write_text(json.dumps(content))
    assert main(["diff", str(one), str(other)]) == 1
    out = capsys.readouterr().out
    assert out.count("sources.") == 20
    assert "\n… and 180 more of sources; --json names all\n" in out
    equal = "the records are equal by the checksums in the manifests; "
    assert out.endswith(f"\n{equal}configuration and inputs differ\n")
    assert len(diff(capsys, one, other)[1]["values"]) == 201


def test_samples_are_words_and_lengths_are_a_few_numbers(
    bert_dataset: Path, vocab_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(bert_dataset, tmp_path / "b"))
    path = other / "_meta/statistics.json"
    content = json.loads(path.read_bytes())
    content["train"]["tokens_per_example"] = [0, 2, 1, 1]
    path.write_text(json.dumps(content))
    status, found = diff(capsys, bert_dataset, other)
    values = {value["path"].rpartition("per_example.")[2]: value["b"] for value in found["values"]}
    assert (status, values) == (1, {"shortest": 1, "mean": 1.75, "median": 2, "longest": 3})
    numbers = write_numbers(tmp_path / "numbers", [3])
    flags = ["--examples=1", "--no-records"]
    assert main(["diff", str(bert_dataset), str(other), f"--vocab_file={vocab_file}", *flags]) == 1
    capsys.readouterr()
    assert (
        main(["diff", str(bert_dataset), str(numbers), f"--vocab_file={vocab_file}", flags[0]]) == 1
    )
    assert "[CLS]" in capsys.readouterr().out


def test_records_of_others_that_are_no_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (tmp_path / f"{name}.tfrecord" for name in "ab")
    one.write_bytes(framed(b"\xff\x00", b"\xff\x01"))
    other.write_bytes(framed(b"\xff\x00", b"\xff\x02"))
    assert main(["diff", str(one), str(other)]) == 1
    out = capsys.readouterr().out
    assert "2 bytes: ff 01" in out
    assert out.endswith("1 records in both\nthe records differ\n")
