from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from recordmill.records.ranges import merge_ranges

ranges = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(ranges.filter(lambda pair: pair[0] < pair[1]), max_size=8))
def test_the_union_is_sorted_and_apart(given):
    merged = merge_ranges(given)
    numbers = [number for low, high in merged for number in range(low, high)]
    assert numbers == sorted({number for low, high in given for number in range(low, high)})
    assert all(a[1] < b[0] for a, b in pairwise(merged))
