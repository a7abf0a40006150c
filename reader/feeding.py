"""Examples that are made while training runs: a thread or a process pushes, tf.data pulls.

feed = Feed(capacity=256)                 # Feed(capacity=256, processes=True) for a process

def produce():
    with feed.producing():                # an exception in here reaches the trainer
        for epoch in range(3):
            for example in simulate(epoch):
                feed.put(example)         # waits while the feed is full
            feed.end_epoch()
        feed.close()

threading.Thread(target=produce).start()
dataset = from_queue(feed, element_spec={"x": tf.TensorSpec([4])}, batch_size=32)
for batch in dataset: ...                 # one epoch; the next loop is the next one
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from recordmill.records.errors import RunError, UsageError

if TYPE_CHECKING:
    import tensorflow as tf

_POLL_SECONDS = 0.2
_QUIET_POLLS = 10  # after which nothing is on its way from a process that has ended
_EXAMPLE, _END_EPOCH, _CLOSE, _ERROR = "example", "end of epoch", "close", "error"


class FeedStopped(Exception):  # noqa: N818 - not an error: the trainer needs no more examples
    """Raised by `Feed.put` when the trainer has called `Feed.stop`."""


class FeedProducer(Protocol):
    """A `threading.Thread` or a `multiprocessing.Process`."""

    def is_alive(self) -> bool:
        """Returns whether it runs."""
        ...


class Feed:
    """A bounded queue with epochs, between one or more producers and one trainer.

    Args:
      capacity: the examples that wait at most; beyond it `put` waits.
      processes: the producer is another process, which gets the feed as an argument.

    Raises:
      UsageError: the capacity is below 1.
    """

    def __init__(self, *, capacity: int = 256, processes: bool = False) -> None:
        if capacity < 1:
            raise UsageError(f"capacity must be 1 or more, got {capacity}")
        self._capacity = capacity
        self._processes = processes
        self._closed = False
        self._workers: tuple[FeedProducer, ...] = ()
        self._connect()

    def _connect(self) -> None:
        # Spawned: a fork of a process that runs TensorFlow may hang.
        context = multiprocessing.get_context("spawn")
        capacity, processes = self._capacity, self._processes
        self._queue: Any = context.Queue(capacity) if processes else queue.Queue(capacity)
        self._stopped: Any = context.Event() if processes else threading.Event()
        self._arrived: Any = None if processes else self._queue

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_workers": (), "_arrived": None}

    # For the producer.

    def put(self, example: Mapping[str, Any]) -> None:
        """Adds an example, feature -> value; waits while the feed is full.

        Raises:
          FeedStopped: the trainer needs no more.
        """
        self._send(_EXAMPLE, dict(example))

    def end_epoch(self) -> None:
        """Ends the trainer's current pass; what is put from now on belongs to the next one."""
        self._send(_END_EPOCH, None)

    def close(self) -> None:
        """Ends the feed: further passes of the trainer are empty."""
        self._send(_CLOSE, None)

    def fail(self, error: BaseException) -> None:
        """Ends the trainer's pass with an error that names `error`."""
        self._send(_ERROR, f"{type(error).__name__}: {error}")

    @contextlib.contextmanager
    def producing(self) -> Iterator[None]:
        """Hands an exception of the producer to the trainer, and ends quietly when it stops."""
        with contextlib.suppress(FeedStopped):
            try:
                yield
            except FeedStopped:
                raise
            except BaseException as error:
                self.fail(error)
                raise

    def _send(self, kind: str, content: Any) -> None:
        message: Any = (kind, content)
        if self._processes:  # pickled here, where an error can be raised
            message = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        while not self._stopped.is_set():
            try:
                self._queue.put(message, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return
        raise FeedStopped

    # For the trainer.

    def watch(self, *workers: FeedProducer) -> None:
        """Makes it an error for all producers to end, or for one to be killed, without `close`."""
        self._workers = workers

    def stop(self) -> None:
        """Ends the producers: their next `put` raises FeedStopped."""
        self._stopped.set()

    def reopen(self) -> None:
        """Empties the feed and makes it ready for new producers, after `close` or `stop`."""
        if any(map(_was_killed, self._workers)):  # it may have left half a message, or held a lock
            self._connect()
        else:
            self._drain()
            self._stopped.clear()
        self._closed = False
        self._workers = ()

    def epoch(self, timeout_seconds: float | None = None) -> Iterator[dict[str, Any]]:
        """Yields the examples up to the next end of an epoch.

        Raises:
          RunError: the producer failed, or ended without `close`, or sent nothing for so long.
        """
        while not self._closed:
            kind, content = self._receive(timeout_seconds)
            if kind == _EXAMPLE:
                yield content
            elif kind == _END_EPOCH:
                return
            else:
                self._closed = True
                if kind == _ERROR:
                    raise RunError(f"the producer of the feed failed: {content}")

    def _drain(self) -> None:
        while True:
            try:
                self._arrivals().get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if self._queue.empty():
                    return

    def _arrivals(self) -> Any:
        """Returns the queue to read: what a process sends passes a thread, which may wait for ever.

        `multiprocessing.Queue.get` has no time limit once a message has begun to arrive.
        """
        if self._arrived is None:
            self._arrived = queue.Queue(1)
            ends = (self._queue, self._arrived)
            threading.Thread(target=_pass_on, args=ends, daemon=True).start()
        return self._arrived

    def _receive(self, timeout_seconds: float | None) -> tuple[str, Any]:
        started = time.monotonic()
        quiet = 0
        while True:
            ended = self._has_ended()
            try:
                message = self._arrivals().get(timeout=_POLL_SECONDS)
                received: tuple[str, Any] = pickle.loads(message) if self._processes else message
                return received
            except queue.Empty:
                quiet = quiet + 1 if ended and self._queue.empty() else 0
            if quiet >= (_QUIET_POLLS if self._processes else 1):
                raise RunError(
                    "the producer of the feed must call end_epoch() and close(), and has ended "
                    "without: see what ended it"
                )
            if timeout_seconds is not None and time.monotonic() - started > timeout_seconds:
                raise RunError(
                    f"an example must come within {timeout_seconds} s, and none did: see what the "
                    "producer waits for, or give a larger timeout_seconds"
                )

    def _has_ended(self) -> bool:
        alive = [worker.is_alive() for worker in self._workers]
        return bool(alive) and (not any(alive) or any(map(_was_killed, self._workers)))


def _was_killed(worker: FeedProducer) -> bool:
    return (getattr(worker, "exitcode", None) or 0) < 0


def _pass_on(source: Any, target: queue.Queue[Any]) -> None:
    while True:
        target.put(source.get())


def _whole(feature: str, value: Any, dtype: np.dtype[Any] | None) -> Any:
    """Returns a value as whole numbers of a dtype: TensorFlow would wrap or cut those that are not.

    Args:
      feature: that has it.
      value: a number, or an array or list of them; anything else stays as it is.
      dtype: of its element_spec where that is of integers, else None.

    Raises:
      RunError: a number is another one as this dtype.
    """
    if dtype is None or hasattr(value, "row_splits"):
        return value
    array = np.asarray(value)
    is_long = array.dtype == object and all(isinstance(each, int) for each in array.flat)
    if array.dtype == dtype or (array.dtype.kind not in "iuf" and not is_long):
        return value
    if is_long:  # integers beyond 64 bits, which no dtype has
        array = array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        cast = array.astype(dtype)
    if (cast != array).any():
        raise RunError(
            f"feature {feature!r} must fit {dtype}, the dtype of its element_spec, and a value is "
            f"{array[cast != array].flat[0]}; give it a wider dtype in element_spec"
        )
    return cast


def from_queue(
    feed: Feed,
    *,
    element_spec: Mapping[str, Any],
    batch_size: int | None = None,
    drop_remainder: bool = False,
    timeout_seconds: float | None = None,
) -> tf.data.Dataset:
    """Returns a dataset whose every pass is one epoch of a feed.

    A pass that is left before its end goes on in the next one; one over a closed feed is empty, so
    that `repeat()` ends. Nothing is read ahead: the producer is at most the feed's capacity ahead,
    a process by two examples more.

    Args:
      feed: to read.
      element_spec: feature -> `tf.TensorSpec` or `tf.RaggedTensorSpec` of one example.
      batch_size: examples a batch; None gives them one by one.
      drop_remainder: drops an epoch's last batch where it is smaller.
      timeout_seconds: to wait for an example; None waits as long as it takes.

    Raises:
      UsageError: a wrong value.
      RunError: while iterating, as `Feed.epoch`, and where a number does not fit the integers of
        its spec. Where TensorFlow iterates, as in `model.fit`, its
        own error holds that line.
    """
    import tensorflow as tf

    from recordmill.reader.one_line_errors import raise_one_line

    if batch_size is not None and batch_size < 1:
        raise UsageError(f"batch_size must be 1 or more, got {batch_size}")
    kinds = {
        name: np.dtype(spec.dtype.as_numpy_dtype)
        for name, spec in element_spec.items()
        if spec.dtype.is_integer
    }
    messages: list[str] = []  # TensorFlow's error would hold no more than their text

    def epoch() -> Iterator[dict[str, Any]]:
        try:
            for example in feed.epoch(timeout_seconds):
                yield {name: _whole(name, v, kinds.get(name)) for name, v in example.items()}
        except RunError as error:
            messages.append(str(error))
            raise

    examples = tf.data.Dataset.from_generator(epoch, output_signature=dict(element_spec))
    if batch_size is not None:
        examples = examples.batch(batch_size, drop_remainder=drop_remainder)
    return raise_one_line(examples, lambda *_: messages.pop() if messages else None)
