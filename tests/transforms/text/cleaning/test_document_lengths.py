from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.text.cleaning.document_lengths import LengthFilter

Parts = list[list[int]]  # the tokens of each part of each document


def judged(
    documents: Parts, batches: list[int], least: int, most: int | None
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """The parts that are kept, and the documents that are too short and too long.

    Args:
      documents: their parts.
      batches: how many parts the batches have, again and again.
    """
    parts = [(d, p) for d, lengths in enumerate(documents) for p in range(len(lengths))]
    judge: LengthFilter[tuple[int, int]] = LengthFilter(least, most)
    kept, short, long = [], [], []
    at = 0
    while at < len(parts):
        taken = parts[at : at + batches[at % len(batches)]]
        # A document begins and ends within a batch or is cut by its bounds: one part of each.
        taken = [x for i, x in enumerate(taken) if i == 0 or x[1] == 0]
        end = at + 1
        while end - at < len(taken) and parts[end] == taken[end - at]:
            end += 1
        taken = parts[at:end]
        continues, goes_on = taken[0][1] > 0, end < len(parts) and parts[end][1] > 0
        counts = np.array([documents[d][p] for d, p in taken], np.int64)
        verdicts = judge.judge(counts, continues=continues, goes_on=goes_on)
        kept += verdicts.released
        kept += [x for x, keep in zip(taken, verdicts.keep, strict=True) if keep]
        if verdicts.waits:
            judge.hold(taken[-1])
        short += [taken[i][0] for i in verdicts.too_short.tolist()]
        long += [taken[i][0] for i in verdicts.too_long.tolist()]
        at = end
    return kept, short, long


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(0, 12),
    st.one_of(st.none(), st.integers(12, 30)),
)
def test_parts_are_judged_as_the_whole_document_is(
    documents: Parts, batches: list[int], least: int, most: int | None
) -> None:
    kept, short, long = judged(documents, batches, least, most)
    wanted_short = [d for d, parts in enumerate(documents) if 0 < sum(parts) < least]
    most = most or 1000
    wanted_long = [d for d, parts in enumerate(documents) if sum(parts) > most]
    assert sorted(short) == wanted_short
    assert sorted(long) == wanted_long
    left_out = {*wanted_short, *wanted_long}
    wanted = [
        (d, p) for d, parts in enumerate(documents) if d not in left_out for p in range(len(parts))
    ]
    with_tokens = {(d, p) for d, p in wanted if documents[d][p]}
    assert {x for x in kept if documents[x[0]][x[1]]} == with_tokens
    assert len(kept) == len(set(kept))


def test_what_waits_is_bounded_by_the_limit() -> None:
    judge: LengthFilter[int] = LengthFilter(0, 100)
    one = np.array([60], np.int64)
    assert judge.judge(one, continues=False, goes_on=True).waits
    verdicts = judge.judge(one, continues=True, goes_on=True)
    assert not verdicts.waits
    assert verdicts.too_long.tolist() == [0]
    assert verdicts.released == []
    assert judge.judge(one, continues=True, goes_on=False).too_long.tolist() == []


@pytest.mark.parametrize("least", [0, 5])
def test_without_a_bound_above_nothing_waits_that_is_long_enough(least: int) -> None:
    judge: LengthFilter[int] = LengthFilter(least, None)
    assert not judge.judge(np.array([1, 5]), continues=False, goes_on=True).waits
