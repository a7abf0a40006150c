"""Byte-pair encoding of one word (Sennrich et al. 2016, arXiv:1508.07909): kernels.

Of all pairs of neighbours that merge, the one of least rank does so first, and the leftmost of
equals. A short word looks at all its pairs each time; a long one, such as a line of Chinese, keeps
them in a heap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bytes, Int32s, Int64s
from recordmill.records.codec.heaps import sift_down
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.hashing import GOLDEN, U64

_NONE = np.int64(-1)
_FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
_SHORT = 48  # symbols; measured: a heap is slower below


class Merges(NamedTuple):
    """The pairs that merge, as a hash table, and the symbols that words begin as.

    Attributes:
      keys: `[2**n] uint64`: left id and right id of a pair, 32 bits each.
      values: `[2**n] int64`: its rank and the new id, 32 bits each.
      byte_ids: `[256] int32`: the symbol of each byte, -1 for none; of byte-level models.
      char_ids: `[1114112] int32`: the symbol of each character, of others; else empty.
    """

    keys: U64
    values: Int64s
    byte_ids: Int32s
    char_ids: Int32s


@kernel
def _fill(lefts: Int64s, rights: Int64s, values: Int64s, keys: U64, found: Int64s) -> None:
    mask = np.uint64(keys.shape[0] - 1)
    for i in range(lefts.shape[0]):
        key = np.uint64(lefts[i]) << np.uint64(32) | np.uint64(rights[i])
        slot = (key * GOLDEN >> np.uint64(20)) & mask
        while keys[slot] != _FREE and keys[slot] != key:
            slot = (slot + np.uint64(1)) & mask
        keys[slot] = key  # a pair that is listed twice has the later rank, as in the library
        found[slot] = values[i]


def make_merges(pairs: npt.NDArray[np.int64], *, byte_ids: Int32s, char_ids: Int32s) -> Merges:
    """Returns the table of pairs.

    Args:
      pairs: `[num_pairs, 4] int64`: left id, right id, rank, new id; less than 2**31 each.
      byte_ids, char_ids: see `Merges`; one of them is empty.
    """
    size = 1 << max(4, (2 * len(pairs)).bit_length())
    keys, values = np.full(size, _FREE), np.zeros(size, np.int64)
    lefts, rights, ranks, ids = (np.ascontiguousarray(column) for column in pairs.T)
    _fill(lefts, rights, ranks << 32 | ids, keys, values)
    return Merges(keys, values, byte_ids, char_ids)


@subroutine
def _pair(keys: U64, values: Int64s, left: int, right: int) -> np.int64:
    """Returns rank and new id of a pair, -1 where it does not merge."""
    if left < 0 or right < 0:
        return _NONE
    mask = np.uint64(keys.shape[0] - 1)
    key = np.uint64(left) << np.uint64(32) | np.uint64(right)
    slot = (key * GOLDEN >> np.uint64(20)) & mask
    while keys[slot] != _FREE:
        if keys[slot] == key:
            return values[slot]
        slot = (slot + np.uint64(1)) & mask
    return _NONE


@subroutine
def _merge_short(keys: U64, values: Int64s, symbols: Int32s, begins: Int64s, count: int) -> int:
    pairs = np.empty(_SHORT, np.int64)
    for i in range(count - 1):
        pairs[i] = _pair(keys, values, symbols[i], symbols[i + 1])
    while count > 1:
        best = -1
        least = np.int64(1) << np.int64(62)
        for i in range(count - 1):
            if pairs[i] >= 0 and pairs[i] >> 32 < least:
                least = pairs[i] >> 32
                best = i
        if best < 0:
            break
        symbols[best] = pairs[best] & 0xFFFFFFFF
        count -= 1
        for i in range(best + 1, count):
            symbols[i] = symbols[i + 1]
            begins[i] = begins[i + 1]
            pairs[i - 1] = pairs[i]
        if best < count - 1:
            pairs[best] = _pair(keys, values, symbols[best], symbols[best + 1])
        if best > 0:
            pairs[best - 1] = _pair(keys, values, symbols[best - 1], symbols[best])
    return count


@subroutine
def _push(heap: Int64s, size: int, item: np.int64) -> int:
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if heap[above] <= item:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = item
    return size + 1


@subroutine
def _merge_long(keys: U64, values: Int64s, symbols: Int32s, begins: Int64s, count: int) -> int:
    pairs = np.empty(count, np.int64)  # of each symbol with the next; -1: none, or it is merged
    after, before = np.arange(1, count + 1), np.arange(-1, count - 1)
    heap = np.empty(3 * count, np.int64)  # rank and position; what has changed since is passed over
    size = 0
    pairs[count - 1] = -1
    for i in range(count - 1):
        pairs[i] = _pair(keys, values, symbols[i], symbols[i + 1])
        if pairs[i] >= 0:
            size = _push(heap, size, (pairs[i] >> 32) << 32 | i)
    while size > 0:
        rank, at = heap[0] >> 32, heap[0] & 0xFFFFFFFF
        size -= 1
        sift_down(heap, size, heap[size])
        if pairs[at] < 0 or pairs[at] >> 32 != rank:
            continue
        gone = after[at]
        symbols[at] = pairs[at] & 0xFFFFFFFF
        pairs[gone] = -1
        symbols[gone] = -2
        after[at] = after[gone]
        pairs[at] = -1
        if after[at] < count:
            before[after[at]] = at
            pairs[at] = _pair(keys, values, symbols[at], symbols[after[at]])
            if pairs[at] >= 0:
                size = _push(heap, size, (pairs[at] >> 32) << 32 | at)
        if before[at] >= 0:
            left = before[at]
            pairs[left] = _pair(keys, values, symbols[left], symbols[at])
            if pairs[left] >= 0:
                size = _push(heap, size, (pairs[left] >> 32) << 32 | left)
    kept = 0
    for i in range(count):
        if symbols[i] != -2:
            symbols[kept] = symbols[i]
            begins[kept] = begins[i]
            kept += 1
    return kept


@subroutine
def merge_word(
    text: Bytes, at: int, end: int, merges: Merges, symbols: Int32s, begins: Int64s
) -> int:
    """Fills `symbols`, and where each begins; returns how many there are.

    A byte without a symbol is left out, as in the library; a character without one is symbol -1.
    """
    keys, values, byte_ids, char_ids = merges
    count = 0
    if char_ids.shape[0] == 0:
        for i in range(at, end):
            if byte_ids[text[i]] >= 0:
                symbols[count] = byte_ids[text[i]]
                begins[count] = i
                count += 1
    else:
        i = at
        while i < end:
            first = int(text[i])
            size = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            code = first if first < 0x80 else first & (0x7F >> size)
            for j in range(i + 1, min(i + size, end)):
                code = code << 6 | (int(text[j]) & 63)
            symbols[count] = char_ids[code]
            begins[count] = i
            count += 1
            i += size
    if count <= _SHORT:
        return _merge_short(keys, values, symbols, begins, count)
    return _merge_long(keys, values, symbols, begins, count)
