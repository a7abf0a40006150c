"""Manifests that are wrong in themselves, with a `_SUCCESS` that vouches for them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from recordmill.pipelines.commands.verify import verify
from recordmill.reader import load
from recordmill.records.errors import UsageError
from recordmill.records.manifest import MANIFEST_PATH, success_bytes

from ...reader.small_datasets import write_numbers

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_numbers(tmp_path / "ds", [5, 7, 4], validation=[3])
    edit(path, lambda m: m.update(counts={"examples": 19, "rejected": {}}))
    assert verify(str(path)).lines() == []
    return path


def write(path: Path, manifest: bytes) -> None:
    (path / MANIFEST_PATH).write_bytes(manifest)
    (path / "_SUCCESS").write_bytes(success_bytes(manifest))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((path / MANIFEST_PATH).read_bytes())
    change(content)
    write(path, json.dumps(content).encode())


def shard(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["shards"][1].update(changes)


def with_index(content: dict[str, Any]) -> None:
    del content["files"]["_meta/index/train/train-00001-of-00003.idx"]


def listed_as_file(content: dict[str, Any]) -> None:
    content["files"]["train/train-00001-of-00003.tfrecords"] = content["shards"][1]["crc32c"]


# What a reader refuses at once, with a change and a part of the line that names it.
REFUSED: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda m: m.update(format_version=3), "written by a later recordmill .format 3"),
    (lambda m: m.update(format_version=0), "format_version must be 1, and is 0"),
    (lambda m: m.update(format_version="1"), "format_version must be 1, and is '1'"),
    (lambda m: m.update(format_version=[]), r"format_version must be 1, and is \[\]"),
    (lambda m: m.pop("shards"), "shards is missing"),
    (lambda m: m.pop("features"), "features is missing"),
    (lambda m: m.update(shards={}), "shards must be a list, and is an object"),
    (lambda m: m.update(shards=[7]), r"shards\[0\] must be an object, and is an integer"),
    (lambda m: m.update(files=[]), "files must be an object, and is a list"),
    (lambda m: m.update(counts=7), "counts must be an object, and is an integer"),
    (lambda m: m.update(name=None), "name must be text, and is null"),
    (lambda m: m.update(compression="BROTLI"), "compression expected `str` matching regex"),
    (lambda m: m.update(shard_template="{SPLIT}"), "shard_template must hold"),
    (lambda m: m.update(shard_template="../{SPLIT}-{SHARD_X_OF_Y}"), "not inside of the dataset"),
    (lambda m: m["files"].update({"../x": 1}), "lists '../x', which is not inside of the dataset"),
    (lambda m: m["files"].update({"/x": 1}), "lists '/x', which is not inside of the dataset"),
    (lambda m: m["files"].update({"x": -1}), r"files\[...\] expected `int` >= 0"),
    (shard(records=-1), r"shards\[1\].records expected `int` >= 0"),
    (shard(records="7"), r"shards\[1\].records must be an integer, and is text"),
    (shard(records=7.5), r"shards\[1\].records must be an integer, and is a number"),
    (shard(records=2**80), r"shards\[1\].records "),
    (shard(file_bytes=None), r"shards\[1\].file_bytes must be an integer, and is null"),
    (shard(record_bytes=-5), r"shards\[1\].record_bytes expected `int` >= 0"),
    (shard(crc32c=2**32), r"shards\[1\].crc32c expected `int` <= 4294967295"),
    (shard(index=3), r"shards\[1\]: shard index must be in \[0, 3\), got 3"),
    (shard(split="../x"), r"shards\[1\]: a split's name must be letters"),
    (shard(split=5), r"shards\[1\].split must be text, and is an integer"),
    (shard(index=0), "train-00000-of-00003 must be listed once, and is listed 2 times"),
    (shard(count=4), "split train must have one number of shards, and its shards are of 3 and of"),
    (shard(split="test"), "split test must list shards 0 to 2 of 3 once each, and lacks 0, 2"),
    (lambda m: m["shards"].pop(2), "train must list shards 0 to 2 of 3 once each, and lacks 2"),
    (lambda m: m["shards"].append(m["shards"][0]), "must be listed once, and is listed 2 times"),
    (shard(records=2**40), "must have 16 bytes or more for each of its 1099511627776 records"),
    (shard(file_bytes=9), "its file must have the .* bytes of its records, and has 9"),
    (lambda m: m["features"][0].update(dtype="int8"), r"features: \[0\].dtype invalid enum value"),
    (lambda m: m["features"][0].update(shape=[-3]), r"features: \[0\] id: dimensions must be 0"),
    (lambda m: m["features"][0].update(shape=[2**40]), "at most 2147483648 values"),
    (lambda m: m["features"][0].update(shape="3"), r"features: \[0\].shape must be a list"),
    (lambda m: m["features"][0].pop("name"), r"features: \[0\].name is missing"),
    (lambda m: m["features"].append(m["features"][0]), "feature names must differ"),
]
# What decides nothing for a reader, and is wrong all the same.
WRONG: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda m: m["counts"].update(examples=20), "counts.examples must be 19, .* and is 20"),
    (lambda m: m["counts"].update(examples="19"), "counts.examples must be 19, .* and is '19'"),
    (lambda m: m["counts"].update(rejected={"x": -1}), "counts.rejected.x must be 0 or more, and"),
    (lambda m: m["counts"].update(rejected=[]), "counts.rejected must be 0 or more, and is"),
    (lambda m: m["counts"].update(documents="7"), "counts.documents must be 0 or more, and is '7'"),
    (lambda m: m["counts"].update(rejected={"x": {"y": 1}}), "counts.rejected.x must be 0 or more"),
    (lambda m: m["counts"].update(dropped=7), "counts.dropped must be counts by reason, and is 7"),
    (lambda m: m.update(featurs=[]), "has 'featurs', which this release does not know"),
    (shard(recrds=7), r"shards\[1\] has 'recrds', which this release does not know"),
    (lambda m: m["features"][0].update(knd="x"), r"features\[0\] has 'knd', which this release"),
    (with_index, r"files must list _meta/index/train/train-00001-of-00003.idx, the index"),
    (listed_as_file, "train-00001-of-00003.tfrecords must be listed once, and is among"),
]


@pytest.mark.parametrize(("change", "line"), REFUSED)
def test_a_wrong_manifest_is_named_and_not_read(
    path: Path, change: Callable[[dict[str, Any]], object], line: str
) -> None:
    edit(path, change)
    found = [text for text in verify(str(path)).lines() if text.startswith(MANIFEST_PATH)]
    assert any(re.search(line, text) for text in found), found
    assert not any("\n" in text for text in found)
    with pytest.raises(UsageError, match=f"manifest.json cannot be used: .*({line})"):
        load(path, "train", batch_size=2)


@pytest.mark.parametrize(("change", "line"), WRONG)
def test_a_wrong_count_is_named(
    path: Path, change: Callable[[dict[str, Any]], object], line: str
) -> None:
    edit(path, change)
    found = [text for text in verify(str(path)).lines() if text.startswith(MANIFEST_PATH)]
    assert any(re.search(line, text) for text in found), found


@pytest.mark.parametrize(
    "manifest",
    [b"", b"{", b"null", b"7", b"[]", b"\xff\xfe", DEEP, b'{"format_version": ' + DEEP + b"}"],
)
def test_what_is_no_manifest_is_named(path: Path, manifest: bytes) -> None:
    write(path, manifest)
    assert len(verify(str(path)).lines()) == 1
    with pytest.raises(UsageError, match=r"manifest.json cannot be used") as info:
        load(path, "train", batch_size=2)
    assert "\n" not in str(info.value)
    assert len(str(info.value)) < 1000


@pytest.mark.parametrize("content", [b"null", b"7", b"[]", b'"x"', DEEP, b"\xff", b"{"])
@pytest.mark.parametrize("name", ["features.json", "dataset_info.json", "_meta/statistics.json"])
def test_other_files_of_wrong_types_are_named(path: Path, name: str, content: bytes) -> None:
    (path / name).write_bytes(content)
    edit(path, lambda m: m["files"].update({name: google_crc32c.value(content)}))
    lines = verify(str(path)).lines()
    assert lines
    assert all(line.startswith(f"{name}: ") and "\n" not in line for line in lines)
