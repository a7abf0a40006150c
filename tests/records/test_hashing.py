from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.hashing import combine, fingerprint64, mix64, seed_for

MASK = (1 << 64) - 1
uint64s = st.integers(0, MASK)


def mix_reference(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


class TestGoldenValues:
    """A change of any of them changes the bytes of every dataset."""

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (b"", 0xB4B2797457A0A6E4),
            (b"train/part-0.txt", 0x6FD8E85306CA8E5D),
            ("日本".encode(), 0x3A9B54E1CF3533E8),
        ],
    )
    def test_fingerprint64(self, data, expected):
        assert fingerprint64(data) == expected

    def test_mix64(self):
        values = np.array([0, 1, 2, 0x9E3779B97F4A7C15, MASK], np.uint64)
        assert mix64(values).tolist() == [
            0,
            0x5692161D100B05E5,
            0xDBD238973A2B148A,
            0xE220A8397B1DCDAF,  # the first output of SplitMix64 from seed 0, as published
            0xB4D055FCF2CBBD7B,
        ]

    def test_combine(self):
        keys, more = np.array([0, 1, 5], np.uint64), np.array([0, 5, 1], np.uint64)
        assert combine(keys, more).tolist() == [
            0x48218226FF3CD4BF,
            0x022190E6F079EF17,
            0x80F73B756C8CA965,
        ]

    def test_seed_for(self):
        assert seed_for(12345, "masks") == 0xFA4920D604278618
        assert seed_for(12345, "pairs") == 0x71D905AFB292146B


@settings(deadline=None)
@given(values=st.lists(uint64s, min_size=1, max_size=20))
def test_mix64_is_splitmix(values):
    assert mix64(np.array(values, np.uint64)).tolist() == [mix_reference(v) for v in values]


@settings(deadline=None)
@given(key=uint64s, more=uint64s)
def test_combine_is_two_mixes(key, more):
    expected = mix_reference(mix_reference((key + 0x9E3779B97F4A7C15) & MASK) ^ more)
    [found] = combine(np.array([key], np.uint64), np.array([more], np.uint64)).tolist()
    assert found == expected


def test_consecutive_numbers_become_uniform():
    mixed = mix64(np.arange(1, 100_001, dtype=np.uint64))
    assert len(np.unique(mixed)) == 100_000
    for shift in (0, 20, 58):
        counts = np.bincount(((mixed >> np.uint64(shift)) & np.uint64(63)).astype(int))
        chi_square = ((counts - 100_000 / 64) ** 2 / (100_000 / 64)).sum()
        assert chi_square < 63 + 6 * (2 * 63) ** 0.5


def test_purposes_and_seeds_share_nothing():
    seeds = {seed_for(seed, purpose) for seed in range(50) for purpose in ("a", "b", "1/a")}
    assert len(seeds) == 150
