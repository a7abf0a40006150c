"""Random draws in the graph, a whole batch at a time: SplitMix64, as in `records/randomness.py`.

A draw is a function of (seed, purpose, epoch, record, counter) and of nothing else: the same record
in the same epoch draws the same numbers in any batch, on any worker, before and after a restart.
`tf.random.stateless_*` would need a call per record for that; this takes some ten operations for a
batch, and any draw can be had without those before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recordmill.records.hashing import GOLDEN, MIX_1, MIX_2, seed_for

if TYPE_CHECKING:
    import tensorflow as tf

LOW_BITS = 30


def _mix(values: Any) -> Any:
    """`hashing.mix64`, in the graph."""
    import tensorflow as tf

    def fold(values: Any, shift: int) -> Any:
        shifted = tf.bitwise.right_shift(values, tf.constant(shift, tf.uint64))
        return tf.bitwise.bitwise_xor(values, shifted)

    mixed = fold(values, 30) * tf.constant(MIX_1, tf.uint64)
    return fold(fold(mixed, 27) * tf.constant(MIX_2, tf.uint64), 31)


def start(keys: tf.Tensor, *, seed: int, purpose: str) -> tf.Tensor:
    """Returns `[batch] uint64`: where the draws of each record begin.

    Args:
      keys: `[batch, 2] int64`: epoch and number of the record in its split.
      seed: the user's.
      purpose: what the draws decide; two purposes share none.
    """
    import tensorflow as tf

    epochs, records = tf.unstack(tf.cast(keys, tf.uint64), axis=1)
    own = tf.constant(seed_for(seed, f"reader/{purpose}"), tf.uint64)
    seeded = _mix(tf.bitwise.bitwise_xor(own, records))
    return _mix(seeded + epochs * tf.constant(GOLDEN, tf.uint64))


def bits(state: tf.Tensor, counters: tf.Tensor) -> tf.Tensor:
    """Returns 64 uniform bits for each counter, uint64.

    Args:
      state: `[batch] uint64`, from `start`.
      counters: `[n]` or `[batch, n]`, integers of 0 or more: which of each record's draws.
    """
    import tensorflow as tf

    steps = tf.cast(counters, tf.uint64) + tf.constant(1, tf.uint64)
    return _mix(state[:, None] + steps * tf.constant(GOLDEN, tf.uint64))


def unit(state: tf.Tensor, counters: tf.Tensor) -> tf.Tensor:
    """Returns float32 uniform in [0, 1) for each counter; arguments as for `bits`."""
    import tensorflow as tf

    drawn = tf.bitwise.right_shift(bits(state, counters), tf.constant(40, tf.uint64))
    return tf.cast(drawn, tf.float32) * (1.0 / (1 << 24))


def below(state: tf.Tensor, counters: tf.Tensor, bound: int) -> tf.Tensor:
    """Returns int32 uniform in [0, bound), bound at most 2**31; arguments as for `bits`.

    The bias is below bound / 2**32.
    """
    import tensorflow as tf

    half = tf.constant(32, tf.uint64)
    drawn = tf.bitwise.right_shift(bits(state, counters), half) * tf.constant(bound, tf.uint64)
    return tf.cast(tf.bitwise.right_shift(drawn, half), tf.int32)


def shuffle_keys(state: tf.Tensor, counters: tf.Tensor, along: tf.Tensor) -> tf.Tensor:
    """Returns int64 of 0 or more whose order is random and whose low bits hold `along`.

    What is sorted along comes out of the sort by `low_bits`, without a gather, and makes all values
    of a row different.

    Args:
      state, counters: as for `bits`.
      along: int64 in [0, 2**LOW_BITS), broadcast to the shape of the draws.
    """
    import tensorflow as tf

    high = tf.bitwise.right_shift(bits(state, counters), tf.constant(LOW_BITS + 1, tf.uint64))
    return tf.cast(high, tf.int64) * (1 << LOW_BITS) + along


def low_bits(keys: tf.Tensor) -> tf.Tensor:
    """Returns what `shuffle_keys` put along, int32."""
    import tensorflow as tf

    return tf.cast(keys & ((1 << LOW_BITS) - 1), tf.int32)
