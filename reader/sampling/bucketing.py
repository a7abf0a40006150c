"""Batches of records of similar length, so that steps have little padding.

A window of batches is sorted by length, cut into batches anew and put in random order. So there
are as many batches as before, each record is in exactly one, every worker does equal work, and a
step number is where to go on from: what tf.data's `bucket_by_sequence_length` cannot offer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recordmill.reader import draws
from recordmill.reader.dataset import open_dataset
from recordmill.reader.features import Features, in_graph
from recordmill.records.errors import UsageError
from recordmill.records.manifest import STATISTICS_PATH
from recordmill.records.statistics_file import read_split_statistics

if TYPE_CHECKING:
    import tensorflow as tf


def stored_lengths(path: str | os.PathLike[str], split: str) -> npt.NDArray[np.int64]:
    """Returns `[max_length + 1] int64`: how many records of a split have each length.

    Raises:
      UsageError: the dataset's statistics have no lengths.
    """
    dataset = open_dataset(path)
    dataset.split(split)
    content = dataset.read(STATISTICS_PATH)
    lengths = read_split_statistics(content, split, dataset.path).tokens_per_example
    if not lengths:
        raise UsageError(
            f"{dataset.path} must have tokens_per_example in {STATISTICS_PATH}, and has none: give "
            "boundaries of your own"
        )
    return np.array(lengths, np.int64)


def bucket_boundaries(
    lengths: npt.ArrayLike, *, buckets: int, multiple_of: int = 8
) -> tuple[int, ...]:
    """Returns the boundaries that need the least padding, by dynamic programming.

    Args:
      lengths: `[max_length + 1]` integers, the number of records of length 0, 1, …; from
        `stored_lengths`.
      buckets: the most boundaries: as many shapes a model is compiled for.
      multiple_of: boundaries are multiples of it, as accelerators like them.

    Returns:
      Ascending lengths; the last one holds the longest record.

    Raises:
      UsageError: a value is below 1, or there are no records.
    """
    counts = np.asarray(lengths, np.int64)
    if buckets < 1 or multiple_of < 1 or not counts.any():
        raise UsageError(
            f"buckets and multiple_of must be 1 or more and lengths not all 0, got {buckets}, "
            f"{multiple_of} and {counts.sum()} records"
        )
    groups = -(-np.arange(len(counts)) // multiple_of)
    up_to = np.cumsum(np.bincount(groups, weights=counts))
    used = np.flatnonzero(np.diff(up_to, prepend=0))
    used = np.unique(np.maximum(used, 1))
    records = up_to[used]
    # cost[i]: the least tokens that hold all records up to used[i], with a boundary there.
    cost = records * used
    parents = []
    for _ in range(min(buckets, len(used)) - 1):
        from_each = cost[:, None] + (records[None, :] - records[:, None]) * used[None, :]
        from_each[np.tril_indices(len(used))] = np.inf
        parent = from_each.argmin(axis=0)
        parents.append(np.where(from_each.min(axis=0) < cost, parent, -1))
        cost = np.minimum(cost, from_each.min(axis=0))
    chosen = [len(used) - 1]
    for parent in reversed(parents):
        if parent[chosen[-1]] >= 0:
            chosen.append(int(parent[chosen[-1]]))
    return tuple(int(used[i]) * multiple_of for i in reversed(chosen))


def bucket_by_length(
    source: Callable[..., tf.data.Dataset],
    *,
    length: str,
    along: Sequence[str],
    boundaries: Sequence[int],
    window_batches: int = 64,
    pad_value: int = 0,
    seed: int = 0,
    start_step: int = 0,
) -> tf.data.Dataset:
    """Returns the batches of `source` with records of like length together.

        source = functools.partial(load, "ds", "train", batch_size=32, transform=mask_tokens(…))
        tokens = ("input_ids", "input_mask")
        bucket_by_length(source, length="input_mask", along=tokens, boundaries=(32, 64, 128))

    Args:
      source: a function of `start_step` that returns batches of one known size.
      length: the feature that gives lengths: a ragged one, or a mask that is 1 on tokens.
      along: the features, dense or ragged, that are cut or padded to the batch's boundary.
      boundaries: lengths, ascending; from `bucket_boundaries`. A longer record is an error.
      window_batches: batches that are sorted together. Memory: two windows.
      pad_value: behind ragged features.
      seed: of the order of the batches of a window.
      start_step: batches to pass over; at most a window of them is read again.

    Raises:
      UsageError: a wrong value, a batch size that is not known, or no such feature.
    """
    if window_batches < 1 or start_step < 0:
        raise UsageError(
            f"window_batches must be 1 or more and start_step 0 or more, got {window_batches} and "
            f"{start_step}"
        )
    buckets = _Buckets(length, tuple(along), tuple(boundaries), pad_value, seed)
    first_window, skipped_batches = divmod(start_step, window_batches)
    dataset = source(start_step=first_window * window_batches)
    return buckets.apply(dataset, window_batches, first_window, skipped_batches)


@dataclass(frozen=True, slots=True)
class _Buckets:
    """How batches are rearranged; `bucket_by_length` says what the fields are."""

    length: str
    along: tuple[str, ...]
    boundaries: tuple[int, ...]
    pad_value: int
    seed: int

    def __post_init__(self) -> None:
        boundaries = list(self.boundaries)
        if boundaries != sorted(set(boundaries)) or not boundaries or min(boundaries) < 1:
            raise UsageError(f"boundaries must ascend from 1 or more, got {boundaries}")

    def apply(
        self, dataset: tf.data.Dataset, window_batches: int, first_window: int, skipped_batches: int
    ) -> tf.data.Dataset:
        """Returns the rearranged batches of a dataset that begins with a window."""
        import tensorflow as tf

        from recordmill.reader.one_line_errors import raise_one_line

        batch_size = self._batch_size(dataset.element_spec)

        def rearrange(number: tf.Tensor, features: Features) -> tf.data.Dataset:
            return self._rearrange(number, features, batch_size)

        windows = dataset.batch(window_batches).enumerate(first_window)
        bucketed = windows.flat_map(in_graph(rearrange)).skip(skipped_batches)
        left = int(dataset.cardinality())
        if left >= 0:
            left = max(0, left - skipped_batches)
            bucketed = bucketed.apply(tf.data.experimental.assert_cardinality(left))
        return raise_one_line(bucketed.prefetch(tf.data.AUTOTUNE))

    def _batch_size(self, spec: Any) -> int:
        absent = [name for name in (self.length, *self.along) if name not in spec]
        if absent:
            raise UsageError(
                f"the batches must have {absent[0]!r}, and have {', '.join(sorted(spec))}"
            )
        batch_size: int | None = spec[self.length].shape[0]
        if batch_size is None:
            raise UsageError(
                "bucket_by_length needs batches of one size: load with remainder='drop'"
            )
        return batch_size

    def _rearrange(self, number: tf.Tensor, features: Features, batch_size: int) -> tf.data.Dataset:
        """Returns the batches of a window: sorted by length, cut anew, in random order.

        Args:
          number: `[] int64`, of the window.
          features: `[window_batches, batch_size, …]` each.
          batch_size: rows a batch.
        """
        import tensorflow as tf

        rows = {name: _merge(values) for name, values in features.items()}
        lengths = _lengths(rows[self.length])
        count = tf.size(lengths) // batch_size
        groups = tf.reshape(tf.argsort(lengths, stable=True), [count, batch_size])
        key = tf.stack([tf.zeros([], tf.int64), number])[None]
        state = draws.start(key, seed=self.seed, purpose="buckets")
        order = tf.argsort(draws.unit(state, tf.range(count))[0])

        def take(group: tf.Tensor) -> Features:
            batch = {name: tf.gather(values, group) for name, values in rows.items()}
            limit = self._boundary(tf.reduce_max(tf.gather(lengths, group)))
            return batch | {name: _fit(batch[name], limit, self.pad_value) for name in self.along}

        return tf.data.Dataset.from_tensor_slices(tf.gather(groups, order)).map(in_graph(take))

    def _boundary(self, longest: tf.Tensor) -> tf.Tensor:
        """Returns the boundary that holds the longest record of a batch."""
        import tensorflow as tf

        from recordmill.reader.one_line_errors import check_in_graph

        message = tf.strings.join(
            [
                f"bucket_by_length: a record is beyond the last boundary, {self.boundaries[-1]}, "
                "and has ",
                tf.strings.as_string(longest),
                " tokens",
            ]
        )
        with tf.control_dependencies(check_in_graph(longest <= self.boundaries[-1], message)):
            limits = tf.constant(self.boundaries, tf.int32)
            return limits[tf.searchsorted(limits, longest[None])[0]]


def _merge(values: Any) -> Any:
    """Returns `[window, batch, …]` as `[rows, …]`."""
    import tensorflow as tf

    if isinstance(values, tf.RaggedTensor):
        return values.merge_dims(0, 1)
    return tf.reshape(values, tf.concat([[-1], tf.shape(values)[2:]], axis=0))


def _lengths(values: Any) -> tf.Tensor:
    import tensorflow as tf

    if isinstance(values, tf.RaggedTensor):
        return tf.cast(values.row_lengths(), tf.int32)
    return tf.reduce_sum(tf.cast(values > 0, tf.int32), axis=1)


def _fit(values: Any, length: tf.Tensor, pad_value: int) -> tf.Tensor:
    import tensorflow as tf

    if not isinstance(values, tf.RaggedTensor):
        return values[:, :length]
    padding = "" if values.dtype == tf.string else tf.cast(pad_value, values.dtype)
    return values.to_tensor(padding, shape=tf.stack([-1, length]))
