"""Random draws inside kernels: SplitMix64 (Steele, Lea and Flood 2014,
doi:10.1145/2714064.2660195).

A generator is `[1] uint64`: its state. `start` sets it from a seed and a key, so that the draws for
one example depend on nothing else; making one costs a few instructions, where numpy's cost
microseconds.
"""

import numpy as np
import numpy.typing as npt

from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.hashing import GOLDEN, MIX_1, MIX_2

Generator = npt.NDArray[np.uint64]

_TO_UNIT = 1.0 / (1 << 53)


@subroutine
def mix_one(value: np.uint64) -> np.uint64:
    """`hashing.mix64` for one number."""
    value = (value ^ (value >> np.uint64(30))) * MIX_1
    value = (value ^ (value >> np.uint64(27))) * MIX_2
    return value ^ (value >> np.uint64(31))


@kernel
def start(rng: Generator, seed: np.uint64, key: np.uint64, copy: int) -> None:
    """Sets `rng` to the beginning of the draws of (seed, key, copy)."""
    rng[0] = mix_one(mix_one(seed ^ key) + np.uint64(copy) * GOLDEN)


@subroutine
def next_bits(rng: Generator) -> np.uint64:
    """Returns 64 uniform bits."""
    rng[0] += GOLDEN
    return mix_one(rng[0])


@kernel
def next_unit(rng: Generator) -> float:
    """Returns a float64 uniform in [0, 1)."""
    return np.float64(next_bits(rng) >> np.uint64(11)) * _TO_UNIT


@kernel
def next_below(rng: Generator, bound: int) -> int:
    """Returns an integer uniform in [0, bound), for bound in [1, 2**31].

    Multiply and shift (Lemire 2019, doi:10.1145/3230636) without the rejection step: the bias is
    below bound / 2**32.
    """
    return np.int64(((next_bits(rng) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))
