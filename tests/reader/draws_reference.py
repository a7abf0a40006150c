"""`reader/draws.py` in plain Python, one record at a time."""

from __future__ import annotations

import hashlib

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix64(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


class RecordDraws:
    """The draws of (seed, purpose, epoch, record), by counter."""

    def __init__(self, *, seed: int, purpose: str, epoch: int, record: int) -> None:
        digest = hashlib.blake2b(f"{seed}/reader/{purpose}".encode(), digest_size=8).digest()
        own = int.from_bytes(digest, "little")
        self.state = mix64(mix64(own ^ record) + epoch * GOLDEN & MASK)

    def bits(self, counter: int) -> int:
        return mix64(self.state + (counter + 1) * GOLDEN & MASK)

    def unit(self, counter: int) -> float:
        return (self.bits(counter) >> 40) / (1 << 24)

    def below(self, counter: int, bound: int) -> int:
        return (self.bits(counter) >> 32) * bound >> 32

    def shuffle_key(self, counter: int, along: int) -> int:
        return (self.bits(counter) >> 31 << 30) + along
