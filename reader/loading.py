"""A split of a dataset as batches of tensors.

    shuffled: shards in random order -> 8 at a time, block by block -> windows, permuted -> batches
    in order: shards one after the other                                                 -> batches

Records travel in blocks, as vectors of strings, until they are parsed as a batch: handing them on
one by one costs up to three times their parsing. For the same reason the shuffle buffer is a window
that is permuted as a whole.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from recordmill.reader.dataset import Split, check_schema, open_dataset
from recordmill.reader.parsing import batch_parser
from recordmill.records.errors import UsageError
from recordmill.records.hashing import seed_for
from recordmill.records.schema import Schema

if TYPE_CHECKING:
    import tensorflow as tf

_SHARDS_AT_ONCE = 8
_BLOCK_RECORDS = 128
_BLOCK_BYTES = 1 << 20
_WINDOW_RECORDS = 8192
_WINDOW_BYTES = 1 << 26


def load(
    path: str | os.PathLike[str],
    split: str,
    *,
    batch_size: int,
    shuffle: bool = True,
    seed: int = 0,
    shuffle_buffer: int | None = None,
    drop_remainder: bool = True,
    schema: Schema | None = None,
) -> tf.data.Dataset:
    """Returns one pass over a split of a finished dataset, in batches.

    The order is the same for the same dataset, arguments and TensorFlow. Each further pass over the
    returned dataset, by `repeat` or by a new loop, has another order, as with tf.data's `shuffle`.

    Args:
      path: the folder that holds `_SUCCESS`; local, or `gs://…` by TensorFlow's own file systems.
      split: its name, such as "train".
      batch_size: records a batch.
      shuffle: False reads the records exactly as they were written, shard after shard.
      seed: of the shuffling.
      shuffle_buffer: records that are shuffled together, after the shards themselves: 8,192, or as
        many as take 64 MiB where that is fewer. Rounded up to whole batches.
      drop_remainder: drops the records beyond the last whole batch, so that every shape is known.
        False keeps them, as a smaller batch: for evaluation.
      schema: the features that the caller was made for, where a difference should be an error.

    Returns:
      A dataset of feature name -> `[batch_size, *shape]` int32, float32 or string; RaggedTensor for
      features whose length varies. Its cardinality is known.

    Raises:
      UsageError: no `_SUCCESS`, no such split, another schema, or not one batch to be had.
    """
    dataset = open_dataset(path)
    chosen = dataset.split(split)
    if schema is not None:
        check_schema(dataset, schema)
    _check_sizes(chosen, batch_size, shuffle_buffer, drop_remainder)

    import tensorflow as tf

    compression = dataset.manifest.compression
    if shuffle:
        batches = _shuffled_batches(
            chosen, compression, batch_size=batch_size, drop_remainder=drop_remainder, seed=seed,
            window=_window_records(chosen, batch_size, shuffle_buffer),
        )  # fmt: skip
    else:
        records = tf.data.TFRecordDataset(list(chosen.paths), compression_type=compression)
        batches = records.batch(batch_size, drop_remainder=drop_remainder)
    parsed = batches.map(batch_parser(dataset.schema), tf.data.AUTOTUNE, deterministic=True)
    count = chosen.records // batch_size
    if not drop_remainder and chosen.records % batch_size:
        count += 1
    return parsed.prefetch(tf.data.AUTOTUNE).apply(tf.data.experimental.assert_cardinality(count))


def _check_sizes(
    split: Split, batch_size: int, shuffle_buffer: int | None, drop_remainder: bool
) -> None:
    if batch_size < 1:
        raise UsageError(f"batch_size must be 1 or more, got {batch_size}")
    if shuffle_buffer is not None and shuffle_buffer < 1:
        raise UsageError(
            f"shuffle_buffer must be 1 or more, got {shuffle_buffer}; shuffle=False reads in order"
        )
    if drop_remainder and split.records < batch_size:
        raise UsageError(
            f"batch_size must be at most the {split.records} records of split {split.name!r}, got "
            f"{batch_size}; or give drop_remainder=False"
        )


def _window_records(split: Split, batch_size: int, asked: int | None) -> int:
    """Returns how many records are shuffled together: whole batches."""
    wanted = asked or min(_WINDOW_RECORDS, int(_WINDOW_BYTES / split.mean_record_bytes))
    return max(1, -(-wanted // batch_size)) * batch_size


def _block_records(split: Split) -> int:
    """Returns how many records are read from a shard before the next one's turn."""
    return max(1, min(_BLOCK_RECORDS, int(_BLOCK_BYTES / split.mean_record_bytes)))


def _shuffled_batches(
    split: Split,
    compression: str,
    *,
    batch_size: int,
    window: int,
    drop_remainder: bool,
    seed: int,
) -> tf.data.Dataset:
    """Returns batches `[batch_size] string` of serialized records."""
    import tensorflow as tf

    block = _block_records(split)

    def read_blocks(shard: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(shard, compression_type=compression).batch(block)

    def permute(records: tf.Tensor, window_seed: tf.Tensor) -> tf.data.Dataset:
        size = tf.size(records, out_type=tf.int64)
        draws = tf.random.stateless_uniform(
            [size], [window_seed, 0], minval=None, maxval=None, dtype=tf.int32, alg="philox"
        )
        order = tf.argsort(draws, stable=True)
        end = size - size % batch_size if drop_remainder else size

        def take(begin: tf.Tensor) -> tf.Tensor:
            batch = tf.gather(records, order[begin : begin + batch_size])
            return tf.ensure_shape(batch, [batch_size if drop_remainder else None])

        return tf.data.Dataset.range(0, end, batch_size).map(take)

    shards = tf.data.Dataset.from_tensor_slices(list(split.paths)).shuffle(
        len(split.paths), seed=_tf_seed(seed, "shard order"), reshuffle_each_iteration=True
    )
    blocks = shards.interleave(
        read_blocks,
        cycle_length=min(_SHARDS_AT_ONCE, len(split.paths)),
        block_length=1,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    windows = blocks.rebatch(window).prefetch(1)
    seeds = tf.data.Dataset.random(
        seed=_tf_seed(seed, "record order"), rerandomize_each_iteration=True
    )
    return tf.data.Dataset.zip((windows, seeds)).flat_map(permute)


def _tf_seed(seed: int, purpose: str) -> int:
    """Returns a seed that TensorFlow takes: 63 bits."""
    return seed_for(seed, f"reader/{purpose}") >> 1
