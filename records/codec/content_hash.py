"""Hash the contents of records: 128 bits, at the speed of memory.

The first 64 bits are XXH64 (Collet, https://xxhash.com), the others a second mix of its four
accumulators. So equal contents have equal hashes on every machine; nobody is kept from making two
contents of one hash on purpose, and where that would matter bytes are compared.
"""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.numba_internals import word_at
from recordmill.records.codec.randomness import mix_one
from recordmill.records.hashing import GOLDEN, U64

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_ZERO = np.uint64(0)


@subroutine
def _rotate(value: np.uint64, bits: int) -> np.uint64:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@subroutine
def _round(state: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(state + word * _P2, 31) * _P1


@subroutine
def _hash_one(data: Bytes, begin: int, end: int) -> tuple[np.uint64, np.uint64]:
    at = begin
    second = GOLDEN
    if end - begin >= 32:
        a, b, c, d = _P1 + _P2, _P2, _ZERO, _ZERO - _P1
        while at + 32 <= end:
            a = _round(a, word_at(data, at))
            b = _round(b, word_at(data, at + 8))
            c = _round(c, word_at(data, at + 16))
            d = _round(d, word_at(data, at + 24))
            at += 32
        first = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for state in (a, b, c, d):
            first = (first ^ _round(_ZERO, state)) * _P1 + _P4
            second = mix_one(second ^ state) + GOLDEN
    else:
        first = _P5
    first += np.uint64(end - begin)
    second += np.uint64(end - begin)
    while at + 8 <= end:
        word = word_at(data, at)
        first = _rotate(first ^ _round(_ZERO, word), 27) * _P1 + _P4
        second = mix_one(second ^ word) + GOLDEN
        at += 8
    if at + 4 <= end:
        word = _ZERO
        for i in range(4):
            word |= np.uint64(data[at + i]) << np.uint64(8 * i)
        first = _rotate(first ^ (word * _P1), 23) * _P2 + _P3
        second = mix_one(second ^ word) + GOLDEN
        at += 4
    while at < end:
        byte = np.uint64(data[at])
        first = _rotate(first ^ (byte * _P5), 11) * _P1
        second = mix_one(second ^ byte) + GOLDEN
        at += 1
    first = (first ^ (first >> np.uint64(33))) * _P2
    first = (first ^ (first >> np.uint64(29))) * _P3
    return first ^ (first >> np.uint64(32)), mix_one(second)


@kernel
def _hash_all(data: Bytes, begins: Int64s, ends: Int64s, hashes: U64) -> None:
    for i in range(begins.shape[0]):
        hashes[i, 0], hashes[i, 1] = _hash_one(data, begins[i], ends[i])


def hash_contents(data: Bytes, begins: Int64s, ends: Int64s) -> U64:
    """Returns `[n, 2] uint64`: the hash of `data[begins[i] : ends[i]]`.

    Args:
      data: `[bytes] uint8`.
      begins, ends: `[n] int64`.
    """
    hashes = np.empty((len(begins), 2), np.uint64)
    _hash_all(data, begins, ends, hashes)
    return hashes
