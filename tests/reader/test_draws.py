from __future__ import annotations

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader import draws

from .draws_reference import RecordDraws

KEYS = st.tuples(st.integers(0, 2**40), st.integers(0, 2**62))


@settings(deadline=None, max_examples=30)
@given(
    keys=st.lists(KEYS, min_size=1, max_size=5),
    seed=st.integers(-(2**63), 2**63),
    counters=st.lists(st.integers(0, 2**40), min_size=1, max_size=5),
    bound=st.integers(1, 2**31),
)
def test_draws_are_those_of_the_reference(
    keys: list[tuple[int, int]], seed: int, counters: list[int], bound: int
) -> None:
    state = draws.start(tf.constant(keys, tf.int64), seed=seed, purpose="p")
    counts = tf.constant(counters, tf.int64)
    one = [RecordDraws(seed=seed, purpose="p", epoch=e, record=r) for e, r in keys]
    assert draws.bits(state, counts).numpy().tolist() == [
        [d.bits(c) for c in counters] for d in one
    ]
    assert draws.unit(state, counts).numpy().tolist() == [
        [d.unit(c) for c in counters] for d in one
    ]
    below = draws.below(state, counts, bound)
    assert below.numpy().tolist() == [[d.below(c, bound) for c in counters] for d in one]
    ordered = draws.shuffle_keys(state, counts, tf.constant(5, tf.int64))
    assert ordered.numpy().tolist() == [[d.shuffle_key(c, 5) for c in counters] for d in one]
    assert (draws.low_bits(ordered).numpy() == 5).all()


def test_draws_are_uniform_and_purposes_share_none() -> None:
    keys = tf.stack([tf.zeros([500], tf.int64), tf.range(500, dtype=tf.int64)], axis=1)
    first = draws.unit(draws.start(keys, seed=1, purpose="a"), tf.range(200)).numpy()
    other = draws.unit(draws.start(keys, seed=1, purpose="b"), tf.range(200)).numpy()
    counts = np.histogram(first, bins=20, range=(0, 1))[0]
    assert abs(counts / first.size - 1 / 20).max() < 0.002
    assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(first[:-1].ravel(), first[1:].ravel())[0, 1]) < 0.02
