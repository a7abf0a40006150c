"""`reader/draws.py` in plain Python, one record at a time."""

from __future__ import annotations

import hashlib

from ..transforms.splitmix import GOLDEN, MASK, mix64


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
