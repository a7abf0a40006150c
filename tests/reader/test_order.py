"""The order of an epoch, by arithmetic alone: no file is read."""

from __future__ import annotations

from itertools import chain
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader.options import Remainder
from recordmill.reader.order import FILLER, Order
from recordmill.reader.record_ranges import RecordRange


def record_ranges(sizes: list[int]) -> tuple[RecordRange, ...]:
    ends = np.cumsum(sizes)
    return tuple(
        RecordRange(shard, 0, size, int(end) - size)
        for shard, (size, end) in enumerate(zip(sizes, ends, strict=True))
        if size
    )


def order(sizes: list[int], batch: int, workers: int = 1, worker: int = 0, **more) -> Order:
    values = {"seed": 7, "remainder": "drop", "window_records": 64, "block_records": 8, **more}
    return Order(record_ranges(sizes), batch, workers, worker, **values)


def steps(order: Order, epoch: int = 0) -> list[list[int]]:
    """The numbers of the records of each step, as a reader would find them."""
    rows = []
    for window in range(order.windows_per_epoch):
        plan = order.window(epoch, window)
        number = {
            run.position + i: run.number + i for run in plan.read_ranges for i in range(run.count)
        }
        assert all(run.count <= order.block_records for run in plan.read_ranges)
        rows += [number[row] if row != FILLER else FILLER for row in plan.rows.tolist()]
    return [rows[at : at + order.batch_size] for at in range(0, len(rows), order.batch_size)]


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.lists(st.integers(0, 90), min_size=1, max_size=9).filter(lambda s: sum(s) > 0),
    batch=st.integers(1, 9),
    workers=st.integers(1, 7),
    shuffle=st.booleans(),
    remainder=st.sampled_from(get_args(Remainder)),
    window=st.integers(1, 300),
    block=st.integers(1, 40),
    epoch=st.integers(0, 3),
)
def test_workers_share_an_epoch(
    sizes, batch, workers, shuffle, remainder, window, block, epoch
) -> None:
    made = [
        order(
            sizes, batch, workers, w, seed=3 if shuffle else None, remainder=remainder,
            window_records=window, block_records=block,
        )
        for w in range(workers)
    ]  # fmt: skip
    total, whole = sum(sizes), sum(sizes) // (batch * workers)
    per_worker = [steps(o, epoch) for o in made]
    if remainder != "keep":
        assert {len(s) for s in per_worker} == {made[0].steps_per_epoch}
        assert all(len(step) == batch for s in per_worker for step in s)
    everything = [row for s in per_worker for step in s for row in step]
    real = [row for row in everything if row != FILLER]
    assert set(real) <= set(range(total))
    if remainder == "drop":
        assert len(real) == len(set(real)) == whole * batch * workers
    elif remainder == "repeat":
        assert set(real) == set(range(total))
        assert len(everything) == made[0].steps_per_epoch * batch * workers
    else:
        assert sorted(real) == list(range(total))
    # The same global batches for one worker of the same global batch.
    alone = steps(
        order(
            sizes, batch * workers, seed=3 if shuffle else None, remainder=remainder,
            window_records=window, block_records=block,
        ), epoch,
    )  # fmt: skip
    if remainder != "keep":
        together = [
            [row for s in per_worker for row in s[step]] for step in range(len(per_worker[0]))
        ]
        assert together == alone
    elif whole:
        assert [r for s in per_worker for r in s[0]] == alone[0]


@pytest.mark.parametrize("remainder", get_args(Remainder))
def test_seven_uneven_shards_three_workers(remainder: str) -> None:
    sizes = [5, 40, 17, 1, 0, 33, 11]
    made = [order(sizes, 4, 3, w, remainder=remainder) for w in range(3)]
    counts = [len(steps(o)) for o in made]
    assert len({o.steps_per_epoch for o in made}) == 1
    rows = [r for o in made for step in steps(o) for r in step if r != FILLER]
    if remainder == "drop":
        assert counts == [8, 8, 8]
        assert len(set(rows)) == len(rows) == 96
    else:
        assert made[0].steps_per_epoch == 9
        assert set(rows) == set(range(107))
        assert len(rows) == (108 if remainder == "repeat" else 107)


def test_unshuffled_is_the_written_order() -> None:
    assert list(chain(*steps(order([5, 40, 17], 2, seed=None)))) == list(range(62))


def test_each_epoch_and_seed_has_another_order() -> None:
    made = order([100, 50], 5)
    assert steps(made, 0) != steps(made, 1)
    assert steps(made, 0) == steps(order([100, 50], 5), 0)
    assert steps(made, 0) != steps(order([100, 50], 5, seed=8), 0)


@pytest.mark.parametrize("workers", [1, 2, 8, 64])
def test_a_worker_reads_its_own_records_only(workers: int) -> None:
    made = order(
        [20_000, 12_000], 256 // workers, workers, workers - 1, window_records=8192,
        block_records=128,
    )  # fmt: skip
    for window in range(made.windows_per_epoch):
        plan = made.window(0, window)
        assert sum(run.count for run in plan.read_ranges) == len(plan.rows)


def test_a_worker_reads_its_own_records_only_in_order() -> None:
    made = order([900, 100], 10, 5, 2, seed=None, window_records=100, block_records=64)
    plan = made.window(0, 1)
    assert [(run.shard, run.first, run.count) for run in plan.read_ranges] == [
        (0, 120, 10),
        (0, 170, 10),
    ]


def test_beginning_late_reads_one_window() -> None:
    made = order([100_000], 16, window_records=4096, block_records=64)
    for step in (0, 1, 255, 256, 5000):
        window, from_step = divmod(step, made.window_steps)
        plan = made.window(0, window, from_step)
        assert sum(run.count for run in plan.read_ranges) <= 4096
        assert plan.rows.tolist() == list(chain(*steps_of(made, window)))[16 * from_step :]


def steps_of(made: Order, window: int) -> list[list[int]]:
    rows = made.window(0, window).rows.tolist()
    return [rows[at : at + made.batch_size] for at in range(0, len(rows), made.batch_size)]


@pytest.mark.parametrize("batch", [64, 512, 4096])
def test_the_order_is_near_a_full_permutation(batch: int) -> None:
    made = order([50_000] * 4, batch, window_records=8192, block_records=256)
    found = np.array(list(chain(*steps(made))))
    assert abs(np.abs(found - np.arange(len(found))).mean() / len(found) - 1 / 3) < 0.03
    near = np.abs(np.diff(found))
    assert (near == 1).mean() < 0.001
    assert (near < 500).mean() < 0.06


def test_golden_order() -> None:
    """Changing the order changes what a state means: a decision for the changelog."""
    assert steps(order([10, 6], 4, window_records=8, block_records=4)) == GOLDEN


GOLDEN = [[6, 3, 2, 1], [7, 0, 4, 5], [15, 12, 8, 13], [9, 10, 14, 11]]
