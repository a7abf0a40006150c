"""Existing records as the records of run files:

    key 8 | tie 8 | the record with its TFRecord frame

The key decides the position; where two are equal the tie does. The frame stays as it was read, so
no checksum is computed again, and a record that was damaged on the way is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.framing import OVERHEAD_BYTES
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.numba_internals import word_at
from recordmill.records.hashing import U64
from recordmill.transforms.shuffle.run_files import SortedRecords
from recordmill.transforms.storage.buffers import Arena

HEADER_BYTES = 16  # of a record in a run file, before its frame


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """Framed records somewhere in a buffer, with their keys.

    Attributes:
      data: `[bytes] uint8`.
      begins, ends: `[num_records] int64`: of each record with its frame.
      keys, ties: `[num_records] uint64`.
    """

    data: Bytes
    begins: Int64s
    ends: Int64s
    keys: U64
    ties: U64

    def take(self, chosen: Int64s | Bools) -> KeyedRecords:
        """Returns some of them, in any order, in the same buffer."""
        return KeyedRecords(
            self.data, self.begins[chosen], self.ends[chosen], self.keys[chosen], self.ties[chosen]
        )

    def compact(self) -> KeyedRecords:
        """Returns the records in a buffer of their own, which holds nothing else."""
        bounds = np.concatenate([[0], np.cumsum(self.ends - self.begins)]).astype(np.int64)
        data = np.empty(int(bounds[-1]), np.uint8)
        keys, ties = np.ascontiguousarray(self.keys), np.ascontiguousarray(self.ties)
        _copy(self.data, self.begins, self.ends, keys, ties, data, bounds[:-1], 0)
        return KeyedRecords(data, bounds[:-1], bounds[1:], keys, ties)


@subroutine
def _put_word(out: Bytes, at: int, value: np.uint64) -> None:
    for i in range(8):
        out[at + i] = np.uint8(value >> np.uint64(8 * i))


@kernel
def _copy(
    data: Bytes, begins: Int64s, ends: Int64s, keys: U64, ties: U64, out: Bytes, targets: Int64s,
    header_bytes: int,
) -> None:  # fmt: skip
    for i in range(begins.shape[0]):
        at = targets[i]
        if header_bytes:
            _put_word(out, at, keys[i])
            _put_word(out, at + 8, ties[i])
            at += header_bytes
        # Unsigned indices cannot count from the end, so the compiler copies many bytes at once.
        to, source = np.uint64(at), np.uint64(begins[i])
        for j in range(np.uint64(ends[i] - begins[i])):
            out[to + j] = data[source + j]


@kernel
def _walk(
    data: Bytes, low: np.uint64, high: np.uint64, begins: Int64s, ends: Int64s, keys: U64, ties: U64
) -> int:
    at = 0
    count = 0
    while at + 32 <= data.shape[0]:
        key = word_at(data, at)
        size = np.int64(word_at(data, at + 16)) + 16
        if size < 16 or size > data.shape[0] - at - 16:
            return -1
        if low <= key <= high:
            begins[count] = at + 16
            ends[count] = at + 16 + size
            keys[count] = key
            ties[count] = word_at(data, at + 8)
            count += 1
        at += 16 + size
    return count if at == data.shape[0] else -1


@kernel
def _repeats(
    data: Bytes, offsets: Int64s, header_bytes: int, keys: U64, ties: U64, repeats: Bools
) -> None:
    """Marks each record whose bytes are those of an earlier one of the same key and tie."""
    first = 0
    for i in range(offsets.shape[0] - 1):
        if keys[i] != keys[first] or ties[i] != ties[first]:
            first = i
        begin = offsets[i] + header_bytes
        size = offsets[i + 1] - begin
        for j in range(first, i):
            other = offsets[j] + header_bytes
            if repeats[j] or offsets[j + 1] - other != size:
                continue
            k = 0
            while k < size and data[begin + k] == data[other + k]:
                k += 1
            if k == size:
                repeats[i] = True
                break


def find_in_range(data: Bytes, low: int, high: int) -> KeyedRecords:
    """Returns the records of a part of a run file with a key in `[low, high]`.

    Raises:
      ValueError: the part is none of whole records.
    """
    most = len(data) // (HEADER_BYTES + OVERHEAD_BYTES)
    begins, ends = np.empty(most, np.int64), np.empty(most, np.int64)
    keys, ties = np.empty(most, np.uint64), np.empty(most, np.uint64)
    count = _walk(data, np.uint64(low), np.uint64(high), begins, ends, keys, ties)
    if count < 0:
        raise ValueError("the bytes are no records of a run file")
    return KeyedRecords(data, begins[:count], ends[:count], keys[:count], ties[:count])


@dataclass(frozen=True, slots=True)
class OrderedRecords:
    """Records in order of (key, tie), copied together.

    Attributes:
      data: `[bytes] uint8`, each with the header of run files or without.
      offsets: `[num_records + 1] int64`.
      keys: `[num_records] uint64`, ascending.
      repeats: how many were left out.
    """

    data: Bytes
    offsets: Int64s
    keys: U64
    repeats: int = 0


def order_records(
    parts: Sequence[KeyedRecords],
    *,
    with_header: bool,
    without_repeats: bool = False,
    arena: Arena | None = None,
) -> OrderedRecords:
    """Copies records together in order of (key, tie), and of parts where both are equal.

    Args:
      parts: in any order.
      with_header: for a run file; else the records are those of a TFRecord file.
      without_repeats: a record with the key, the tie and the bytes of another is left out.
      arena: has the memory for the copies; without it is fresh.
    """
    header_bytes = HEADER_BYTES if with_header else 0
    none = np.zeros(0, np.uint64)
    keys = np.concatenate([none, *(part.keys for part in parts)])
    ties = np.concatenate([none, *(part.ties for part in parts)])
    sizes = [part.ends - part.begins + header_bytes for part in parts]
    order = np.lexsort((ties, keys))
    all_sizes = np.concatenate([np.zeros(0, np.int64), *sizes])
    offsets = np.concatenate([[0], np.cumsum(all_sizes[order])]).astype(np.int64)
    targets = np.empty(len(order), np.int64)
    targets[order] = offsets[:-1]
    size = int(offsets[-1])
    out = arena.take(size) if arena else np.empty(size, np.uint8)
    done = 0
    for part in parts:
        count = len(part.begins)
        _copy(
            part.data, part.begins, part.ends, np.ascontiguousarray(part.keys),
            np.ascontiguousarray(part.ties), out, targets[done : done + count], header_bytes,
        )  # fmt: skip
        done += count
    keys = keys[order]
    ordered = OrderedRecords(out, offsets, keys)
    return _without_repeats(ordered, ties[order], header_bytes) if without_repeats else ordered


def _without_repeats(records: OrderedRecords, ties: U64, header_bytes: int) -> OrderedRecords:
    repeats = np.zeros(len(records.keys), np.bool_)
    _repeats(records.data, records.offsets, header_bytes, records.keys, ties, repeats)
    if not repeats.any():
        return records
    sizes = np.diff(records.offsets)
    data = records.data[np.repeat(~repeats, sizes)]
    offsets = np.concatenate([[0], np.cumsum(sizes[~repeats])]).astype(np.int64)
    return OrderedRecords(data, offsets, records.keys[~repeats], int(repeats.sum()))


def sorted_for_run(
    parts: Sequence[KeyedRecords], *, without_repeats: bool = False, arena: Arena | None = None
) -> tuple[SortedRecords, int]:
    """Returns records as a run file has them, and how many repeats were left out."""
    found = order_records(parts, with_header=True, without_repeats=without_repeats, arena=arena)
    return SortedRecords(found.data, found.offsets, found.keys), found.repeats


def merge_parts(slices: Sequence[Bytes], low: int, high: int) -> SortedRecords:
    """Merges parts of run files: their records with a key in `[low, high]`."""
    return sorted_for_run([find_in_range(data, low, high) for data in slices])[0]
