from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader.feeding import Feed, FeedStopped, from_queue
from recordmill.records.errors import RunError, UsageError

from .feed_producers import endless, endless_large, example, produce, unpicklable

SPEC = {"x": tf.TensorSpec([2], tf.float32), "n": tf.TensorSpec([], tf.int32)}


def numbers(dataset: tf.data.Dataset) -> list[list[int]]:
    return [np.atleast_1d(batch["n"].numpy()).tolist() for batch in dataset]


def started(target: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def test_each_pass_is_an_epoch_and_a_closed_feed_is_empty() -> None:
    feed = Feed(capacity=3)
    thread = started(produce, feed, [5, 0, 4])
    dataset = from_queue(feed, element_spec=SPEC, batch_size=2)
    assert dataset.element_spec["x"].shape == (None, 2)
    assert [numbers(dataset) for _ in range(5)] == [
        [[0, 1], [2, 3], [4]], [], [[0, 1], [2, 3]], [], [],
    ]  # fmt: skip
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_repeat_reads_until_the_feed_is_closed() -> None:
    feed = Feed()
    started(produce, feed, [2, 3])
    dataset = from_queue(feed, element_spec=SPEC, batch_size=2, drop_remainder=True)
    assert numbers(dataset.repeat()) == [[0, 1], [0, 1]]


def test_one_by_one_without_a_batch_size() -> None:
    feed = Feed()
    started(produce, feed, [3])
    assert numbers(from_queue(feed, element_spec=SPEC)) == [[0], [1], [2]]


def test_the_producer_is_never_more_than_the_capacity_ahead() -> None:
    feed = Feed(capacity=4)
    put: list[int] = []

    def count() -> None:
        with feed.producing():
            for n in range(1000):
                feed.put(example(n))
                put.append(n)

    thread = started(count)
    iterator = iter(from_queue(feed, element_spec=SPEC))
    for taken in range(1, 20):
        next(iterator)
        time.sleep(0.005)
        assert len(put) <= taken + 4 + 1
    feed.stop()
    thread.join(timeout=30)
    assert not thread.is_alive()


def test_a_stopped_feed_ends_the_producer_and_can_be_reopened() -> None:
    feed = Feed(capacity=2)
    thread = started(produce, feed, [1000])
    dataset = from_queue(feed, element_spec=SPEC)
    assert numbers(dataset.take(3)) == [[0], [1], [2]]
    feed.stop()
    thread.join(timeout=30)
    assert not thread.is_alive()
    with pytest.raises(FeedStopped):
        feed.put(example(0))
    feed.reopen()
    started(produce, feed, [2])
    assert numbers(dataset) == [[0], [1]]
    assert numbers(dataset) == []


def test_an_error_of_the_producer_reaches_the_trainer() -> None:
    feed = Feed()

    def fail() -> None:
        with contextlib.suppress(KeyError), feed.producing():
            feed.put({}["no such episode"])

    started(fail)
    with pytest.raises(
        tf.errors.OpError, match="the producer of the feed failed: KeyError: 'no such"
    ):
        numbers(from_queue(feed, element_spec=SPEC))
    assert numbers(from_queue(feed, element_spec=SPEC)) == []


def test_a_producer_that_ends_or_stalls_is_noticed() -> None:
    feed = Feed()
    thread = started(feed.put, example(1))
    feed.watch(thread)
    with pytest.raises(RunError, match="has ended without"):
        list(feed.epoch())
    feed.reopen()
    with pytest.raises(RunError, match=r"must come within 0.1 s, and none did"):
        list(feed.epoch(timeout_seconds=0.1))


def test_processes_push_too_and_one_that_is_killed_is_an_error() -> None:
    context = multiprocessing.get_context("spawn")
    feed = Feed(capacity=8, processes=True)
    process = context.Process(target=produce, args=(feed, [3, 2]), daemon=True)
    process.start()
    dataset = from_queue(feed, element_spec=SPEC, batch_size=2, timeout_seconds=120)
    assert [numbers(dataset) for _ in range(3)] == [[[0, 1], [2]], [[0, 1]], []]
    process.join(timeout=60)
    assert process.exitcode == 0

    feed = Feed(capacity=8, processes=True)
    process = context.Process(target=endless, args=(feed,), daemon=True)
    process.start()
    feed.watch(process)
    examples = feed.epoch(timeout_seconds=120)
    assert next(examples)["n"] == 7
    os.kill(process.pid or 0, signal.SIGKILL)
    with pytest.raises(RunError, match="has ended without"):
        for _ in examples:
            pass


def process_of(target: Callable[..., None], *args: Any) -> Any:
    process = multiprocessing.get_context("spawn").Process(target=target, args=args, daemon=True)
    process.start()
    return process


@pytest.mark.timeout(120)
def test_a_process_killed_amid_an_example_is_an_error_and_the_feed_reopens() -> None:
    feed = Feed(capacity=2, processes=True)
    process = process_of(endless_large, feed)
    feed.watch(process)
    examples = feed.epoch()
    assert len(next(examples)["x"]) == 1 << 20
    while feed._queue.empty():  # an example is larger than the pipe: it is being written
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with pytest.raises(RunError, match="has ended without"):
        for _ in examples:
            pass
    feed.reopen()
    process = process_of(produce, feed, [2])
    feed.watch(process)
    assert [int(found["n"]) for found in feed.epoch()] == [0, 1]
    assert list(feed.epoch()) == []
    process.join()


@pytest.mark.timeout(120)
def test_one_killed_of_several_processes_is_an_error() -> None:
    feed = Feed(capacity=4, processes=True)
    running, killed = (process_of(time.sleep, 600) for _ in range(2))
    feed.watch(running, killed)
    killed.kill()
    with pytest.raises(RunError, match="has ended without"):
        next(feed.epoch())
    running.kill()


@pytest.mark.timeout(120)
def test_what_cannot_be_sent_to_the_trainer_is_an_error() -> None:
    feed = Feed(processes=True)
    feed.watch(process_of(unpicklable, feed))
    with pytest.raises(RunError, match="feed failed: TypeError: cannot pickle"):
        next(feed.epoch())


def test_wrong_options() -> None:
    with pytest.raises(UsageError, match="capacity must be 1 or more, got 0"):
        Feed(capacity=0)
    with pytest.raises(UsageError, match="batch_size must be 1 or more, got 0"):
        from_queue(Feed(), element_spec=SPEC, batch_size=0)
