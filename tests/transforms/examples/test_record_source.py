from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.arrays import Bytes
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.examples.record_items import cut_record_items, record_files
from recordmill.transforms.examples.record_source import (
    RecordFileRange,
    compression_of,
    read_records,
    record_starts,
)
from recordmill.transforms.storage.buffers import BlockPool

from .record_files import framed, packed, write_records


def contents(source: RecordFileRange, block_bytes: int = 64) -> tuple[list[bytes], list[Reject]]:
    found, rejects = [], []
    for batch in read_records(source, block_bytes):
        data = batch.data.tobytes()
        ends = zip(batch.begins.tolist(), batch.ends.tolist(), strict=True)
        found += [data[a + 12 : b - 4] for a, b in ends]
        rejects += batch.rejects
    return found, rejects


def some_records(count: int, seed: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(rng.choice([0, 1, 7, 60, 300])) for _ in range(count)]


@settings(max_examples=60)
@given(
    records=st.lists(st.binary(max_size=90), max_size=12),
    block_bytes=st.integers(1, 300),
    compression=st.sampled_from(["", "GZIP", "ZLIB"]),
)
def test_all_records_whatever_the_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[bytes],
    block_bytes: int,
    compression: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "records"
    assert contents(write_records(path, records, compression), block_bytes) == (records, [])


def test_gzip_of_several_members_is_read_whole(tmp_path: Path) -> None:
    first, second = some_records(20), some_records(20, seed=1)
    path = tmp_path / "two"
    path.write_bytes(packed(framed(first), "GZIP") + packed(framed(second), "GZIP"))
    source = RecordFileRange(str(path), "two", "tfrecord", "", path.stat().st_size)
    assert contents(source) == (first + second, [])


def test_a_damaged_record_is_one_reject_and_the_others_are_read(tmp_path: Path) -> None:
    records = [b"a" * 50, b"b" * 60, b"c" * 70]
    source = write_records(tmp_path / "x", records)
    data = bytearray(Path(source.path).read_bytes())
    data[66 + 20] ^= 1
    Path(source.path).write_bytes(data)
    for block_bytes in (1, 64, 4096):
        found, rejects = contents(source, block_bytes)
        assert found == [records[0], records[2]]
        assert [(r.reason, r.position) for r in rejects] == [("broken_record", 66)]


def test_behind_a_damaged_length_nothing_can_be_found(tmp_path: Path) -> None:
    source = write_records(tmp_path / "x", [b"a" * 50, b"b" * 60, b"c" * 70])
    data = bytearray(Path(source.path).read_bytes())
    data[66] ^= 1
    Path(source.path).write_bytes(data)
    found, rejects = contents(source)
    assert found == [b"a" * 50]
    assert [(r.reason, r.position) for r in rejects] == [("broken_file", 66)]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_a_cut_file_gives_what_came_before(tmp_path: Path, compression: str) -> None:
    records = some_records(60)
    path = tmp_path / "x"
    path.write_bytes(packed(framed(records), compression)[:-30])
    found, rejects = contents(RecordFileRange(str(path), "x", "tfrecord", "", path.stat().st_size))
    assert found == records[: len(found)]
    assert len(found) < 60
    assert [reject.reason for reject in rejects] == ["broken_file"]


def test_a_file_of_something_else_is_a_reject(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(b"these are no records at all")
    found, rejects = contents(RecordFileRange(str(path), "notes", "tfrecord", "", 27))
    assert (found, [reject.reason for reject in rejects]) == ([], ["broken_file"])
    with pytest.raises(ValueError, match="no TFRecord"):
        compression_of(b"these are no records"[:12])


@settings(max_examples=60)
@given(
    records=st.lists(st.binary(max_size=400), min_size=1, max_size=20),
    target=st.integers(1, 2000),
    block_bytes=st.integers(12, 500),
)
def test_ranges_of_a_file_hold_each_record_once(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], target: int, block_bytes: int
) -> None:
    # A record may hold a TFRecord file, which must not look like the records around it.
    records[0] = framed(records)
    source = write_records(tmp_path_factory.getbasetemp() / "cut", records)
    starts = record_starts(source, target, block_bytes)
    ranges = [
        replace(source, start=a, end=b)
        for a, b in zip(starts, [*starts[1:], source.size], strict=True)
    ]
    found = [contents(each, 100) for each in ranges]
    assert [record for some, _ in found for record in some] == records
    assert not any(rejects for _, rejects in found)
    assert all(b - a >= target for a, b in pairwise(starts))


def test_work_items_cut_large_plain_files_and_gather_small_ones(tmp_path: Path) -> None:
    large = write_records(tmp_path / "a", [b"x" * 84] * 100)
    packed_file = write_records(tmp_path / "b", [b"x" * 84] * 100, "GZIP")
    small = [write_records(tmp_path / f"c{i}", [b"y"]) for i in range(3)]
    sources = [replace(large, split="train"), packed_file, *small]
    ranges = list(record_files(sources, sum(source.size for source in sources)))
    assert [each.compression for each in ranges] == ["", "gz", "", "", ""]
    assert [each.ordinal for each in ranges] == [0, 1, 2, 3, 4]
    assert (ranges[0].begin_share, ranges[-1].end_share) == (0, 1)
    items = list(cut_record_items(ranges, 2500))
    parts = [each for item in items for each in item]
    assert [(each.start, each.end) for each in parts[:4]] == [
        (0, 2500), (2500, 5000), (5000, 7500), (7500, 10_000)
    ]  # fmt: skip
    assert [each.split for each in parts] == ["train"] * 4 + [""] * 4
    assert [each.name for each in items[-1]][-3:] == ["c0", "c1", "c2"]


class _Measured(BlockPool):
    """Notes what is asked of it."""

    def __init__(self, block_bytes: int) -> None:
        super().__init__(block_bytes)
        self.sizes: list[int] = []

    def take(self, size: int) -> Bytes:
        self.sizes.append(size)
        return super().take(size)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_length_that_lies_takes_no_memory(tmp_path: Path, compression: str) -> None:
    data = bytearray(framed([b"x" * 5000, b"y"]))
    length = (1 << 61).to_bytes(8, "little")
    data[:12] = length + masked(length).to_bytes(4, "little")
    path = tmp_path / "a"
    path.write_bytes(packed(bytes(data), compression))
    source = RecordFileRange(str(path), "a", "tfrecord", "", path.stat().st_size)
    pool = _Measured(1000)
    batches = list(read_records(source, 1000, pool))
    assert [r.reason for batch in batches for r in batch.rejects] == ["broken_file"]
    assert max(pool.sizes) < 4 * len(data)


def test_records_of_any_size_in_memory_that_is_used_again(tmp_path: Path) -> None:
    records = some_records(200, 3)
    source = write_records(tmp_path / "a", records)
    pool, found, held = BlockPool(400), [], []
    for batch in read_records(source, 256, pool):
        held.append((batch, batch.data.tobytes()))
        del held[:-2]
        for kept, copy in held:  # what is held does not change
            assert kept.data.tobytes() == copy
        ends = zip(batch.begins.tolist(), batch.ends.tolist(), strict=True)
        found += [batch.data[a + 12 : b - 4].tobytes() for a, b in ends]
    assert found == records


def masked(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % (1 << 32)
