from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.codec import randomness
from recordmill.records.codec.jit import kernel
from recordmill.records.codec.randomness import next_below, next_unit, start
from recordmill.records.hashing import mix64

from ...kernels import entrance

mix_one, next_bits = entrance(randomness.mix_one), entrance(randomness.next_bits)

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
uint64s = st.integers(0, MASK)


def mix_reference(value: int) -> int:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def started(seed: int, key: int, copy: int = 0):
    rng = np.empty(1, np.uint64)
    start(rng, np.uint64(seed), np.uint64(key), copy)
    return rng


@kernel
def _fill_below(rng, bound, out):
    for i in range(out.shape[0]):
        out[i] = next_below(rng, bound)


@kernel
def _fill_units(rng, out):
    for i in range(out.shape[0]):
        out[i] = next_unit(rng)


def test_golden_values():
    rng = np.zeros(1, np.uint64)
    # The published outputs of SplitMix64 from seed 0.
    assert [int(next_bits(rng)) for _ in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]
    assert int(started(1, 2, 3)[0]) == 0x669BB27A971CD2E4


@settings(deadline=None)
@given(seed=uint64s, key=uint64s, copy=st.integers(0, 1000))
def test_equals_plain_python(seed, key, copy):
    rng = started(seed, key, copy)
    state = mix_reference((mix_reference(seed ^ key) + copy * GOLDEN) & MASK)
    assert int(rng[0]) == state
    draws = []
    for _ in range(3):
        state = state + GOLDEN & MASK
        draws.append(mix_reference(state))
    assert int(next_bits(rng)) == draws[0]
    assert next_unit(rng) == (draws[1] >> 11) / 2**53
    assert next_below(rng, 30_522) == (draws[2] >> 32) * 30_522 >> 32


@settings(deadline=None)
@given(value=uint64s)
def test_one_is_mixed_as_many_are(value):
    [mixed] = mix64(np.array([value], np.uint64)).tolist()
    assert int(mix_one(np.uint64(value))) == mixed


@settings(deadline=None, max_examples=50)
@given(seed=uint64s, bound=st.sampled_from([1, 2, 3, 255, 30_522, 1 << 20, 1 << 31]))
def test_integers_lie_below_the_bound(seed, bound):
    out = np.empty(1000, np.int64)
    _fill_below(started(seed, 0), bound, out)
    assert out.min() >= 0
    assert out.max() < bound
    if bound <= 3:
        assert len(np.unique(out)) == bound


@pytest.mark.parametrize("bound", [2, 7, 100])
def test_integers_are_uniform(bound):
    out = np.empty(100_000, np.int64)
    _fill_below(started(5, bound), bound, out)
    counts = np.bincount(out, minlength=bound)
    expected = len(out) / bound
    degrees = bound - 1
    assert ((counts - expected) ** 2 / expected).sum() < degrees + 6 * (2 * degrees) ** 0.5 + 10


def test_units_are_uniform_and_apart():
    out = np.empty(100_000, np.float64)
    _fill_units(started(1, 1), out)
    assert out.min() >= 0
    assert out.max() < 1
    assert abs(out.mean() - 0.5) < 0.005
    assert abs(out.var() - 1 / 12) < 0.002
    assert abs(np.corrcoef(out[:-1], out[1:])[0, 1]) < 0.02


def test_seeds_keys_and_copies_start_apart():
    states = {
        int(started(seed, key, copy)[0])
        for seed in (0, 1, 99)
        for key in (4, 1 << 40)
        for copy in range(20)
    }
    assert len(states) == 120
