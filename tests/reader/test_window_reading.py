"""Groups of windows, by arithmetic alone: no file is read."""

from __future__ import annotations

from itertools import chain
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader.options import Remainder
from recordmill.reader.order import FILLER, Order
from recordmill.reader.window_reading import GroupPlanner

from .test_order import order

EPOCHS = 2


def steps(order: Order, start_step: int = 0) -> list[list[tuple[int, int]]]:
    """The (epoch, number of the record) of each row of each step, as a reader would find them."""
    planner = GroupPlanner(order, start_step)
    found = []
    for number in range(planner.first, EPOCHS * planner.groups_per_epoch):
        plan = planner.plan(number)
        numbers = [FILLER] * len(plan.keys)
        for row, (which, within) in enumerate(
            zip(plan.range_of_row.tolist(), plan.within.tolist(), strict=True)
        ):
            if which >= 0:
                shard, first, count = plan.read_ranges[which].tolist()
                assert 0 <= within < count
                base = next(r for r in order.record_ranges if r.shard == shard)
                numbers[row] = base.number + first - base.first + within
        assert numbers == plan.keys[:, 1].tolist()
        rows = [(int(epoch), number) for epoch, number in plan.keys]
        size = order.batch_size
        found += [rows[step * size : (step + 1) * size] for step in range(plan.steps)]
    return found


@settings(deadline=None, max_examples=12)
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=9).filter(lambda s: sum(s) >= 192),
    batch=st.integers(1, 3),
    shuffle=st.booleans(),
    remainder=st.sampled_from(get_args(Remainder)),
    window=st.integers(1, 900),
    block=st.integers(1, 60),
    data=st.data(),
)
def test_a_step_has_the_same_rows_for_1_2_16_and_64_workers(
    sizes, batch, shuffle, remainder, window, block, data
) -> None:
    global_batch = 64 * batch
    more = {
        "seed": 3 if shuffle else None, "remainder": remainder, "window_records": window,
        "block_records": block,
    }  # fmt: skip
    alone = steps(order(sizes, global_batch, **more))
    start = data.draw(st.integers(0, len(alone)))
    for workers in (1, 2, 16, 64):
        made = [order(sizes, global_batch // workers, workers, w, **more) for w in range(workers)]
        for begin in (0, start):
            each = [steps(worker, begin) for worker in made]
            together = [sorted(chain(*rows)) for rows in zip(*each, strict=True)]
            assert together == [sorted(rows) for rows in alone[begin:]]


@pytest.mark.parametrize("workers", [1, 2, 16, 64])
def test_a_worker_of_many_reads_thousands_of_records_at_once(workers: int) -> None:
    made = order(
        [100_000] * 3, 256, workers, workers - 1, window_records=20_000, block_records=1250
    )
    planner = GroupPlanner(made, 0)
    for group in range(planner.groups_per_epoch):
        plan = planner.plan(group)
        assert plan.read_ranges[:, 2].sum() == len(plan.keys) == plan.steps * 256
        assert len(plan.keys) <= (20_000 if workers == 1 else 10_000)
    reads = made.steps_per_epoch * 256 / 5000
    assert planner.groups_per_epoch <= 1.2 * reads + 1


def test_beginning_late_reads_nothing_that_lies_before() -> None:
    made = order([30_000], 4, 16, 1, window_records=4096, block_records=256)
    whole = steps(made)
    for start in (0, 1, 5, made.windows_at_once * made.window_steps, made.steps_per_epoch):
        planner = GroupPlanner(made, start)
        plan = planner.plan(planner.first)
        assert np.array_equal(plan.keys[:4], whole[start])
        window_rows = made.window_steps * 4
        assert plan.read_ranges[:, 2].sum() < len(plan.keys) + window_rows
