"""`recordmill diff`: equal datasets, other records, other configurations."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main

from ...reader.small_datasets import NUMBERS, numbers, write_dataset, write_numbers
from ..conftest import Written


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
    assert "records in both" in capsys.readouterr().out


def test_other_order_and_shards_are_no_other_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_numbers(tmp_path / "a", [3, 4])
    other = write_dataset(tmp_path / "b", {"train": [numbers(3, 4), numbers(0, 3)]}, NUMBERS)
    assert diff(capsys, one, other)[0] == 0
    third = write_numbers(tmp_path / "c", [2, 2, 3], "GZIP")
    status, found = diff(capsys, one, third)
    assert status == 1
    assert found["values"] == [{"path": "shards.train", "a": "2", "b": "3"}]
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
        "in_both": 23,
    }
    assert main(["diff", str(one), str(other), "--examples=1"]) == 1
    shown = capsys.readouterr().out
    assert "2 records only in a, such as train:1" in shown
    assert re.search(r'    text +"record 1[01]"', shown)
    by_key = diff(capsys, one, other, "--key=text", "--examples=10")[1]["records"]
    assert (by_key["only_in_a"]["count"], by_key["in_both"]) == (2, 23)
    assert diff(capsys, one, other, "--no-records") == (0, {"values": [], "records": None})


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
