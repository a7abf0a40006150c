"""The records of a TFRecord file from a byte offset on."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from recordmill.reader.tensorflow_internals import DatasetOfVariant

LARGE_BUFFER_BYTES = 1 << 20


def records_from(
    path: Any, compression: str, offset: Any, buffer_bytes: int = LARGE_BUFFER_BYTES
) -> tf.data.Dataset:
    """Returns the records of a file from a byte offset on, `[] string` each.

    The operation is TFRecordDataset's own, whose class does not take an offset.

    Args:
      path: of the file, `[] string`.
      compression: "", "GZIP" or "ZLIB".
      offset: `[] int64`; 0 where the file is compressed.
      buffer_bytes: read at a time; up to as many are read in vain at the end.
    """
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=path,
        compression_type=compression,
        buffer_size=buffer_bytes,
        byte_offsets=tf.cast(offset, tf.int64),
    )
    return DatasetOfVariant(variant, [], tf.TensorSpec([], tf.string))


def open_records(path: str, compression: str, offset: int) -> tf.data.Dataset:
    """Returns `records_from` for use outside of a graph.

    There TensorFlow copies a dataset before it runs it, and its copy of the operation loses the
    offset; within a function it does not.
    """
    start = tf.data.Dataset.from_tensors((path, tf.constant(offset, tf.int64)))
    return start.flat_map(lambda path, offset: records_from(path, compression, offset))
