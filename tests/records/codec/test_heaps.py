import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.records.codec import heaps

from ...kernels import entrance

sift_down = entrance(heaps.sift_down)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@given(values=st.lists(st.integers(0, 1 << 60), min_size=1, max_size=40), new=st.integers(0, 9))
def test_the_least_is_replaced(dtype: type, values: list[int], new: int) -> None:
    heapq.heapify(values)
    heap = np.array(values, dtype)
    sift_down(heap, len(heap), dtype(new))
    heapq.heapreplace(values, new)
    assert sorted(heap.tolist()) == sorted(values)
    assert all(heap[(i - 1) // 2] <= heap[i] for i in range(1, len(heap)))


def test_values_come_in_order() -> None:
    values = np.random.default_rng(1).permutation(100)
    heap = np.array(sorted(values), np.int64)
    taken = []
    for size in range(99, -1, -1):
        taken.append(int(heap[0]))
        sift_down(heap, size, heap[size])
    assert taken == list(range(100))
