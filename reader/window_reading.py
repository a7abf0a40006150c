"""The windows of an `Order` as vectors of strings: planned in numpy, read by tf.data.

    window number -> plan (numpy, once a window) -> read ranges, 8 at a time -> strings

The number of a window is the whole state of the pipeline, so a start at any step costs one window.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from recordmill.reader.byte_offset_dataset import LARGE_BUFFER_BYTES, records_from
from recordmill.reader.damage import first_unreadable_record
from recordmill.reader.features import in_graph
from recordmill.reader.one_line_errors import check_in_graph
from recordmill.reader.order import FILLER, Order
from recordmill.reader.record_ranges import Ints
from recordmill.reader.remote_shards import cut_records, read_bytes
from recordmill.reader.source import RecordSource
from recordmill.records.errors import RunError

_RANGES_AT_ONCE = 8
_SMALL_BUFFER_BYTES = 1 << 16
_UNREADABLE = (
    "every record must be readable, and one is not: {}; copy the shard again, or read without it "
    "by on_error='skip_record'"
)
_SHARD, _OFFSET, _SKIP, _COUNT, _FIRST = range(5)  # columns of WindowArrays.read_ranges


class WindowArrays(NamedTuple):
    """A window's plan as arrays for the graph.

    Attributes:
      read_ranges: `[num_ranges, 5] int64`: shard, byte offset, records to skip from there, records
        to read, number of the first one in its shard.
      stride: `[] int64`, the strings that each range takes: as many as the longest range has.
      picks: `[num_rows] int64`, the position of each row's record in the strings of all ranges.
      keys: `[num_rows, 2] int64`, epoch and number of the record.
      steps: `[] int64`, batches to make of them; the last one can be smaller, or empty.
      problem: `[] string`, why the window must not be read, in one line; "" where it may be.
    """

    read_ranges: Ints
    stride: np.int64
    picks: Ints
    keys: Ints
    steps: np.int64
    problem: bytes


class WindowPlanner:
    """Makes `WindowArrays` from the number of a window, counted through all epochs.

    Attributes:
      first: the number of the window that holds the first step.
    """

    def __init__(self, source: RecordSource, order: Order, start_step: int) -> None:
        self._source = source
        self._order = order
        epoch, step = divmod(start_step, order.steps_per_epoch)
        window, self._from_step = divmod(step, order.window_steps)
        self.first = epoch * order.windows_per_epoch + window

    def __call__(self, number: np.int64) -> WindowArrays:
        """Returns the plan of a window; of the first one from `start_step` on."""
        order = self._order
        epoch, window = divmod(int(number), order.windows_per_epoch)
        from_step = self._from_step if number == self.first else 0
        plan = order.window(epoch, window, from_step)
        steps_left = order.steps_per_epoch - window * order.window_steps
        steps = np.int64(min(order.window_steps, steps_left) - from_step)
        columns = [(r.shard, 0, 0, r.count, r.first) for r in plan.read_ranges]
        read_ranges = np.array(columns, np.int64)
        problem = self._source.problem_before_reading(
            read_ranges[:, _SHARD], read_ranges[:, _FIRST], read_ranges[:, _COUNT]
        )
        stride = max(np.int64(1), read_ranges[:, _COUNT].max())
        read_ranges[:, _OFFSET], read_ranges[:, _SKIP] = self._source.find(
            read_ranges[:, _SHARD], read_ranges[:, _FIRST]
        )
        positions = np.array([r.position for r in plan.read_ranges], np.int64)
        range_of_row = np.searchsorted(positions, plan.rows, side="right") - 1
        within = plan.rows - positions[range_of_row]
        picks = range_of_row * stride + within
        numbers = np.array([r.number for r in plan.read_ranges], np.int64)[range_of_row] + within
        numbers[plan.rows == FILLER] = FILLER
        keys = np.stack([np.full_like(numbers, epoch), numbers], axis=1)
        return WindowArrays(read_ranges, stride, picks, keys, steps, problem.encode())


def read_windows(
    source: RecordSource, order: Order, planner: WindowPlanner, last: int, parallel_calls: int
) -> tf.data.Dataset:
    """Returns windows from the planner's first one up to `last`, which is not included.

    Returns:
      A dataset of strings `[num_ranges * stride]`, picks `[num_rows]`, keys `[num_rows, 2]` and
      steps `[]`, as in `WindowArrays`.
    """
    reader = _RangeReader(source, order.max_range_records)

    def window(number: tf.Tensor) -> tf.data.Dataset:
        kinds = [tf.int64] * 5 + [tf.string]
        arrays = tf.numpy_function(planner, [number], kinds, stateful=False)
        shapes: tuple[list[int | None], ...] = ([None, 5], [], [None], [None, 2], [], [])
        ranges, stride, picks, keys, steps, problem = map(tf.ensure_shape, arrays, shapes)
        with tf.control_dependencies(check_in_graph(tf.equal(problem, ""), problem)):
            ranges = tf.identity(ranges)
        blocks = tf.data.Dataset.from_tensor_slices(ranges).interleave(
            in_graph(lambda read_range: reader.read(read_range, stride)),
            _RANGES_AT_ONCE,
            1,
            num_parallel_calls=parallel_calls,
            deterministic=True,
        )
        whole = blocks.batch(tf.shape(ranges, tf.int64)[0])

        def checked(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
            after = tf.numpy_function(reader.problem_after, [ranges], tf.string, stateful=False)
            with tf.control_dependencies(check_in_graph(tf.equal(after, ""), after)):
                return tf.reshape(x, [-1]), picks, keys, steps

        return whole.map(in_graph(checked))

    return tf.data.Dataset.range(planner.first, last).flat_map(in_graph(window)).prefetch(1)


class _RangeReader:
    """Reads one range at a time, in the graph."""

    def __init__(self, source: RecordSource, max_records: int) -> None:
        self._source = source
        self._paths = tf.constant(source.paths)
        self._max_records = max_records
        # A quarter of a range, so that little more than a range is read.
        quarter_bytes = max_records * source.record_bytes // 4
        self._buffer_bytes = min(max(quarter_bytes, _SMALL_BUFFER_BYTES), LARGE_BUFFER_BYTES)
        self._nothing = tf.data.Dataset.from_tensors(tf.zeros([0], tf.string))

    def read(self, read_range: tf.Tensor, stride: tf.Tensor) -> tf.data.Dataset:
        """Returns a dataset of one element: `[stride] string`, the records and empty strings.

        Args:
          read_range: `[5] int64`, a row of `WindowArrays.read_ranges`.
          stride: `[] int64`.
        """
        if self._source.is_remote:
            once = tf.data.Dataset.from_tensors(read_range)
            return once.map(in_graph(lambda each: self._read_remote(each, stride)))
        records = records_from(
            self._paths[read_range[_SHARD]], self._source.compression, read_range[_OFFSET],
            self._buffer_bytes,
        )  # fmt: skip
        if self._source.skips_records:
            records = records.skip(read_range[_SKIP])
        # Whole batches are checked, because each layer costs every record a tenth of its parsing.
        block = records.take(read_range[_COUNT]).batch(self._max_records)
        block = block.concatenate(self._nothing).take(1)
        # One try: the dataset of a file that is gone fails again each time it is asked.
        once = tf.data.Dataset.from_tensors(0)
        once = once.map(in_graph(lambda _: tf.data.Dataset.get_single_element(block)))
        block = once.ignore_errors().concatenate(self._nothing).take(1)

        def fill(records: tf.Tensor) -> tf.Tensor:
            return tf.cond(
                tf.size(records, tf.int64) == stride,
                lambda: records,
                lambda: self._fill_up(records, read_range, stride),
            )

        return block.map(fill)

    def _read_remote(self, read_range: tf.Tensor, stride: tf.Tensor) -> tf.Tensor:
        """Returns `[stride] string`; an error where a record cannot be read."""
        kinds = [tf.string, tf.string]
        arrays = tf.numpy_function(self._cut_remote, [read_range], kinds, stateful=False)
        records, problem = tf.ensure_shape(arrays[0], [None]), tf.ensure_shape(arrays[1], [])
        with tf.control_dependencies(check_in_graph(tf.equal(problem, ""), problem)):
            missing = stride - tf.size(records, tf.int64)
            return tf.pad(records, [[0, missing]], constant_values="")

    def _cut_remote(self, read_range: Ints) -> tuple[Any, bytes]:
        """Returns the records of a range, and why one cannot be read, b"" where all can."""
        shard, _, skip, count, first = map(int, read_range)
        path, offsets = self._source.paths[shard], self._source.record_offsets
        assert offsets is not None  # what is compressed is read by TensorFlow
        bounds = offsets.bounds(shard, first, count)
        try:
            data = read_bytes(path, int(bounds[0]), int(bounds[-1]))
        except RunError as error:
            return np.array([], object), str(error).encode()
        records, problem = cut_records(data, skip=skip, count=count)
        if problem:
            named = f"{path}: record {first + len(records)}: {problem}"
            return np.array([], object), _UNREADABLE.format(named).encode()
        return np.array(records, object), b""

    def _fill_up(self, records: tf.Tensor, read_range: tf.Tensor, stride: tf.Tensor) -> tf.Tensor:
        """Returns the records and empty strings; an error where the range ended too early."""
        checked = tf.cond(
            tf.size(records, tf.int64) < read_range[_COUNT],
            lambda: self._fail(read_range),
            lambda: True,
        )
        with tf.control_dependencies([checked]):
            missing = stride - tf.size(records, tf.int64)
            return tf.pad(records, [[0, missing]], constant_values="")

    def _fail(self, read_range: tf.Tensor) -> tf.Tensor:
        message = tf.numpy_function(
            self._describe_read_error, [read_range], tf.string, stateful=False
        )
        with tf.control_dependencies(check_in_graph(False, message)):
            return tf.constant(True)

    def problem_after(self, read_ranges: Ints) -> bytes:
        """Returns what has happened to the shards of ranges while they were read, "" for nothing.

        Args:
          read_ranges: of a window, as in `WindowArrays`.
        """
        return self._source.guard.problem_of(np.unique(read_ranges[:, _SHARD]).tolist()).encode()

    def _describe_read_error(self, read_range: Ints) -> Any:
        """Reads a range once more, in Python, to name the record at which it ends too early."""
        shard, offset, skip, count, first = map(int, read_range)
        if problem := self._source.guard.problem_of([shard]):
            return problem.encode()
        path = self._source.paths[shard]
        unreadable = first_unreadable_record(
            path, self._source.compression, first=first - skip, count=skip + count, offset=offset
        )
        return _UNREADABLE.format(unreadable or path).encode()
