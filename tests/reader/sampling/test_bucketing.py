from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader import load
from recordmill.reader.sampling.bucketing import bucket_boundaries, bucket_by_length, stored_lengths
from recordmill.records.errors import UsageError


def padded(lengths: list[int], boundaries: tuple[int, ...]) -> int:
    """The tokens of all records when each is padded to the next boundary."""
    ends = np.array(boundaries)[np.searchsorted(boundaries, np.arange(len(lengths)))]
    return int((ends * lengths).sum())


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=14).filter(lambda c: any(c[1:])),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_no_other_boundaries_need_less_padding(
    counts: list[int], buckets: int, multiple: int
) -> None:
    found = bucket_boundaries(counts, buckets=buckets, multiple_of=multiple)
    longest = max(i for i, count in enumerate(counts) if count)
    top = -(-longest // multiple) * multiple
    assert found[-1] == top
    assert len(found) <= buckets
    assert all(boundary % multiple == 0 for boundary in found)
    counts = counts[: longest + 1]
    inner = range(multiple, top, multiple)
    best = min(
        padded(counts, (*choice, top))
        for size in range(min(buckets, len(inner) + 1))
        for choice in itertools.combinations(inner, size)
    )
    assert padded(counts, found) == best


def source(count: int, batch: int = 4, *, ragged: bool) -> Callable[..., tf.data.Dataset]:
    """Record i has (7 i mod 13) + 1 tokens i, and the id i."""
    lengths = [7 * i % 13 + 1 for i in range(count)]
    ids = tf.ragged.constant([[i] * n for i, n in enumerate(lengths)], tf.int32)
    mask = tf.sequence_mask(lengths, 16, tf.int32)
    features = {"id": tf.range(count), "input_ids": ids, "input_mask": mask}
    if not ragged:
        features["input_ids"] = ids.to_tensor(shape=[None, 16])
    batches = tf.data.Dataset.from_tensor_slices(features).batch(batch, drop_remainder=True)
    return lambda start_step: batches.skip(start_step)


def bucketed(count: int = 40, *, ragged: bool = False, **options: Any) -> tf.data.Dataset:
    values: dict[str, Any] = {
        "length": "input_ids" if ragged else "input_mask",
        "along": ("input_ids", "input_mask"),
        "boundaries": (4, 8, 16),
        "window_batches": 5,
    }
    return bucket_by_length(source(count, ragged=ragged), **values | options)


@pytest.mark.parametrize("ragged", [False, True])
def test_batches_hold_like_lengths_and_every_record_once(ragged: bool) -> None:
    dataset = bucketed(ragged=ragged)
    assert int(dataset.cardinality()) == 10
    batches = list(dataset.as_numpy_iterator())
    assert len(batches) == 10
    found = [i for batch in batches for i in batch["id"].tolist()]
    assert sorted(found) == list(range(40))
    assert sorted(found[:20]) == list(range(20))
    shapes = set()
    for batch in batches:
        lengths = batch["input_mask"].sum(axis=1)
        boundary = next(b for b in (4, 8, 16) if b >= lengths.max())
        assert batch["input_ids"].shape == batch["input_mask"].shape == (4, boundary)
        assert (batch["input_ids"] == batch["id"][:, None] * batch["input_mask"]).all()
        shapes.add(boundary)
    assert shapes == {4, 8, 16}
    tokens = sum(7 * i % 13 + 1 for i in range(40))
    assert sum(batch["input_ids"].size for batch in batches) < 1.5 * tokens < 40 * 16


def test_batches_come_in_random_order_by_seed() -> None:
    widths = [
        [batch["input_ids"].shape[1] for batch in bucketed(seed=seed).as_numpy_iterator()]
        for seed in (1, 1, 2)
    ]
    assert widths[0] == widths[1] != widths[2]
    assert widths[0][:5] != sorted(widths[0][:5])


@pytest.mark.parametrize("start", [0, 1, 5, 7, 10])
def test_from_a_step_on_it_is_the_rest(start: int) -> None:
    whole = [batch["id"].tolist() for batch in bucketed().as_numpy_iterator()]
    rest = bucketed(start_step=start)
    assert int(rest.cardinality()) == 10 - start
    assert [batch["id"].tolist() for batch in rest.as_numpy_iterator()] == whole[start:]


def test_boundaries_come_from_what_the_pipeline_counted(bert_dataset: Path) -> None:
    counts = stored_lengths(bert_dataset, "train")
    stored = json.loads((bert_dataset / "_meta/statistics.json").read_text())["train"]
    assert counts.tolist() == stored["tokens_per_example"]
    boundaries = bucket_boundaries(counts, buckets=3)
    found = bucket_by_length(
        functools.partial(load, bert_dataset, "train", batch_size=8),
        length="input_mask", along=("input_ids", "input_mask", "segment_ids"),
        boundaries=boundaries,
    )  # fmt: skip
    batches = list(found.as_numpy_iterator())
    assert len(batches) == int(found.cardinality())
    assert {batch["segment_ids"].shape[1] for batch in batches} <= set(boundaries)
    assert all(batch["masked_lm_ids"].shape == (8, 10) for batch in batches)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"boundaries": (8, 4)}, r"boundaries must ascend from 1 or more, got \[8, 4\]"),
        ({"window_batches": 0}, "window_batches must be 1 or more"),
        ({"length": "words"}, "the batches must have 'words', and have id, input_ids, input_mask"),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bucketed(**options)


def test_more_mistakes(tmp_path: Path, bert_dataset: Path) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="beyond the last boundary"):
        list(bucketed(boundaries=(4, 8)))
    one = source(8, ragged=False)(start_step=0)
    with pytest.raises(UsageError, match="needs batches of one size"):
        bucket_by_length(
            lambda start_step: one.unbatch().batch(3),
            length="input_mask", along=(), boundaries=(16,),
        )  # fmt: skip
    with pytest.raises(UsageError, match="got 0, 8 and 3 records"):
        bucket_boundaries([1, 2], buckets=0)
