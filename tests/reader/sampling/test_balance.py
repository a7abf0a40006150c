from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader.loading import Reader, load
from recordmill.reader.order import FILLER, Order
from recordmill.reader.sampling.balance import (
    balance_by_label,
    balance_by_rejection,
    class_distribution,
    read_labels,
)
from recordmill.reader.sampling.balanced_order import BalancedOrder
from recordmill.records.errors import UsageError
from recordmill.records.schema import Feature, Schema

from ..small_datasets import write_dataset
from ..test_order import order

LABELLED = Schema(
    (
        Feature("id", "int64", (), "the number of the record"),
        Feature("label", "int64", (), "its class", kind="classes", classes=("cat", "dog", "emu")),
    )
)
SHARES = [0.9, 0.07, 0.03]


def labels_of(count: int) -> np.ndarray:
    return np.random.default_rng(2).choice(3, count, p=SHARES)


def write_labelled(folder: Path, sizes: list[int]) -> Path:
    ids = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    labels = labels_of(sum(sizes))
    columns = [{"id": numbers, "label": labels[numbers]} for numbers in ids]
    write_dataset(folder, {"train": columns}, LABELLED)
    histogram = dict(zip(("cat", "dog", "emu"), np.bincount(labels).tolist(), strict=True))
    (folder / "_meta/statistics.json").write_text(json.dumps({"train": {"classes": histogram}}))
    return folder


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 shards, of which every 50th is ten times as large."""
    sizes = [20 + 180 * (i % 50 == 0) for i in range(500)]
    return write_labelled(tmp_path_factory.mktemp("labelled"), sizes)


RECORDS = 500 * 20 + 10 * 180


def numbers_of(order: Order, epoch: int) -> list[int]:
    """The record numbers of an epoch, as a reader would find them."""
    found = []
    for window in range(order.windows_per_epoch):
        plan = order.window(epoch, window)
        assert all(run.count <= 32 for run in plan.read_ranges)
        number = {
            run.position + i: run.number + i for run in plan.read_ranges for i in range(run.count)
        }
        found += [number[row] if row != FILLER else FILLER for row in plan.rows.tolist()]
    return found


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    workers=st.integers(1, 3),
    batch=st.integers(1, 5),
    weights=st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any),
    seed=st.integers(0, 99),
)
def test_an_epoch_has_exactly_the_target_on_any_number_of_workers(
    sizes: list[int], workers: int, batch: int, weights: list[int], seed: int
) -> None:
    labels = np.random.default_rng(seed).integers(0, 3, sum(sizes))
    target = {i: float(w) for i, w in enumerate(weights) if (labels == i).any()}
    if not sum(target.values()):
        return
    reorder = balance_by_label(labels, target=target)
    found: list[int] = []
    for worker in range(workers):
        own = reorder(order(sizes, batch, workers, worker, seed=seed, remainder="pad"))
        found += [n for n in numbers_of(own, 0) if n != FILLER]
    assert len(found) == sum(sizes)
    counts = np.bincount(labels[found], minlength=3)
    exact = np.array([target.get(i, 0) for i in range(3)]) / sum(target.values()) * sum(sizes)
    assert (abs(counts - exact) < 1 + 1e-9).all()
    copies = Counter(found)
    for label in target:
        each = [copies[n] for n in np.flatnonzero(labels == label).tolist()]
        assert max(each) - min(each) <= 1


def test_each_epoch_draws_others_and_copies_are_apart() -> None:
    labels = np.array([0] * 3900 + [1] * 100)
    balanced = balance_by_label(labels)(order([1000] * 4, 8, window_records=256))
    assert isinstance(balanced, BalancedOrder)
    first, second = (numbers_of(balanced, epoch) for epoch in (0, 1))
    assert len(first) == 4000
    assert len({n for n in first if n < 3900} & {n for n in second if n < 3900}) < 1600
    share = [np.mean(labels[first[i : i + 256]]) for i in range(0, 3840, 256)]
    assert 0.3 < min(share) < max(share) < 0.7
    places = {}
    for at, n in enumerate(first):
        places.setdefault(n, []).append(at)
    gaps = [np.diff(at).mean() for n, at in places.items() if n >= 3900]
    assert np.mean(gaps) > 100


def test_500_shards_are_balanced_within_one_percent(labelled: Path) -> None:
    labels = read_labels(labelled, "train")
    assert (labels == labels_of(RECORDS)).all()
    reader = Reader(
        labelled, "train", batch_size=50, seed=1, epochs=2, reorder=balance_by_label(labels)
    )
    batches = list(reader.dataset().as_numpy_iterator())
    assert len(batches) == 2 * (RECORDS // 50)
    for epoch in (batches[: RECORDS // 50], batches[RECORDS // 50 :]):
        found = np.concatenate([batch["label"] for batch in epoch])
        ids = np.concatenate([batch["id"] for batch in epoch])
        assert (labels[ids] == found).all()
        assert abs(np.bincount(found) / len(found) - 1 / 3).max() < 0.01


@pytest.mark.slow
def test_a_balanced_reader_goes_on_where_it_was(labelled: Path) -> None:
    reorder = balance_by_label(read_labels(labelled, "train"), target={1: 1, 2: 3})
    options: dict[str, Any] = {"seed": 1, "reorder": reorder}

    def ids(start: int, workers: int) -> list[int]:
        parts = [
            Reader(
                labelled,
                "train",
                batch_size=60 // workers,
                start_step=start,
                num_workers=workers,
                worker_index=worker,
                **options,
            ).dataset()
            for worker in range(workers)
        ]
        steps = zip(*(part.as_numpy_iterator() for part in parts), strict=True)
        return [int(i) for step in steps for batch in step for i in batch["id"]]

    whole = ids(0, 1)
    assert whole[7 * 60 :] == ids(7, 1) == ids(7, 3)
    assert np.isclose(np.mean(labels_of(RECORDS)[whole] == 2), 0.75, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("remainder", ["pad", "keep", "repeat", "drop"])
@pytest.mark.parametrize("workers", [1, 8])
def test_the_last_batch_of_a_balanced_epoch(tmp_path: Path, remainder: Any, workers: int) -> None:
    """70 records in batches of 16: of 8 workers some have nothing in the last one."""
    folder = write_labelled(tmp_path, [40, 30])
    labels = labels_of(70)
    reorder = balance_by_label(labels)
    found: list[int] = []
    for worker in range(workers):
        batches = load(
            folder, "train", batch_size=16 // workers, reorder=reorder, remainder=remainder,
            num_workers=workers, worker_index=worker, window_records=16,
        )  # fmt: skip
        for batch in batches.as_numpy_iterator():
            mask = batch.get("row_mask", np.ones(len(batch["id"])))
            assert (batch["id"][mask == 0] == 0).all()
            assert (labels[batch["id"]] == batch["label"])[mask == 1].all()
            found += batch["id"][mask == 1].tolist()
    assert len(found) == {"drop": 64, "repeat": 80}.get(remainder, 70)
    if len(found) == 70:
        assert sorted(np.bincount(labels[found])) == [23, 23, 24]


def test_a_state_of_another_target_is_refused(labelled: Path) -> None:
    labels = read_labels(labelled, "train")

    def reader(target: dict[int, float], labels: Any = labels) -> Reader:
        reorder = balance_by_label(labels, target=target)
        return Reader(labelled, "train", batch_size=50, reorder=reorder)

    state = reader({0: 1, 1: 3}).state(7)
    assert len(state) < 1024
    reader({0: 1, 1: 3}).restore(state)
    for other in (reader({0: 3, 1: 1}), reader({0: 1, 1: 3}, np.r_[labels, 0])):
        with pytest.raises(UsageError, match=r"its reorder is 'BalancedOrder [0-9a-f]{16}' where"):
            other.restore(state)


@pytest.mark.slow
@pytest.mark.parametrize("keep_size", [False, True])
def test_rejection_meets_the_target(labelled: Path, keep_size: bool) -> None:
    shares = class_distribution(labelled, "train")
    assert np.allclose([shares[i] for i in range(3)], np.bincount(labels_of(RECORDS)) / RECORDS)
    target = {0: 0.5, 1: 0.3, 2: 0.2}
    transform = balance_by_rejection(initial_dist=shares, target=target, keep_size=keep_size)
    epochs = 8
    reader = Reader(labelled, "train", batch_size=200, seed=1, epochs=epochs, transform=transform)
    batches = list(reader.dataset().rebatch(50, drop_remainder=True).as_numpy_iterator())
    found = np.concatenate([batch["label"] for batch in batches])
    assert found.shape == (len(batches) * 50,)
    assert (labels_of(RECORDS)[np.concatenate([batch["id"] for batch in batches])] == found).all()
    assert abs(np.bincount(found) / len(found) - [0.5, 0.3, 0.2]).max() < 0.01
    rates = np.array([0.5, 0.3, 0.2]) / [shares[i] for i in range(3)]
    expected = epochs * RECORDS * (1 if keep_size else 1 / rates.max())
    assert abs(len(found) / expected - 1) < 0.03


def test_rejection_depends_on_seed_epoch_and_record_alone() -> None:
    transform = balance_by_rejection(initial_dist={0: 0.5, 1: 0.5}, target={0: 1, 1: 3})
    features = {"label": tf.constant([0, 1] * 50), "id": tf.range(100)}
    keys = tf.stack([tf.zeros([100], tf.int64), tf.range(100, dtype=tf.int64)], axis=1)
    whole = transform(features, keys)["id"].numpy().tolist()
    part = transform({k: v[40:60] for k, v in features.items()}, keys[40:60])["id"]
    assert part.numpy().tolist() == [i for i in whole if 40 <= i < 60]
    assert all(i in whole for i in range(1, 100, 2))


def test_mistakes(labelled: Path, tmp_path: Path) -> None:
    labels = read_labels(labelled, "train")
    shuffled = order([100, 100], 5)
    cases: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: balance_by_label(labels, target={3: 1}),
            "and 3 has none; the classes are 0",
        ),
        (lambda: balance_by_label(labels, target={}) and balance_by_label([]), "must be class ->"),
        (lambda: balance_by_label(labels)(replace(shuffled, seed=None)), "got shuffle=False"),
        (lambda: balance_by_label(labels)(replace(shuffled, whole_shards=True)), "got compressed"),
        (lambda: balance_by_label([0, 1])(shuffled), "record 199 is beyond the 2 given"),
        (lambda: read_labels(labelled, "train", feature="class"), "name one of id, label"),
        (lambda: balance_by_rejection(initial_dist={0: 1}, target={0: 1, 1: 1}), "and 1 has none"),
        (lambda: balance_by_rejection(initial_dist={0: -1}), "weight of 0 or more"),
        (lambda: class_distribution(labelled, "train", feature="id"), "must have a histogram"),
    ]
    for call, message in cases:
        with pytest.raises(UsageError, match=message):
            call()
    part = balance_by_label(np.r_[np.zeros(200, int), 1])(order([100, 100], 5))
    with pytest.raises(UsageError, match="class 1 must have a record in the part"):
        part.window(0, 0)
