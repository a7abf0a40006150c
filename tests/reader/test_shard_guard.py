"""Shards that lie, change, vanish or hold another's content, while a reader is open or before."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import google_crc32c
import pytest
import tensorflow as tf

from recordmill.reader import Reader, RecordTable, load
from recordmill.reader.shard_guard import ShardGuard
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import MANIFEST_PATH, Manifest, success_bytes

from .small_datasets import NUMBERS, ids, numbers, write_dataset, write_numbers
from .test_damage import SHARD, offsets

SHARDS = [20, 30, 10]


def masked(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def set_length(path: Path, record: int, length: int) -> None:
    """Gives a record a length with a right checksum, and the manifest that of the shard."""
    data = bytearray((path / SHARD).read_bytes())
    header = struct.pack("<Q", length)
    at = offsets(path)[record]
    data[at : at + 12] = header + struct.pack("<I", masked(header))
    (path / SHARD).write_bytes(data)
    manifest = (path / MANIFEST_PATH).read_bytes()
    old = next(s for s in Manifest.from_bytes(manifest).shards if s.name.path == SHARD).crc32c
    manifest = manifest.replace(b"%d" % old, b"%d" % google_crc32c.value(bytes(data)))
    (path / MANIFEST_PATH).write_bytes(manifest)
    (path / "_SUCCESS").write_bytes(success_bytes(manifest))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_numbers(tmp_path / "ds", SHARDS)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A dataset of the same sizes, with other numbers of as many digits."""
    first = [numbers(70, 20), numbers(90, 30), numbers(120, 7)]
    return write_dataset(tmp_path / "other", {"train": first}, NUMBERS)


def read_with(reader: Reader, action: Callable[[], object]) -> Iterator[int]:
    """Yields the ids of the records; acts after four batches. Ends with an error, or at the end."""
    for step, batch in enumerate(reader):
        yield from batch["id"].numpy().tolist()
        if step == 3:
            action()
        assert step < 1000


# With TensorFlow alone each of these ends the process by a segmentation fault.
@pytest.mark.parametrize("length", [2**62, 2**63 - 1, 2**64 - 1, 2**40])
def test_a_length_beyond_the_file_is_named(path: Path, length: int) -> None:
    set_length(path, 17, length)
    line = f"record 17 at byte {offsets(path)[17]}: its length of {length} bytes is not the one of"
    with pytest.raises(RunError, match=line) as info:
        ids(Reader(path, "train", batch_size=5))
    assert "\n" not in str(info.value)
    with pytest.raises(RunError, match="its length is not the one of the index"):
        RecordTable(path, "train")[37]
    kept = Reader(path, "train", batch_size=4, on_error="skip_record", remainder="keep")
    assert [(bad.record, bad.offset) for bad in kept.skipped] == [(17, offsets(path)[17])]
    assert sorted(ids(kept)) == [i for i in range(60) if i != 37]


def test_a_length_is_compared_where_offsets_are_sparse(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordmill.reader.record_ranges.RecordOffsets.__init__.__kwdefaults__",
                        {"most": 20})  # fmt: skip
    assert sorted(ids(load(path, "train", batch_size=5))) == list(range(60))
    set_length(path, 17, 2**62)
    with pytest.raises(RunError, match="record 17 at byte"):
        ids(Reader(path, "train", batch_size=5))
    table = RecordTable(path, "train")
    assert [table[i]["id"] for i in (0, 36, 40, 59)] == [0, 36, 40, 59]
    with pytest.raises(RunError, match="record 17 cannot be read: its length is not the one"):
        table[37]


def copy_to_ram(source: Path, folder: str) -> str:
    """Copies a dataset to a file system that is not a local disk."""
    for file in source.rglob("*"):
        if file.is_file():
            name = f"{folder}/{file.relative_to(source)}"
            tf.io.gfile.makedirs(name.rpartition("/")[0])
            with tf.io.gfile.GFile(name, "wb") as handle:
                handle.write(file.read_bytes())
    return folder


# As above: a segmentation fault.
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("length", [2**62, 2**64 - 1, 2**40])
def test_a_length_beyond_a_remote_file_is_named(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, sparse: bool
) -> None:
    if sparse:
        monkeypatch.setattr("recordmill.reader.record_ranges.RecordOffsets.__init__.__kwdefaults__",
                            {"most": 20})  # fmt: skip
    whole = copy_to_ram(path, f"ram://whole/{tmp_path.name}-{length}-{sparse}")
    here = ids(load(path, "train", batch_size=7, seed=3))
    assert ids(load(whole, "train", batch_size=7, seed=3)) == here
    set_length(path, 17, length)
    folder = copy_to_ram(path, f"ram://lengths/{tmp_path.name}-{length}-{sparse}")
    line = f"record 17 at byte {offsets(path)[17]}: its length of {length} bytes is not the one of"
    with pytest.raises(RunError, match=line) as info:
        ids(Reader(folder, "train", batch_size=5))
    assert "\n" not in str(info.value)
    kept = Reader(folder, "train", batch_size=4, on_error="skip_record", remainder="keep")
    assert [(bad.record, bad.offset) for bad in kept.skipped] == [(17, offsets(path)[17])]
    assert sorted(ids(kept)) == [i for i in range(60) if i != 37]


@pytest.mark.parametrize("damage", ["length", "data", "cut", "gone"])
def test_damage_of_a_remote_shard_is_named(path: Path, tmp_path: Path, damage: str) -> None:
    folder = copy_to_ram(path, f"ram://damage/{tmp_path.name}-{damage}")
    reader = Reader(folder, "train", batch_size=5)
    data = bytearray((path / SHARD).read_bytes())
    at = offsets(path)[17]
    tf.io.gfile.remove(f"{folder}/{SHARD}")  # writing to it would append
    if damage != "gone":
        data[at + (2 if damage == "length" else 14)] ^= 1
        with tf.io.gfile.GFile(f"{folder}/{SHARD}", "wb") as handle:
            handle.write(bytes(data[: at + 9] if damage == "cut" else data))
    line = {
        "length": f"record 17 at byte {at}: the checksum of the length does not match",
        "data": f"record 17 at byte {at}: the checksum of the data does not match",
        "cut": f"record 17 at byte {at}: the file ends inside a record",
        "gone": f"{SHARD} cannot be read: ",
    }[damage]
    with pytest.raises(RunError, match=line):
        ids(reader)


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_dataset_written_over_an_open_one_gives_no_foreign_records(
    path: Path, other: Path, shuffle: bool
) -> None:
    reader = Reader(path, "train", batch_size=2, epochs=None, shuffle=shuffle, window_records=8)
    seen = []
    with pytest.raises(RunError, match=r"must not change while a reader is open, and it has") as e:
        seen.extend(read_with(reader, lambda: shutil.copytree(other, path, dirs_exist_ok=True)))
    assert "\n" not in str(e.value)
    assert set(seen) <= set(range(60))


def test_the_same_bytes_written_again_are_the_same_dataset(path: Path) -> None:
    reader = Reader(path, "train", batch_size=2, window_records=8)

    def write_again() -> None:  # as one step: the reader reads ahead beside it
        for shard in path.glob("train/*"):
            copy = path / "copy"
            copy.write_bytes(shard.read_bytes())
            copy.replace(shard)

    assert sorted(read_with(reader, write_again)) == list(range(60))


@pytest.mark.timeout(60)
def test_a_shard_that_vanishes_ends_the_epoch(path: Path) -> None:
    reader = Reader(path, "train", batch_size=5, epochs=None)
    with pytest.raises(RunError, match=f"{SHARD} must be there as long as .*No such file") as info:
        list(read_with(reader, (path / SHARD).unlink))
    assert "\n" not in str(info.value)


@pytest.mark.timeout(60)
def test_a_shard_that_vanishes_behind_the_check_ends_the_epoch(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(path, "train", batch_size=5)
    monkeypatch.setattr(ShardGuard, "problem_of", lambda self, shards: "")
    (path / SHARD).unlink()
    with pytest.raises(RunError, match=f"{SHARD} cannot be read: No such file") as info:
        ids(reader)
    assert "\n" not in str(info.value)


@pytest.mark.timeout(60)
def test_a_shard_that_vanishes_before_the_scan_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanish(*arguments: object, **options: object) -> None:
        (path / SHARD).unlink(missing_ok=True)

    monkeypatch.setattr("recordmill.reader.opening.ShardGuard", vanish)
    with pytest.raises(RunError, match=f"{SHARD} cannot be read: No such file"):
        Reader(path, "train", batch_size=5, on_error="skip_record")


def test_a_shard_that_becomes_a_pipe_is_not_read(path: Path) -> None:
    reader = Reader(path, "train", batch_size=5)
    (path / SHARD).unlink()
    os.mkfifo(path / SHARD)
    with pytest.raises(RunError, match="must not change while a reader is open"):
        ids(reader)
    with pytest.raises(UsageError, match=f"must be a regular file, and .*{SHARD} is none"):
        load(path, "train", batch_size=5)


def test_a_shard_cut_before_it_is_opened_is_refused(path: Path) -> None:
    size = (path / SHARD).stat().st_size
    os.truncate(path / SHARD, size - 5)
    for open_it in (lambda: load(path, "train", batch_size=5), lambda: RecordTable(path, "train")):
        with pytest.raises(
            UsageError, match=f"{SHARD} must have {size} bytes by the manifest, and has {size - 5}"
        ):
            open_it()


def test_a_shard_copied_over_another_of_its_size_is_refused(tmp_path: Path) -> None:
    shards = [numbers(10, 5), numbers(20, 5), numbers(10, 5)]
    path = write_dataset(tmp_path / "ds", {"train": shards}, NUMBERS)
    first, second, _ = sorted(path.glob("train/*"))
    assert first.stat().st_size == second.stat().st_size
    assert len(ids(load(path, "train", batch_size=5))) == 15  # two alike are no defect
    second.write_bytes(first.read_bytes())
    with pytest.raises(UsageError, match=f"{second.name} must have the content that the manifest"):
        load(path, "train", batch_size=5)
    with pytest.raises(UsageError, match="has that of another shard of its size"):
        RecordTable(path, "train")


def test_a_table_of_a_shard_cut_later_gives_one_line(path: Path) -> None:
    table = RecordTable(path, "train")
    assert table[20]["id"] == 20
    os.truncate(path / SHARD, 1000)  # with a memory map the process dies by SIGBUS
    with pytest.raises(RunError, match=f"{SHARD}: record 29 cannot be read: the file ends") as info:
        table[49]
    assert "\n" not in str(info.value)
    os.truncate(path / "train/train-00002-of-00003.tfrecords", 0)
    with pytest.raises(RunError, match="must not change while a reader is open"):
        table[55]


def test_a_table_keeps_to_its_dataset(path: Path, other: Path) -> None:
    table = RecordTable(path, "train")
    assert table[0]["id"] == 0
    for file in path.rglob("*"):  # as a new dataset is written: files are replaced, not changed
        if file.is_file():
            file.unlink()
    shutil.copytree(other, path, dirs_exist_ok=True)
    assert table[19]["id"] == 19
    with pytest.raises(RunError, match="must not change while a reader is open"):
        table[20]


def test_a_damaged_index_is_no_offset(path: Path) -> None:
    index = path / "_meta/index/train/train-00001-of-00003.idx"
    index.write_bytes(index.read_bytes().replace(b"70 70\n", b"x0 70\n", 1))
    for open_it in (lambda: load(path, "train", batch_size=5), lambda: RecordTable(path, "train")):
        with pytest.raises(UsageError, match=r"00001-of-00003.idx must have the checksum of the"):
            open_it()


def test_a_remote_dataset_is_looked_at_now_and_then(
    path: Path, other: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = f"ram://guarded/{tmp_path.name}"

    def put(source: Path) -> None:
        for file in source.rglob("*"):
            if file.is_file():
                with tf.io.gfile.GFile(f"{folder}/{file.relative_to(source)}", "wb") as handle:
                    handle.write(file.read_bytes())

    tf.io.gfile.makedirs(f"{folder}/_meta/index/train")
    tf.io.gfile.makedirs(f"{folder}/train")
    put(path)
    monkeypatch.setattr("recordmill.reader.shard_guard._REMOTE_SECONDS", 0.0)
    assert sorted(ids(load(folder, "train", batch_size=5))) == list(range(60))
    reader = Reader(folder, "train", batch_size=2, epochs=None, window_records=8)
    with pytest.raises(RunError, match=r"manifest.json must not change while a reader is open"):
        list(read_with(reader, lambda: put(other)))
