"""Memory that is used again, and arrays to and from files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from recordmill.transforms.storage import files
from recordmill.transforms.storage.array_files import begin_sync, read_into, write_array
from recordmill.transforms.storage.buffers import Arena, BlockPool


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_block_is_used_again_when_nobody_holds_a_part_of_it() -> None:
    pool = BlockPool(1000)
    first = pool.take(900)
    first[:] = 7
    part = first[10:20][2:4]
    where = address(first)
    del first
    other = pool.take(1000)
    other[:] = 1
    assert address(other) != where
    assert part.tolist() == [7, 7]
    del part
    assert address(pool.take(5)) == where


def test_what_is_larger_than_a_block_is_fresh() -> None:
    pool = BlockPool(10)
    assert len(pool.take(11)) == 11
    assert len(pool.take(10)) == 10


def test_slices_of_an_arena_are_apart_until_it_is_reset() -> None:
    arena = Arena()
    places = []
    for _ in range(3):
        slices = [arena.take(size) for size in (5, 0, 100, 7)]
        for number, each in enumerate(slices):
            each[:] = number
        assert [each.tolist() for each in slices] == [[0] * 5, [], [2] * 100, [3] * 7]
        places.append(address(slices[0]))
        arena.reset()
    assert places[1] == places[2]
    whole = arena.take(112)
    assert address(whole) == places[2]
    assert len(arena.take(1000)) == 1000  # more than it has


def test_an_arena_of_a_size_has_it_from_the_start_and_aligns_slices() -> None:
    arena = Arena(64)
    first, second = arena.take(5), arena.take(40)
    assert address(second) == address(first) + 8
    assert address(second) % 8 == 0
    assert second.view(np.int64).flags.aligned
    arena.reset()
    assert address(arena.take(64)) == address(first)


def test_read_into_an_array(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    content = np.arange(200, dtype=np.uint8)
    with files.writing(path, sync=False) as handle:
        write_array(handle, content)
        begin_sync(handle, 0, 200)
    out = np.zeros(50, np.uint8)
    assert read_into(path, 100, out) == 50
    assert out.tolist() == list(range(100, 150))
    assert read_into(path, 180, out) == 20
    assert out[:20].tolist() == list(range(180, 200))
    begin_sync(io.BytesIO(), 0, 10)  # of a storage service: there is nothing to do
