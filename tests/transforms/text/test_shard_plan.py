from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.dataset.output_spec import ShardSpec, SplitSpec
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.shuffle.run_files import CELL_BITS
from recordmill.transforms.shuffle.shard_ranges import SplitShards

END = 1 << 64


def split_plan(cells: dict[int, int], shards: int = 1) -> SplitShards:
    numbers = sorted(cells)
    sums = np.cumsum([cells[number] for number in numbers])
    return SplitShards("train", shards, 1, 1, np.array(numbers, np.int64), sums.astype(np.int64))


histograms = st.dictionaries(
    st.integers(0, (1 << CELL_BITS) - 1),
    st.one_of(st.integers(1, 9), st.integers(1, 1 << 40)),
    min_size=1,
    max_size=20,
)


@settings(max_examples=200, deadline=None)
@given(cells=histograms, denominator=st.integers(1, 300))
def test_positions_rise_from_the_first_hash_to_the_last(cells, denominator):
    plan = split_plan(cells)
    bounds = [plan.hash_at(i, denominator) for i in range(denominator + 1)]
    assert bounds[0] == 0
    assert bounds[-1] == END
    assert bounds == sorted(bounds)
    # A position is where it is, in whatever units it is told.
    assert bounds == [plan.hash_at(7 * i, 7 * denominator) for i in range(denominator + 1)]


@settings(max_examples=100, deadline=None)
@given(cells=histograms, denominator=st.integers(1, 50))
def test_a_position_is_a_share_of_the_weight(cells, denominator):
    plan = split_plan(cells)
    total = sum(cells.values())
    width = END >> CELL_BITS
    for i in range(1, denominator):
        hashed = plan.hash_at(i, denominator)
        cell, inside = divmod(hashed, width)
        below = sum(weight for number, weight in cells.items() if number < cell)
        below += cells.get(cell, 0) * inside / width
        assert below == pytest.approx(total * i / denominator, rel=1e-9, abs=1e-6)


@settings(max_examples=150, deadline=None)
@given(
    cells=histograms,
    shards=st.integers(1, 7),
    blocks=st.integers(1, 3),
    copies=st.integers(1, 5),
)
def test_shards_and_blocks_share_out_every_copy(cells, shards, blocks, copies):
    plan = split_plan(cells, shards)
    whole = shards * blocks * copies
    for copy in range(copies):
        ranges = sorted(
            bounds
            for number in range(shards * blocks)
            for bounds in plan.ranges(
                number * copies, (number + 1) * copies, whole, copy * shards * blocks
            )
        )
        assert ranges[0][0] == 0
        assert ranges[-1][1] == END
        assert all(low < high for low, high in ranges)
        assert all(a[1] == b[0] for a, b in pairwise(ranges))


def test_copies_stand_apart():
    plan = split_plan(dict.fromkeys(range(0, 1 << CELL_BITS, 64), 1), shards=10)
    # One shard of ten, one block, five copies: each copy a fifth of the split further on.
    found = [list(plan.ranges(0, 5, 50, copy * 10)) for copy in range(5)]
    starts = [ranges[0][0] / END for ranges in found]
    assert starts == pytest.approx([0, 0.8, 0.6, 0.4, 0.2], abs=1e-3)


def shares(*splits: tuple[str, int | None]) -> tuple[SplitSpec, ...]:
    return tuple(SplitSpec(name, 1 / len(splits), number) for name, number in splits)


@pytest.mark.parametrize(
    ("weights", "numbers", "spec", "expected"),
    [
        ([30 * 10**9], [None], ShardSpec(num_readers=8), [80]),
        ([30 * 10**9, 3 * 10**9], [None, None], ShardSpec(num_readers=8), [80, 8]),
        ([400 * 10**6], [None], ShardSpec(num_readers=8), [40]),
        ([10**6], [None], ShardSpec(num_readers=8), [1]),
        ([19 * 10**6], [None], ShardSpec(num_readers=8), [1]),
        ([20 * 10**6], [None], ShardSpec(num_readers=8), [2]),
        ([10**6, 10**9], [None, None], ShardSpec(num_readers=8), [1, 100]),
        ([0], [None], ShardSpec(num_readers=8), [1]),
        ([10**9], [None], ShardSpec(), [5]),
        ([10**9, 10**6], [None, None], ShardSpec(shard_bytes=10**8), [10, 1]),
        ([10**9, 10**8], [3, None], ShardSpec(), [3, 1]),
        ([10**9, 10**9], [30, 7], ShardSpec(), [30, 7]),
        ([10**9, 5 * 10**8], [30, None], ShardSpec(num_readers=8), [30, 15]),
    ],
)
def test_count_shards(weights, numbers, spec, expected):
    names = ["train", "validation", "test"]
    splits = shares(*zip(names, numbers, strict=False))
    assert count_shards(weights, splits, spec) == expected
