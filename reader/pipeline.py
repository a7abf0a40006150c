"""An `Order` as a tf.data pipeline.

    windows, numbered -> plan (numpy, once a window) -> runs, read 8 at a time -> [rows] strings
    -> chunks of batches, gathered and parsed -> batches -> transforms -> prefetch

Records travel as vectors of strings and are parsed some thousand at once: handing them on, or
parsing them, one by one costs several times as much. What stands for a place in the pipeline is a
window's number alone, so that beginning anywhere costs one window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from recordmill.reader.damage import first_damage
from recordmill.reader.order import FILLER, Order
from recordmill.reader.parsing import Batch, batch_parser
from recordmill.reader.records_from import LARGE_BUFFER_BYTES, RecordsFrom
from recordmill.reader.shards import Ints, RecordPlaces
from recordmill.records.errors import RunError
from recordmill.records.schema import Schema

Transform: TypeAlias = "Callable[[Batch, tf.Tensor], Batch]"

_CHUNK_RECORDS = 2048
_RUNS_AT_ONCE = 8
_SMALL_BUFFER_BYTES = 1 << 16
_FOR_EVER = 1 << 62


_plain = tf.autograph.experimental.do_not_convert  # quick to trace, and errors stay what they are


@dataclass(frozen=True)
class Source:
    """Where the records are.

    Attributes:
      paths: of the shards, in the order that stretches count in.
      compression: "", "GZIP" or "ZLIB".
      places: of the records; None where files can only be read from the beginning.
      schema: of the records.
      record_bytes: the mean size of a record.
      complaints: what was said of records that could not be read.
    """

    paths: tuple[str, ...]
    compression: str
    places: RecordPlaces | None
    schema: Schema
    record_bytes: int
    complaints: list[str] = field(default_factory=list)

    @property
    def skips(self) -> bool:
        """True where a run can begin behind the place where reading begins."""
        return self.places is None or self.places.every > 1

    def offsets(self, shards: Ints, firsts: Ints) -> tuple[Ints, Ints]:
        """Returns the bytes to begin at, and the records to skip from there."""
        return self.places.find(shards, firsts) if self.places else (0 * firsts, firsts)


class _Planner:
    """Window number -> arrays for the graph."""

    def __init__(self, source: Source, order: Order, start_step: int) -> None:
        self._source = source
        self._order = order
        epoch, step = divmod(start_step, order.steps_per_epoch)
        window, self._from_step = divmod(step, order.window_steps)
        self.first = epoch * order.windows_per_epoch + window

    def __call__(self, number: np.int64) -> tuple[Ints, np.int64, Ints, Ints, np.int64]:
        """Returns the parts of a window.

        Returns:
          runs: `[num_runs, 5] int64`: shard, byte offset, records to skip, records, first record.
          places: that each run has in the strings, as many as the longest needs.
          picks: `[num_rows] int64`, the place of each row in the runs' strings.
          keys: `[num_rows, 2] int64`, epoch and number of the record.
          steps: batches to make of them; the last one can be smaller, or empty.
        """
        order = self._order
        epoch, window = divmod(int(number), order.windows_per_epoch)
        from_step = self._from_step if number == self.first else 0
        plan = order.window(epoch, window, from_step)
        left = order.steps_per_epoch - window * order.window_steps
        steps = np.int64(min(order.window_steps, left) - from_step)
        runs = np.array([(r.shard, 0, 0, r.count, r.first) for r in plan.runs], np.int64)
        places = max(np.int64(1), runs[:, 3].max())
        runs[:, 1], runs[:, 2] = self._source.offsets(runs[:, 0], runs[:, 4])
        positions = np.array([run.position for run in plan.runs], np.int64)
        which = np.searchsorted(positions, plan.rows, side="right") - 1
        within = plan.rows - positions[which]
        picks = which * places + within
        numbers = np.array([run.number for run in plan.runs], np.int64)[which] + within
        numbers[plan.rows == FILLER] = FILLER
        keys = np.stack([np.full_like(numbers, epoch), numbers], axis=1)
        return runs, places, picks, keys, steps


def _complain(source: Source, run: Ints) -> None:
    """Raises an error that names the record at which a run ends too early."""
    shard, offset, skip, count, first = map(int, run)
    path = source.paths[shard]
    damage = first_damage(
        path, source.compression, first=first - skip, count=skip + count, offset=offset
    )
    source.complaints.append(
        f"every record must be readable, and one is not: {damage or path}; copy the shard again, "
        "or read without it by on_error='skip_record'"
    )
    raise RunError(source.complaints[-1])


def _read_windows(
    source: Source, order: Order, planner: _Planner, last: int, parallel_calls: int
) -> tf.data.Dataset:
    """Returns windows: strings `[runs * stride]`, picks `[rows]`, keys `[rows, 2]`, steps `[]`."""
    paths = tf.constant(source.paths)
    size = order.run_records
    # A quarter of a run, so that little more than a run is read.
    buffer_bytes = min(
        max(size * source.record_bytes // 4, _SMALL_BUFFER_BYTES), LARGE_BUFFER_BYTES
    )
    nothing = tf.data.Dataset.from_tensors(tf.zeros([0], tf.string))

    def complain(run: Ints) -> np.bool_:
        _complain(source, run)
        return np.bool_(True)

    def fill_up(records: tf.Tensor, run: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        checked = tf.cond(
            tf.size(records, tf.int64) < run[3],
            lambda: tf.numpy_function(complain, [run], tf.bool, stateful=False),
            lambda: True,
        )
        with tf.control_dependencies([checked]):
            missing = places - tf.size(records, tf.int64)
            return tf.pad(records, [[0, missing]], constant_values="")

    def read(run: tf.Tensor, places: tf.Tensor) -> tf.data.Dataset:
        records: tf.data.Dataset = RecordsFrom(
            paths[run[0]], source.compression, run[1], buffer_bytes
        )
        if source.skips:
            records = records.skip(run[2])
        # Whole batches are checked, because each layer costs every record a tenth of its parsing.
        block = records.take(run[3]).batch(size).ignore_errors().concatenate(nothing).take(1)
        return block.map(
            lambda x: tf.cond(
                tf.size(x, tf.int64) == places, lambda: x, lambda: fill_up(x, run, places)
            )
        )

    def window(number: tf.Tensor) -> tf.data.Dataset:
        runs, places, picks, keys, steps = tf.numpy_function(
            planner, [number], [tf.int64] * 5, stateful=False
        )
        runs = tf.ensure_shape(runs, [None, 5])
        places = tf.ensure_shape(places, [])
        picks = tf.ensure_shape(picks, [None])
        keys = tf.ensure_shape(keys, [None, 2])
        steps = tf.ensure_shape(steps, [])
        blocks = tf.data.Dataset.from_tensor_slices(runs).interleave(
            _plain(lambda run: read(run, places)),
            _RUNS_AT_ONCE,
            1,
            num_parallel_calls=parallel_calls,
            deterministic=True,
        )
        whole = blocks.batch(tf.shape(runs, tf.int64)[0])
        return whole.map(_plain(lambda x: (tf.reshape(x, [-1]), picks, keys, steps)))

    return tf.data.Dataset.range(planner.first, last).flat_map(_plain(window)).prefetch(1)


def _parse_rows(
    source: Source,
    order: Order,
    windows: tf.data.Dataset,
    transforms: Sequence[Transform],
    parallel_calls: int,
) -> tf.data.Dataset:
    """Returns batches of features."""
    batch = order.batch_size
    keep, pad = order.remainder == "keep", order.remainder == "pad"
    parse = batch_parser(source.schema, filler=pad)
    dense = all(f.values is not None and not f.sequence for f in source.schema.features)
    together = max(1, _CHUNK_RECORDS // batch) if dense and not keep else 1

    def chunks(
        strings: tf.Tensor, picks: tf.Tensor, keys: tf.Tensor, steps: tf.Tensor
    ) -> tf.data.Dataset:
        def take(begin: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            end = begin + together * batch
            rows = picks[begin:end]
            if order.seed is not None:
                return tf.gather(strings, rows), keys[begin:end]
            first = tf.reduce_min(rows)
            records = tf.cond(
                tf.reduce_all(rows[1:] - rows[:-1] == 1),
                lambda: strings[first : first + tf.size(rows, tf.int64)],  # shares their memory
                lambda: tf.gather(strings, rows),
            )
            return records, keys[begin:end]

        return tf.data.Dataset.range(0, steps * batch, together * batch).map(_plain(take))

    def parse_chunk(records: tf.Tensor, keys: tf.Tensor) -> tuple[Batch, tf.Tensor]:
        if together == 1 and not keep:
            records = tf.ensure_shape(records, [batch])
            keys = tf.ensure_shape(keys, [batch, 2])
        features = parse(records)
        if pad:
            features["row_mask"] = tf.cast(keys[:, 1] != FILLER, tf.int32)
        return features, keys

    def parse_batches(records: tf.Tensor, keys: tf.Tensor) -> Any:
        chunk = parse_chunk(records, keys)
        return tf.nest.map_structure(
            lambda x: tf.reshape(x, [-1, batch, *x.shape[1:]]), chunk if transforms else chunk[0]
        )

    def transform_batch(features: Batch, keys: tf.Tensor) -> Batch:
        for transform in transforms:
            features = transform(features, keys)
        return features

    def parallel(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        return dataset.map(_plain(function), parallel_calls, deterministic=True)

    rows = windows.flat_map(_plain(chunks))
    if together == 1:
        return parallel(rows, lambda *row: transform_batch(*parse_chunk(*row)))
    batches = parallel(rows, parse_batches).flat_map(
        _plain(lambda *chunk: tf.data.Dataset.from_tensor_slices(chunk if transforms else chunk[0]))
    )
    return parallel(batches, transform_batch) if transforms else batches


def read_only(source: Source, order: Order) -> tf.data.Dataset:
    """Returns the windows of an epoch, read and not parsed: for measuring."""
    planner = _Planner(source, order, 0)
    return _read_windows(source, order, planner, order.windows_per_epoch, tf.data.AUTOTUNE)


def build_dataset(
    source: Source,
    order: Order,
    *,
    epochs: int | None,
    start_step: int,
    transforms: Sequence[Transform],
    parallel_calls: int | None,
) -> tf.data.Dataset:
    """Returns the batches of one worker, from a step on."""
    calls = tf.data.AUTOTUNE if parallel_calls is None else parallel_calls
    planner = _Planner(source, order, start_step)
    last = _FOR_EVER if epochs is None else epochs * order.windows_per_epoch
    windows = _read_windows(source, order, planner, last, calls)
    dataset = _parse_rows(source, order, windows, transforms, calls)
    if epochs is None:
        count = tf.data.INFINITE_CARDINALITY
    else:
        count = epochs * order.steps_per_epoch - start_step
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)
