"""Everything that a reader reads, made wrong: one line or the records come out."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader import Reader, RecordTable, normalise_images
from recordmill.reader.dataset import open_dataset
from recordmill.reader.record_ranges import parse_index
from recordmill.reader.sampling.balance import class_distribution
from recordmill.reader.sampling.bucketing import stored_lengths
from recordmill.reader.token_rows import read_vocabulary
from recordmill.records.errors import RunError, UsageError
from recordmill.records.example_values import parse_record
from recordmill.records.manifest import MANIFEST_PATH, STATISTICS_PATH, success_bytes

from ..mutations import wrong_bytes, wrong_json
from ..odd_files import KINDS, put
from .small_datasets import NUMBERS, write_numbers

STATISTICS = {
    "train": {
        "classes": {"a": 3, "b": 4},
        "tokens_per_example": [0, 1, 2],
        "channel_mean": [0.5],
        "channel_std": [0.1],
        "examples": 7,
    }
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("wrong") / "ds", [5, 7], validation=[3])


@pytest.fixture(scope="module")
def manifest(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((path / MANIFEST_PATH).read_bytes())
    return content


def one_line(error: Exception) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 1500


SHARD = "train/train-00001-of-00002.tfrecords"
INDEX = "_meta/index/train/train-00001-of-00002.idx"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["_SUCCESS", MANIFEST_PATH, INDEX, SHARD])
def test_what_is_no_regular_file_is_not_read(
    path: Path, tmp_path: Path, name: str, kind: str
) -> None:
    dataset = Path(shutil.copytree(path, tmp_path / "ds"))
    put(dataset / name, kind)
    for on_error in ("fail", "skip_record"):
        with pytest.raises((UsageError, RunError), match=re.escape(str(dataset))) as info:
            Reader(dataset, "train", batch_size=2, on_error=on_error)
        one_line(info.value)
        assert name in str(info.value)


@pytest.mark.parametrize("kind", ["fifo", "folder", "link to itself"])
def test_other_files_of_a_dataset_are_regular_too(path: Path, tmp_path: Path, kind: str) -> None:
    dataset = Path(shutil.copytree(path, tmp_path / "ds"))
    put(dataset / STATISTICS_PATH, kind)
    reads: list[Callable[[], object]] = [
        lambda: stored_lengths(dataset, "train"),
        lambda: class_distribution(dataset, "train", feature="id"),
        lambda: normalise_images(dataset=dataset),
        lambda: read_vocabulary(dataset / STATISTICS_PATH),
    ]
    for read in reads:
        with pytest.raises(UsageError, match=f"{STATISTICS_PATH} cannot be read") as info:
            read()
        one_line(info.value)
    put(dataset / SHARD, kind)
    with pytest.raises(RunError, match=f"{SHARD} could not be copied to the cache"):
        Reader(dataset, "train", batch_size=2, cache_dir=tmp_path / "cache")


@settings(max_examples=150)
@given(data=st.data())
def test_any_wrong_manifest(path: Path, manifest: dict[str, Any], data: st.DataObject) -> None:
    content = data.draw(wrong_json(manifest))
    before = (path / MANIFEST_PATH).read_bytes()
    try:
        (path / MANIFEST_PATH).write_bytes(content)
        (path / "_SUCCESS").write_bytes(success_bytes(content))
        try:
            for split in open_dataset(path).manifest.split_shards():
                table = RecordTable(path, split)
                assert len(list(table)) == len(table)
        except (UsageError, RunError) as error:
            one_line(error)
    finally:
        (path / MANIFEST_PATH).write_bytes(before)
        (path / "_SUCCESS").write_bytes(success_bytes(before))


@pytest.fixture(scope="module")
def reader(path: Path) -> Reader:
    return Reader(path, "train", batch_size=2)


@settings(max_examples=150)
@given(data=st.data())
def test_any_wrong_state(reader: Reader, data: st.DataObject) -> None:
    whole = json.loads(reader.state())
    state = data.draw(wrong_json(whole)).decode("utf-8", "surrogateescape")
    try:
        reader.restore(state)
        assert type(json.loads(reader.state())["step"]) is int
    except UsageError as error:
        one_line(error)
    reader.restore(json.dumps(whole))


@pytest.mark.parametrize("state", [None, 7, b"{}", {}, "", "{", "[]", "null", '{"step": "x"}'])
def test_what_is_no_state(reader: Reader, state: Any) -> None:
    with pytest.raises(UsageError, match=r"a reader's state must be what state\(\) returned, and"):
        reader.restore(state)


@settings(max_examples=100)
@given(content=wrong_bytes(b"0 70\n70 70\n140 70\n"))
def test_any_wrong_index(content: bytes) -> None:
    try:
        offsets = parse_index(content, 3, 1, "x", record_bytes=210)
        assert offsets[0] == 0
        assert (np.diff([*offsets, 210]) >= 16).all()
    except UsageError as error:
        one_line(error)


@settings(max_examples=100)
@given(data=st.data())
def test_any_wrong_shard(path: Path, data: st.DataObject) -> None:
    shard = path / "train/train-00001-of-00002.tfrecords"
    before = shard.read_bytes()
    table = RecordTable(path, "train")
    try:
        shard.write_bytes(data.draw(wrong_bytes(before)))
        table._guard._stamps = [None] * 2  # type: ignore[list-item]  # read it all the same
        for i in range(12):
            try:
                assert table[i]["id"] == i
            except RunError as error:
                one_line(error)
    finally:
        shard.write_bytes(before)


@settings(max_examples=100)
@given(data=st.data())
def test_any_wrong_record(path: Path, data: st.DataObject) -> None:
    table = RecordTable(path, "train")
    try:
        parse_record(NUMBERS, data.draw(wrong_bytes(table._read(0, 3))))
    except ValueError as error:
        one_line(error)


@settings(max_examples=100)
@given(content=wrong_json(STATISTICS))
def test_any_wrong_statistics(path: Path, content: bytes) -> None:
    dataset = open_dataset(path)
    dataset.manifest.files[STATISTICS_PATH] = google_crc32c.value(content)
    manifest = dataset.manifest.to_bytes()
    before = (path / MANIFEST_PATH).read_bytes()
    try:
        (path / STATISTICS_PATH).write_bytes(content)
        (path / MANIFEST_PATH).write_bytes(manifest)
        (path / "_SUCCESS").write_bytes(success_bytes(manifest))
        for read in (stored_lengths, class_distribution):
            try:
                read(path, "train")
            except UsageError as error:
                one_line(error)
    finally:
        (path / STATISTICS_PATH).unlink()
        (path / MANIFEST_PATH).write_bytes(before)
        (path / "_SUCCESS").write_bytes(success_bytes(before))
