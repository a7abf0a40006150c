"""The draws of `records/randomness.py` in plain Python, for the references of other tests."""

from __future__ import annotations

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix64(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


class SplitMix64:
    """Steele, Lea and Flood 2014, started from a seed, a key and a copy."""

    def __init__(self, seed: int, key: int, copy: int) -> None:
        self.state = mix64(mix64(seed ^ key) + copy * GOLDEN & MASK)

    def bits(self) -> int:
        self.state = self.state + GOLDEN & MASK
        return mix64(self.state)

    def unit(self) -> float:
        return (self.bits() >> 11) / (1 << 53)

    def below(self, bound: int) -> int:
        return (self.bits() >> 32) * bound >> 32

    def shuffle(self, items: list) -> None:
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
