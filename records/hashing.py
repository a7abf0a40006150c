"""Stable hashes: the same number on every machine, in every process and release.

Every random decision of recordmill is a pure function of (seed, purpose, key, copy). Keys come from
names and positions by `fingerprint64`; `mix64` turns them into uniform 64-bit numbers, by the
finalizer of SplitMix64 (Steele, Lea and Flood 2014, doi:10.1145/2714064.2660195). Python's own
`hash` differs from process to process and is never used. A change of anything here changes the
bytes of every dataset, so it is a decision for `CHANGELOG.md`.
"""

import hashlib

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

# The increment of SplitMix64 and the factors of its finalizer.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
# FNV-1a of 64 bits, for hashes that a kernel makes byte by byte.
FNV_OFFSET = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)


def fingerprint64(data: bytes) -> int:
    """Returns the first 64 bits of blake2b of `data`, as an integer in [0, 2**64)."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def mix64(values: U64) -> U64:
    """Mixes `[n] uint64` element by element into uniform `[n] uint64`; a bijection."""
    mixed = (values ^ (values >> np.uint64(30))) * MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * MIX_2
    return mixed ^ (mixed >> np.uint64(31))


def combine(keys: U64, more: U64) -> U64:
    """Hashes two columns `[n] uint64` into one; the order of the arguments matters."""
    return mix64(mix64(keys + GOLDEN) ^ more)


def seed_for(seed: int, purpose: str) -> int:
    """Returns the 64-bit seed of one purpose, so that two purposes never share draws."""
    return fingerprint64(f"{seed}/{purpose}".encode())
