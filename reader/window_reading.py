"""The windows of an `Order`, some at once: planned in numpy, and read.

    group number -> plan (numpy) -> records of read ranges -> rows of strings

Uncompressed shards are read in Python, see `range_reading.py`; compressed ones by tf.data, 8 read
ranges at a time. The number of a group is the whole state of the pipeline, so a start at any step
costs one group.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from recordmill.reader.damage import first_unreadable_record
from recordmill.reader.features import in_graph
from recordmill.reader.one_line_errors import check_in_graph
from recordmill.reader.order import FILLER, Order, WindowPlan
from recordmill.reader.range_reading import RangeReader, unreadable_error
from recordmill.reader.record_ranges import Ints
from recordmill.reader.source import RecordSource
from recordmill.records.errors import RunError

_RANGES_AT_ONCE = 8
_LAST_LOOKS, _LAST_LOOK_SECONDS = 3, 0.01
_LAST_READ_SECONDS = 20.0  # a disk that does not answer any more keeps no program
_IS_OVER = b"the program ends"
_BUFFER_BYTES = 1 << 20
_FOR_EVER = 1 << 62
_SHARD, _FIRST, _COUNT = range(3)  # columns of GroupPlan.read_ranges


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What a worker reads of some windows that follow each other, and the rows that it makes of it.

    Attributes:
      read_ranges: `[num_ranges, 3] int64`: shard, number of the first record in it, records.
      range_of_row: `[num_rows] int64`: the read range that holds the row's record; -1 for FILLER.
      within: `[num_rows] int64`: the record's position in it.
      keys: `[num_rows, 2] int64`: epoch and number of the record, FILLER for none.
      steps: batches to make of them; the last one can be smaller, or empty.
    """

    read_ranges: Ints
    range_of_row: Ints
    within: Ints
    keys: Ints
    steps: int

    @property
    def shards(self) -> list[int]:
        """The shards to read."""
        return [int(shard) for shard in np.unique(self.read_ranges[:, _SHARD])]


class GroupPlanner:
    """Plans groups of windows by their numbers, counted through all epochs.

    Attributes:
      first: the number of the group that holds the first step.
      groups_per_epoch: of windows.
    """

    def __init__(self, order: Order, start_step: int) -> None:
        self._order = order
        self.groups_per_epoch = -(-order.windows_per_epoch // order.windows_at_once)
        epoch, step = divmod(start_step, order.steps_per_epoch)
        self._first_window, self._from_step = divmod(step, order.window_steps)
        self.first = epoch * self.groups_per_epoch + self._first_window // order.windows_at_once

    def plan(self, number: int) -> GroupPlan:
        """Returns the plan of a group; of the first one from `start_step` on."""
        order = self._order
        epoch, group = divmod(number, self.groups_per_epoch)
        first, from_step = group * order.windows_at_once, 0
        last = min(first + order.windows_at_once, order.windows_per_epoch)
        if number == self.first:
            first, from_step = self._first_window, self._from_step
        steps = min(last * order.window_steps, order.steps_per_epoch)
        parts = []
        ranges_before = 0
        for window in range(first, last):
            window_plan = order.window(epoch, window, from_step if window == first else 0)
            parts.append(_window_arrays(window_plan, epoch, ranges_before))
            ranges_before += len(window_plan.read_ranges)
        ranges, range_of_row, within, keys = (
            np.concatenate(arrays) for arrays in zip(*parts, strict=True)
        )
        steps -= first * order.window_steps + from_step
        return GroupPlan(ranges, range_of_row, within, keys, steps)


def _window_arrays(plan: WindowPlan, epoch: int, ranges_before: int) -> tuple[Ints, ...]:
    """Returns the arrays of a `GroupPlan` for a window whose read ranges come after some others."""
    table = np.array(
        [(r.shard, r.first, r.count, r.position, r.number) for r in plan.read_ranges], np.int64
    )
    positions, numbers = table[:, 3], table[:, 4]
    range_of_row = np.searchsorted(positions, plan.rows, side="right") - 1
    within = plan.rows - positions[range_of_row]
    number_of_row = numbers[range_of_row] + within
    is_filler = plan.rows == FILLER
    number_of_row[is_filler] = FILLER
    keys = np.stack([np.full_like(number_of_row, epoch), number_of_row], axis=1)
    return table[:, :3], np.where(is_filler, -1, range_of_row + ranges_before), within, keys


def read_windows(
    source: RecordSource, order: Order, *, start_step: int, epochs: int | None, parallel_calls: int
) -> tf.data.Dataset:
    """Returns a worker's rows of windows, some windows at once, from a step on.

    Args:
      source: of the records.
      order: of the rows.
      start_step: of all epochs.
      epochs: None goes on for ever.
      parallel_calls: of reading compressed shards.

    Returns:
      A dataset of records `[num_rows] string`, empty for FILLER, keys `[num_rows, 2] int64` and
      steps `[] int64`, as in `GroupPlan`.
    """
    planner = GroupPlanner(order, start_step)
    last = _FOR_EVER if epochs is None else epochs * planner.groups_per_epoch
    numbers = tf.data.Dataset.range(planner.first, last)
    if source.record_offsets is None:
        groups = numbers.flat_map(in_graph(_CompressedReader(source, planner, parallel_calls).read))
    else:
        groups = numbers.map(in_graph(_Reader(source, planner).read))
        groups = groups.take_while(in_graph(lambda records, keys, steps: steps >= 0))
    return groups.prefetch(1 if order.workers == 1 else 2)  # one worker's group is a whole window


class _LastReads:
    """Ends all reading before the interpreter ends.

    A thread that asks for Python later is ended in the middle of a group, and the iterator that it
    works for, once it is freed, waits for that group for ever.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self._begin()
        atexit.register(self._wait)
        os.register_at_fork(after_in_child=self._begin)  # whose threads stay with the parent

    def _begin(self) -> None:
        self._busy = 0
        self._calm = threading.Condition()

    @contextmanager
    def wait_for_me(self) -> Iterator[None]:
        """Makes the end of the interpreter wait for what is done within."""
        with self._calm:
            self._busy += 1
        try:
            yield
        finally:
            with self._calm:
                self._busy -= 1
                self._calm.notify_all()

    def _wait(self) -> None:
        self.has_begun = True
        for _ in range(_LAST_LOOKS):  # what has not begun yet ends at once
            with self._calm:
                self._calm.wait_for(lambda: not self._busy, _LAST_READ_SECONDS)
            time.sleep(_LAST_LOOK_SECONDS)


_last_reads = _LastReads()


class _Reader:
    """Reads groups of windows of uncompressed shards, each by one call of Python."""

    def __init__(self, source: RecordSource, planner: GroupPlanner) -> None:
        self._guard, self._planner = source.guard, planner
        assert source.record_offsets is not None  # what is compressed is read by TensorFlow
        self._ranges = RangeReader(source.paths, source.record_offsets)

    def read(self, number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns the group of a number, `[] int64`, as `read_windows` does."""
        kinds = (tf.string, tf.int64, tf.int64, tf.string)
        # What is called stateless, tf.data does for several groups at once: in more memory, and
        # with threads that wait for each other, because all of it is Python.
        arrays = tf.numpy_function(self._read, [number], kinds, stateful=True)
        shapes: tuple[list[int | None], ...] = ([None], [None, 2], [], [])
        records, keys, steps, problem = map(tf.ensure_shape, arrays, shapes)
        with tf.control_dependencies(check_in_graph(tf.equal(problem, ""), problem)):
            return tf.identity(records), keys, steps

    def _read(self, number: np.int64) -> tuple[Any, Ints, np.int64, bytes]:
        """Returns records, keys, steps, and why they cannot be read, b"" where they can.

        Steps are -1 where the interpreter is about to end.
        """
        with _last_reads.wait_for_me():
            if _last_reads.has_begun:
                return np.zeros(0, object), np.zeros([0, 2], np.int64), np.int64(-1), b""
            return self._read_group(number)

    def _read_group(self, number: np.int64) -> tuple[Any, Ints, np.int64, bytes]:
        plan = self._planner.plan(int(number))
        rows, problem = np.zeros(0, object), self._guard.problem_of(plan.shards)
        if not problem:
            try:
                rows = self._rows(plan)
            except RunError as error:
                problem = str(error)
            problem = self._guard.problem_of(plan.shards) or problem
        return rows, plan.keys, np.int64(plan.steps), problem.encode()

    def _rows(self, plan: GroupPlan) -> Any:
        """Returns `[num_rows] object`: the record of each row."""
        records = self._ranges.read(plan.read_ranges)
        counts = plan.read_ranges[:, _COUNT]
        picks = (np.cumsum(counts) - counts)[plan.range_of_row] + plan.within
        is_real = plan.range_of_row >= 0
        rows = np.full(len(picks), b"", object)
        rows[is_real] = records[picks[is_real]]
        return rows


class _CompressedReader:
    """Reads groups of windows of compressed shards in the graph, each range from the beginning."""

    def __init__(self, source: RecordSource, planner: GroupPlanner, parallel_calls: int) -> None:
        self._source, self._planner, self._parallel_calls = source, planner, parallel_calls
        self._paths = tf.constant(source.paths)
        self._nothing = tf.data.Dataset.from_tensors(tf.zeros([0], tf.string))

    def read(self, number: tf.Tensor) -> tf.data.Dataset:
        """Returns a dataset of one element: the group of a number, as `read_windows` does."""
        kinds = (*[tf.int64] * 4, tf.string)
        arrays = tf.numpy_function(self._plan, [number], kinds, stateful=False)
        shapes: tuple[list[int | None], ...] = ([None, 3], [None], [None, 2], [], [])
        ranges, picks, keys, steps, problem = map(tf.ensure_shape, arrays, shapes)
        with tf.control_dependencies(check_in_graph(tf.equal(problem, ""), problem)):
            ranges = tf.identity(ranges)
        stride = tf.reduce_max(ranges[:, _COUNT])
        blocks = tf.data.Dataset.from_tensor_slices(ranges).interleave(
            in_graph(lambda read_range: self._read_range(read_range, stride)),
            _RANGES_AT_ONCE,
            1,
            num_parallel_calls=self._parallel_calls,
            deterministic=True,
        )

        def arranged(blocks: tf.Tensor) -> tuple[tf.Tensor, ...]:
            after = tf.numpy_function(self._problem_after, [ranges], tf.string, stateful=False)
            with tf.control_dependencies(check_in_graph(tf.equal(after, ""), after)):
                strings = tf.concat([tf.reshape(blocks, [-1]), [""]], 0)
                return tf.gather(strings, picks), keys, steps

        return blocks.batch(tf.shape(ranges, tf.int64)[0]).map(in_graph(arranged))

    def _plan(self, number: np.int64) -> tuple[Ints, Ints, Ints, np.int64, bytes]:
        """Returns read ranges, what to pick of their strings, keys, steps, and a problem or b""."""
        with _last_reads.wait_for_me():
            if _last_reads.has_begun:
                none = np.zeros([0, 3], np.int64)
                return none, none[:, 0], none[:, :2], np.int64(0), _IS_OVER
            return self._plan_group(number)

    def _plan_group(self, number: np.int64) -> tuple[Ints, Ints, Ints, np.int64, bytes]:
        plan = self._planner.plan(int(number))
        # Each range gives as many strings as the longest one.
        stride = plan.read_ranges[:, _COUNT].max()
        picks = plan.range_of_row * stride + plan.within
        picks[plan.range_of_row < 0] = len(plan.read_ranges) * stride
        problem = self._source.guard.problem_of(plan.shards).encode()
        return plan.read_ranges, picks, plan.keys, np.int64(plan.steps), problem

    def _read_range(self, read_range: tf.Tensor, stride: tf.Tensor) -> tf.data.Dataset:
        """Returns a dataset of one element: `[stride] string`, the records and empty strings."""
        path, count = self._paths[read_range[_SHARD]], read_range[_COUNT]
        records = tf.data.TFRecordDataset(path, self._source.compression, _BUFFER_BYTES)
        # Whole batches are checked, because each layer costs every record a tenth of its parsing.
        block = records.skip(read_range[_FIRST]).take(count).batch(tf.maximum(count, 1))
        block = block.concatenate(self._nothing).take(1)
        # One try: the dataset of a file that is gone fails again each time it is asked.
        once = tf.data.Dataset.from_tensors(0)
        once = once.map(in_graph(lambda _: tf.data.Dataset.get_single_element(block)))
        block = once.ignore_errors().concatenate(self._nothing).take(1)
        return block.map(in_graph(lambda records: self._fill_up(records, read_range, stride)))

    def _fill_up(self, records: tf.Tensor, read_range: tf.Tensor, stride: tf.Tensor) -> tf.Tensor:
        """Returns the records and empty strings; an error where the range ended too early."""
        size = tf.size(records, tf.int64)
        checked = tf.cond(size < read_range[_COUNT], lambda: self._fail(read_range), lambda: True)
        with tf.control_dependencies([checked]):
            return tf.pad(records, [[0, stride - size]], constant_values="")

    def _fail(self, read_range: tf.Tensor) -> tf.Tensor:
        message = tf.numpy_function(self._describe, [read_range], tf.string, stateful=False)
        with tf.control_dependencies(check_in_graph(False, message)):
            return tf.constant(True)

    def _describe(self, read_range: Ints) -> bytes:
        """Reads a range once more, in Python, to name the record at which it ends too early."""
        with _last_reads.wait_for_me():
            return _IS_OVER if _last_reads.has_begun else self._describe_range(read_range)

    def _describe_range(self, read_range: Ints) -> bytes:
        shard, first, count = map(int, read_range)
        if problem := self._source.guard.problem_of([shard]):
            return problem.encode()
        path = self._source.paths[shard]
        unreadable = first_unreadable_record(path, self._source.compression, first + count)
        return str(unreadable_error(unreadable, path)).encode()

    def _problem_after(self, read_ranges: Ints) -> bytes:
        """Returns what has happened to the shards of ranges while they were read, b"" for none."""
        with _last_reads.wait_for_me():
            if _last_reads.has_begun:
                return _IS_OVER
            shards = np.unique(read_ranges[:, _SHARD]).tolist()
            return self._source.guard.problem_of(shards).encode()
