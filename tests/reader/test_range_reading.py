"""Ranges of records of uncompressed shards, whole and damaged."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader.framing import masked_crc32c
from recordmill.reader.range_reading import RangeReader, unreadable_in
from recordmill.reader.record_ranges import RecordOffsets
from recordmill.records.errors import RunError

SIZES = st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=3)


def framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, record)]
    return length + checksums[0] + record + checksums[1]


class Shards:
    """Shards of records of some sizes, in files, and a reader of them."""

    def __init__(self, folder: Path, sizes: list[list[int]], most: int = 1 << 22) -> None:
        random = np.random.default_rng(1)
        self.records = [[random.bytes(size) for size in shard] for shard in sizes]
        self.bounds = [np.cumsum([0, *(size + 16 for size in shard)]) for shard in sizes]
        self.paths = [str(folder / f"shard-{number}") for number in range(len(sizes))]
        for path, shard in zip(self.paths, self.records, strict=True):
            Path(path).write_bytes(b"".join(map(framed, shard)))
        indexes = {
            path: b"".join(b"%d 0\n" % at for at in bounds[:-1].tolist())
            for path, bounds in zip(self.paths, self.bounds, strict=True)
        }
        totals = [int(bounds[-1]) for bounds in self.bounds]
        self.offsets = RecordOffsets(
            indexes.__getitem__, self.paths, list(map(len, sizes)), totals, most=most
        )

    def read(self, ranges: list[tuple[int, int, int]]) -> list[bytes]:
        table = np.array(ranges, np.int64).reshape(-1, 3)
        return RangeReader(self.paths, self.offsets).read(table).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shards")


@settings(deadline=None, max_examples=100)
@given(sizes=SIZES, most=st.integers(1, 40), data=st.data())
def test_ranges_come_one_after_the_other_however_sparse_the_index_is(
    folder: Path, sizes: list[list[int]], most: int, data: st.DataObject
) -> None:
    shards = Shards(folder, sizes, most)
    ranges = []
    for _ in range(data.draw(st.integers(0, 5))):
        shard = data.draw(st.integers(0, len(sizes) - 1))
        first = data.draw(st.integers(0, max(0, len(sizes[shard]) - 1)))
        ranges.append((shard, first, data.draw(st.integers(0, len(sizes[shard]) - first))))
    assert shards.read(ranges) == [
        record
        for shard, first, count in ranges
        for record in shards.records[shard][first : first + count]
    ]


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12), most=st.integers(1, 12),
    at=st.integers(0, 1000), bit=st.integers(0, 7),
)  # fmt: skip
def test_a_flipped_bit_is_found_and_named(
    folder: Path, sizes: list[int], most: int, at: int, bit: int
) -> None:
    shards = Shards(folder, [[5], sizes], most)
    path, bounds = shards.paths[1], shards.bounds[1]
    content = bytearray(Path(path).read_bytes())
    at %= len(content)
    content[at] ^= 1 << bit
    Path(path).write_bytes(content)
    record = int(np.searchsorted(bounds, at, side="right")) - 1
    whole = [(0, 0, 1), (1, 0, len(sizes))]
    line = f"one is not: {path}: record {record} at byte {bounds[record]}: the checksum of the "
    with pytest.raises(RunError) as info:
        shards.read(whole)
    assert line in str(info.value)
    assert "\n" not in str(info.value)
    found = unreadable_in(path, bounds)
    assert [(bad.record, bad.offset) for bad in found] == [(record, bounds[record])]


@settings(deadline=None, max_examples=100)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12), most=st.integers(1, 12),
    end=st.integers(0, 1000),
)  # fmt: skip
def test_a_cut_shard_is_read_up_to_its_end(
    folder: Path, sizes: list[int], most: int, end: int
) -> None:
    shards = Shards(folder, [sizes], most)
    path, bounds = shards.paths[0], shards.bounds[0]
    end %= int(bounds[-1])
    os.truncate(path, end)
    whole = int(np.searchsorted(bounds, end, side="right")) - 1
    with pytest.raises(RunError, match=f"record {whole} at byte {bounds[whole]}: the file ends"):
        shards.read([(0, 0, len(sizes))])
    assert [bad.record for bad in unreadable_in(path, bounds)] == list(range(whole, len(sizes)))
    every = shards.offsets.every
    assert (
        shards.read([(0, 0, whole // every * every)]) == shards.records[0][: whole // every * every]
    )


@pytest.mark.parametrize("most", [100, 2])
@pytest.mark.parametrize("length", [2**64 - 1, 2**62, 17, 3])
def test_a_wrong_length_with_a_right_checksum_is_named(
    folder: Path, most: int, length: int
) -> None:
    shards = Shards(folder, [[4, 4, 4, 4]], most)
    content = bytearray(Path(shards.paths[0]).read_bytes())
    header = struct.pack("<Q", length)
    content[20:32] = header + struct.pack("<I", masked_crc32c(header))
    Path(shards.paths[0]).write_bytes(content)
    with pytest.raises(RunError, match="record 1 at byte 20: "):
        shards.read([(0, 0, 4)])
    assert shards.read([(0, 2, 2)]) == shards.records[0][2:]


def test_no_descriptor_stays_open(folder: Path) -> None:
    shards = Shards(folder, [[3, 4], [5]])
    before = len(os.listdir("/dev/fd"))
    shards.read([(0, 0, 2), (1, 0, 1)])
    Path(shards.paths[1]).write_bytes(b"")
    with pytest.raises(RunError, match="the file ends before it"):
        shards.read([(0, 0, 2), (1, 0, 1), (0, 1, 1)])
    assert len(os.listdir("/dev/fd")) == before


def test_a_scan_reads_a_shard_of_several_blocks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordmill.reader.range_reading._SCANNED_BYTES", 50)
    shards = Shards(folder, [[4] * 30 + [90] + [4] * 9])
    content = bytearray(Path(shards.paths[0]).read_bytes())
    bounds = shards.bounds[0]
    for record in (0, 17, 30, 39):
        content[bounds[record] + 13] ^= 1
    Path(shards.paths[0]).write_bytes(content)
    assert [bad.record for bad in unreadable_in(shards.paths[0], bounds)] == [0, 17, 30, 39]
