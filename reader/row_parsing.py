"""Parse windows of strings into batches of features.

Records are parsed some thousand at once: one by one costs several times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from recordmill.reader.features import Features, Transform, in_graph
from recordmill.reader.order import FILLER, Order
from recordmill.reader.parsing import batch_parser
from recordmill.reader.source import RecordSource

_CHUNK_RECORDS = 2048


class RowParser:
    """Makes batches of windows, chunk by chunk.

    A chunk is as many batches as are parsed at once: one where batches have no fixed shape.

    Args:
      source: of the records.
      order: that the windows have.
      transforms: called on each batch, one after the other.
      parallel_calls: of parsing and of transforms.
    """

    def __init__(
        self,
        source: RecordSource,
        order: Order,
        transforms: Sequence[Transform],
        parallel_calls: int,
    ) -> None:
        self._batch_size = order.batch_size
        self._keeps_remainder = order.remainder == "keep"
        self._pads = order.remainder == "pad"
        self._transforms = transforms
        self._parallel_calls = parallel_calls
        self._parse = batch_parser(source.schema, source.narrowing, filler=self._pads)
        dense = all(f.values is not None and not f.sequence for f in source.schema.features)
        whole = dense and not self._keeps_remainder
        self._chunk_batches = max(1, _CHUNK_RECORDS // self._batch_size) if whole else 1

    def batches(self, windows: tf.data.Dataset) -> tf.data.Dataset:
        """Returns batches of features: feature -> `[batch_size, *shape]`.

        Args:
          windows: from `read_windows`.
        """
        chunks = windows.flat_map(in_graph(self._chunks))
        if self._chunk_batches == 1:
            return self._map(chunks, lambda *chunk: self._transform(*self._parse_chunk(*chunk)))
        batches = self._map(chunks, self._parse_batches).flat_map(
            in_graph(lambda *chunk: tf.data.Dataset.from_tensor_slices(self._unless_unused(chunk)))
        )
        return self._map(batches, self._transform) if self._transforms else batches

    def _map(self, dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
        return dataset.map(in_graph(function), self._parallel_calls, deterministic=True)

    def _unless_unused(self, chunk: Any) -> Any:
        """Returns (features, keys), or features alone where no transform needs keys."""
        return chunk if self._transforms else chunk[0]

    def _chunks(self, records: tf.Tensor, keys: tf.Tensor, steps: tf.Tensor) -> tf.data.Dataset:
        """Returns the chunks of some windows: `[rows] string` and `[rows, 2] int64`."""
        chunk_rows = self._chunk_batches * self._batch_size

        def take(begin: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return records[begin : begin + chunk_rows], keys[begin : begin + chunk_rows]

        return tf.data.Dataset.range(0, steps * self._batch_size, chunk_rows).map(in_graph(take))

    def _parse_chunk(self, records: tf.Tensor, keys: tf.Tensor) -> tuple[Features, tf.Tensor]:
        if self._chunk_batches == 1 and not self._keeps_remainder:
            records = tf.ensure_shape(records, [self._batch_size])
            keys = tf.ensure_shape(keys, [self._batch_size, 2])
        features = self._parse(records)
        if self._pads:
            features["row_mask"] = tf.cast(keys[:, 1] != FILLER, tf.int32)
        return features, keys

    def _parse_batches(self, records: tf.Tensor, keys: tf.Tensor) -> Any:
        """Returns a chunk's features, `[chunk_batches, batch_size, *shape]` each."""
        return tf.nest.map_structure(
            lambda x: tf.reshape(x, [-1, self._batch_size, *x.shape[1:]]),
            self._unless_unused(self._parse_chunk(records, keys)),
        )

    def _transform(self, features: Features, keys: tf.Tensor) -> Features:
        for transform in self._transforms:
            features = transform(features, keys)
        return features
