"""Shards with flipped bits and missing ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.reader import Reader, load
from recordmill.records.errors import RunError, UsageError

from .small_datasets import ids, write_numbers

SHARD = "train/train-00001-of-00003.tfrecords"


def offsets(path: Path) -> list[int]:
    index = path / "_meta/index/train/train-00001-of-00003.idx"
    return [int(line.split()[0]) for line in index.read_text().splitlines()]


def flip(path: Path, record: int, byte: int) -> None:
    """Flips a bit of a record; bytes 0 to 7 are its length."""
    data = bytearray((path / SHARD).read_bytes())
    data[offsets(path)[record] + byte] ^= 1
    (path / SHARD).write_bytes(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_numbers(tmp_path / "ds", [20, 30, 10])


@pytest.mark.parametrize(("byte", "part"), [(3, "length"), (40, "data")])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_broken_record_is_named(path: Path, byte: int, part: str, shuffle: bool) -> None:
    flip(path, 17, byte)
    with pytest.raises(tf.errors.OpError) as info:
        ids(load(path, "train", batch_size=5, shuffle=shuffle, window_records=20))
    message = f"{SHARD}: record 17 at byte {offsets(path)[17]}: "
    assert message in info.value.message
    assert "every record must be readable, and one is not" in info.value.message
    assert f"the checksum of the {part} does not match" in info.value.message
    assert "on_error='skip_record'" in info.value.message


def test_a_reader_says_it_in_one_line(path: Path) -> None:
    flip(path, 17, 40)
    reader = Reader(path, "train", batch_size=5)
    for batches in (reader, reader.as_numpy()):
        with pytest.raises(RunError, match=f"one is not: .*{SHARD}: record 17 at byte") as info:
            ids(batches)
        assert "\n" not in str(info.value)


def test_a_cut_shard_is_named(path: Path) -> None:
    os.truncate(path / SHARD, offsets(path)[25] + 3)
    with pytest.raises(UsageError, match=f"{SHARD} must have .* bytes by the manifest, and has"):
        load(path, "train", batch_size=5)
    reader = Reader(path, "train", batch_size=5, on_error="skip_record", remainder="keep")
    assert [(bad.record, bad.offset) for bad in reader.skipped] == [
        (record, offsets(path)[record]) for record in range(25, 30)
    ]
    assert sorted(ids(reader)) == [i for i in range(60) if i not in range(45, 50)]


def test_broken_records_are_left_out(path: Path) -> None:
    flip(path, 17, 40)
    flip(path, 18, 3)
    flip(path, 29, 40)
    reader = Reader(path, "train", batch_size=4, on_error="skip_record", remainder="keep")
    assert [(Path(bad.path).name, bad.record) for bad in reader.skipped] == [
        ("train-00001-of-00003.tfrecords", record) for record in (17, 18, 29)
    ]
    assert [bad.offset for bad in reader.skipped] == [offsets(path)[i] for i in (17, 18, 29)]
    assert reader.records == 57
    assert sorted(ids(reader)) == [i for i in range(60) if i not in (37, 38, 49)]
    workers = [
        ids(
            load(path, "train", batch_size=3, num_workers=3, worker_index=w, on_error="skip_record")
        )
        for w in range(3)
    ]
    assert [len(rows) for rows in workers] == [18, 18, 18]


def test_broken_shards_are_left_out(path: Path) -> None:
    flip(path, 17, 40)
    reader = Reader(path, "train", batch_size=5, on_error="skip_shard")
    assert len(reader.skipped) == 1
    assert sorted(ids(reader)) == [*range(20), *range(50, 60)]
    assert Reader(path, "train[:20]", batch_size=5, on_error="skip_shard").skipped == []


def test_the_end_of_a_cut_shard_is_left_out(path: Path) -> None:
    (path / SHARD).write_bytes((path / SHARD).read_bytes()[: offsets(path)[25]])
    reader = Reader(path, "train", batch_size=5, on_error="skip_record")
    assert [bad.record for bad in reader.skipped] == [25, 26, 27, 28, 29]
    assert reader.skipped[0].problem == "the file ends before it"
    assert sorted(ids(reader)) == [*range(45), *range(50, 60)]


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_shards(tmp_path: Path, compression: str) -> None:
    path = write_numbers(tmp_path / "packed", [20, 30, 10], compression)
    data = (path / SHARD).read_bytes()
    (path / SHARD).write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match=f"{SHARD} must have .* bytes by the manifest, and has"):
        load(path, "train", batch_size=5)
    reader = Reader(path, "train", batch_size=5, on_error="skip_record", remainder="keep")
    lost = {20 + bad.record for bad in reader.skipped}
    assert lost
    assert sorted(ids(reader)) == [i for i in range(60) if i not in lost]


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "one", [5])
    (path / "train/train-00000-of-00001.tfrecords").write_bytes(b"")
    with pytest.raises(UsageError, match=r"at least one record must be readable, and 5 in 1 sha"):
        load(path, "train", batch_size=1, on_error="skip_record")
