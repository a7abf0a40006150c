"""Processor time of a piece of work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def best_seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Returns the best of some runs, in seconds of processor time: other processes do not count."""
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best
