"""Binary heaps in arrays, for kernels: the least is first."""

from __future__ import annotations

from typing import Any

from recordmill.records.codec.jit import subroutine


@subroutine
def sift_down(heap: Any, count: int, value: Any) -> None:
    """Puts a value in the place of the least one of a heap.

    Args:
      heap: `[count or more]`: of which the first `count` are a heap, 1 or more.
      count: how many.
      value: of the same dtype.
    """
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value
