from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader import load
from recordmill.reader.sampling.mixing import (
    largest_remainder,
    mix,
    schedule,
    shares,
    temperature_weights,
)
from recordmill.records.errors import UsageError


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=9))
def test_after_every_step_each_part_has_floor_or_ceil_of_its_share(parts: list[int]) -> None:
    turns = np.cumsum(schedule(parts)[:, None] == np.arange(len(parts)), axis=0)
    steps = np.arange(1, sum(parts) + 1)[:, None]
    exact = steps * np.array(parts)
    assert (turns >= exact // sum(parts)).all()
    assert (turns <= -(-exact // sum(parts))).all()
    assert turns[-1].tolist() == parts


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8))
def test_shares_are_near_the_weights(weights: list[float]) -> None:
    parts = shares(weights)
    assert min(parts) >= 1
    if not all(weight.is_integer() for weight in weights):
        assert sum(parts) == 10_000
    found, exact = np.array(parts) / sum(parts), np.array(weights) / sum(weights)
    assert abs(found - exact).max() <= (len(weights) + 1) / 10_000
    assert shares([2, 5]) == [2, 5]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any), st.integers(0, 999))
def test_largest_remainder_is_within_one_and_adds_up(parts: list[int], total: int) -> None:
    exact = np.array(parts) / sum(parts) * total
    found = largest_remainder(np.array(parts) / sum(parts), total)
    assert found.sum() == total
    assert (abs(found - exact) < 1 + 1e-6).all()


def numbers(base: int) -> Callable[..., tf.data.Dataset]:
    """A source whose batch i is [base + i]."""
    return lambda start_step: tf.data.Dataset.counter(base + start_step).batch(1)


SOURCES = {"a": numbers(0), "b": numbers(1000), "c": numbers(2000)}
WEIGHTS = {"a": 0.5, "b": 0.2, "c": 0.3}


def taken(dataset: tf.data.Dataset) -> list[int]:
    return [int(batch[0]) for batch in dataset.as_numpy_iterator()]


def test_counts_are_exact_and_each_source_is_read_in_its_own_order() -> None:
    found = taken(mix(SOURCES, weights=WEIGHTS, steps=1000))
    assert [sum(n // 1000 == i for n in found) for i in range(3)] == [500, 200, 300]
    for i in range(3):
        own = [n for n in found if n // 1000 == i]
        assert own == list(range(1000 * i, 1000 * i + len(own)))


@pytest.mark.parametrize("start", [0, 1, 7, 400, 999, 1000])
def test_from_a_step_on_it_is_the_rest(start: int) -> None:
    whole = taken(mix(SOURCES, weights=WEIGHTS, steps=1000))
    rest = mix(SOURCES, weights=WEIGHTS, steps=1000, start_step=start)
    assert int(rest.cardinality()) == 1000 - start
    assert taken(rest) == whole[start:]
    for_ever = mix(SOURCES, weights=WEIGHTS, start_step=start)
    assert taken(for_ever.take(1000 - start)) == whole[start:]


def test_datasets_are_mixed_and_resumed(bert_dataset: Path) -> None:
    sources = {
        split: functools.partial(load, bert_dataset, split, batch_size=4, seed=3, epochs=None)
        for split in ("train", "validation")
    }
    options: dict[str, Any] = {"weights": {"train": 3, "validation": 1}, "steps": 24}
    whole = [batch["input_ids"].numpy() for batch in mix(sources, **options)]
    rest = [batch["input_ids"].numpy() for batch in mix(sources, **options, start_step=10)]
    assert len(whole) == 24
    assert np.array_equal(whole[10:], rest)


def test_temperature_makes_weights_more_equal() -> None:
    sizes = {"large": 10_000, "small": 100}
    assert temperature_weights(sizes, temperature=1.0) == {"large": 1.0, "small": 0.01}
    found = temperature_weights(sizes, temperature=2.0)
    assert np.isclose(found["large"] / found["small"], 10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"weights": {"a": 1}},
            "every source must have a weight, got sources a, b, c and weights a",
        ),
        ({"weights": {"a": 1, "b": 0, "c": 1}}, "weights must be above 0"),
        ({"start_step": -1}, "start_step must be in"),
        ({"steps": 4, "start_step": 5}, r"start_step must be in \[0, steps=4\], got 5"),
        (
            {"sources": {**SOURCES, "c": lambda start_step: tf.data.Dataset.range(9)}},
            "mixed datasets must have one element_spec, and 'c' has",
        ),
        (
            {"sources": {**SOURCES, "c": lambda start_step: numbers(0)(0).take(9)}},
            "must go on for ever, and 'c' has 9",
        ),
        (
            {"sources": {**SOURCES, "c": lambda start_step: numbers(0)(0).take(9)}, "steps": 100},
            "must have 30 batches, and 'c' has 9",
        ),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mix(**{"sources": SOURCES, "weights": WEIGHTS, **options})


def test_only_the_feature_that_differs_is_named() -> None:
    features = {"n": tf.range(4), "length": tf.range(4), "x": tf.zeros([4])}

    def source(features: dict[str, tf.Tensor]) -> Any:
        return lambda start_step: tf.data.Dataset.from_tensor_slices(features).repeat()

    def message(other: dict[str, tf.Tensor]) -> str:
        with pytest.raises(UsageError) as info:
            mix({"a": source(features), "b": source(other)}, weights={"a": 1, "b": 1})
        return str(info.value)

    assert message({**features, "x": tf.zeros([4, 2])}) == (
        "mixed datasets must have one element_spec, and 'b' has x: TensorSpec(shape=(2,), "
        "dtype=tf.float32, name=None) where 'a' has x: TensorSpec(shape=(), dtype=tf.float32, "
        "name=None): use the same batch_size and a transform that gives the same features"
    )
    assert "'b' has no 'length' where 'a' has length: TensorSpec(shape=(), dtype=tf.int32" in (
        message({name: features[name] for name in ("n", "x")})
    )


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="temperature and sizes must be above 0"):
        temperature_weights({"a": 1}, temperature=0.0)
