"""Readers that stop and go on, on as many workers or on others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from recordmill.reader import Reader, load
from recordmill.records.errors import UsageError

from .small_datasets import ids


@pytest.mark.slow
@pytest.mark.parametrize(("stop", "shuffle"), [(47, True), (150, True), (109, False)])
def test_four_workers_stop_and_six_go_on(many: Path, stop: int, shuffle: bool) -> None:
    more = {"shuffle": shuffle, "epochs": 3, "seed": 5, "window_records": 600}

    def readers(count: int) -> list[Reader]:
        return [
            Reader(many, "train", batch_size=48 // count, num_workers=count, worker_index=w, **more)
            for w in range(count)
        ]

    def together(workers: list[list[Any]]) -> list[int]:
        return [i for step in zip(*workers, strict=True) for i in ids(step)]

    def take(reader: Reader, count: int) -> list[Any]:
        return [batch for batch, _ in zip(reader, range(count), strict=False)] if count else []

    before = readers(4)
    first = together([list(iter(take(reader, stop))) for reader in before])
    state = before[0].state(stop)
    assert len(state.encode()) < 1024
    after = readers(6)
    for reader in after:
        reader.restore(state)
    second = together([list(reader) for reader in after])
    assert first + second == ids(load(many, "train", batch_size=48, **more))


def test_a_reader_knows_its_step(many: Path) -> None:
    reader = Reader(many, "train", batch_size=100, epochs=None)
    numbers = reader.as_numpy()
    seen = ids(next(numbers) for _ in range(7))
    assert json.loads(reader.state())["step"] == 7
    other = Reader(many, "train", batch_size=100, epochs=None)
    other.restore(reader.state())
    assert ids([next(iter(other))]) == ids([next(numbers)])
    assert not set(seen) & set(ids([next(other.as_numpy())]))


def test_restoring_costs_one_window_wherever_it_begins(many: Path, monkeypatch: Any) -> None:
    """Counted in records read, by what the plan asks for."""
    from recordmill.reader import window_reading

    plans: list[window_reading.GroupPlan] = []
    plan = window_reading.GroupPlanner.plan

    def counted(self: Any, number: int) -> Any:
        plans.append(plan(self, number))
        return plans[-1]

    monkeypatch.setattr(window_reading.GroupPlanner, "plan", counted)
    for start in (0, 24, 50 * 1000):
        plans.clear()
        next(iter(load(many, "train", batch_size=100, epochs=None, start_step=start,
                       window_records=500)))  # fmt: skip
        assert max(plan.read_ranges[:, 2].sum() for plan in plans) <= 500
        assert plans[0].keys[0, 0] == start // 50
        assert plans[0].steps == 5 - start % 5
        assert len(plans) <= 10, "and what is read ahead"


def test_a_state_of_another_order_is_refused(many: Path, uneven: Path) -> None:
    state = Reader(many, "train", batch_size=48).state()
    for reader, message in (
        (Reader(many, "train", batch_size=24), "its global_batch is 48 where this reader has 24"),
        (Reader(many, "train", batch_size=48, seed=1), "its seed is 0 where this reader has 1"),
        (Reader(uneven, "train", batch_size=48), "its dataset is"),
    ):
        with pytest.raises(UsageError, match=f"must be of the same order, and {message}"):
            reader.restore(state)
    with pytest.raises(UsageError, match="must be what state"):
        Reader(many, "train", batch_size=48).restore("nonsense")


def test_a_state_of_another_block_size_is_refused(many: Path) -> None:
    reader = Reader(many, "train", batch_size=48, window_records=640)
    state = json.loads(reader.state())
    assert state["block_records"] == 40
    with pytest.raises(
        UsageError, match="its block_records is 20 where this reader has 40"
    ) as info:
        reader.restore(json.dumps({**state, "block_records": 20}))
    assert "\n" not in str(info.value)
    with pytest.raises(UsageError, match="its order_version is 0 where this reader has 1"):
        reader.restore(json.dumps({**state, "order_version": 0}))
    del state["block_records"]
    with pytest.raises(UsageError, match="must name the reader's block_records, and has none"):
        reader.restore(json.dumps(state))


def test_tensorflow_s_own_checkpoints(many: Path, tmp_path: Path) -> None:
    def iterator() -> Any:
        return iter(load(many, "train", batch_size=50, window_records=500))

    first = iterator()
    before = ids(next(first) for _ in range(33))
    path = tf.train.Checkpoint(iterator=first).save(str(tmp_path / "checkpoint"))
    after = ids(first)
    second = iterator()
    tf.train.Checkpoint(iterator=second).restore(path)
    assert ids(second) == after
    assert sorted(before + after) == list(range(5000))
