from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.text.cleaning.identities import positions_of, ranks_of

HALVES = st.sampled_from([0, 1, 2, 1 << 63, (1 << 64) - 1])
IDENTITIES = st.lists(st.tuples(HALVES, HALVES), max_size=30)


@given(IDENTITIES, IDENTITIES)
def test_ranks_and_positions(
    given_ones: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    ordered, ranks = ranks_of(np.array(given_ones, np.uint64).reshape(-1, 2))
    assert [tuple(row) for row in ordered.tolist()] == sorted(set(given_ones))
    assert [tuple(ordered[rank].tolist()) for rank in ranks] == given_ones
    found = positions_of(ordered, np.array(more, np.uint64).reshape(-1, 2))
    known = sorted(set(given_ones))
    assert found.tolist() == [known.index(one) if one in known else -1 for one in more]
