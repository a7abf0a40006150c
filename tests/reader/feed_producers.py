"""Producers for the tests of feeds; a process that runs one imports no TensorFlow."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np

from recordmill.reader.feeding import Feed


def example(n: int) -> dict[str, Any]:
    return {"x": np.full(2, n, np.float32), "n": np.int32(n)}


def produce(feed: Feed, epochs: list[int]) -> None:
    with feed.producing():
        for size in epochs:
            for n in range(size):
                feed.put(example(n))
            feed.end_epoch()
        feed.close()


def endless_large(feed: Feed) -> None:
    with feed.producing():
        while True:
            feed.put({"x": np.zeros(1 << 20, np.uint8)})


def unpicklable(feed: Feed) -> None:
    with contextlib.suppress(TypeError), feed.producing():
        feed.put({"x": threading.Lock()})


def endless(feed: Feed) -> None:
    with feed.producing():
        while True:
            feed.put(example(7))
