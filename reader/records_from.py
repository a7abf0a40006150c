"""The records of a TFRecord file from a byte offset on."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

LARGE_BUFFER_BYTES = 1 << 20


class RecordsFrom(tf.data.Dataset):
    """The records of a file from a byte offset on, `[] string` each.

    The op is TFRecordDataset's own, whose class does not hand on its offset.
    """

    def __init__(
        self, path: Any, compression: str, offset: Any, buffer_bytes: int = LARGE_BUFFER_BYTES
    ) -> None:
        """Makes the dataset.

        Args:
          path: of the file, `[] string`.
          compression: "", "GZIP" or "ZLIB".
          offset: `[] int64`; 0 where the file is compressed.
          buffer_bytes: read at a time; up to as many are read in vain at the end.
        """
        super().__init__(
            tf.raw_ops.TFRecordDatasetV2(
                filenames=path,
                compression_type=compression,
                buffer_size=buffer_bytes,
                byte_offsets=tf.cast(offset, tf.int64),
            )
        )

    def _inputs(self) -> list[Any]:
        return []

    @property
    def element_spec(self) -> tf.TensorSpec:
        """What an element is."""
        return tf.TensorSpec([], tf.string)


def open_records(path: str, compression: str, offset: int) -> tf.data.Dataset:
    """Returns `RecordsFrom` for use outside of a graph.

    There TensorFlow copies a dataset before it runs it, and its copy of the op loses the offset;
    within a function it does not.
    """
    place = tf.data.Dataset.from_tensors((path, tf.constant(offset, tf.int64)))
    return place.flat_map(lambda path, offset: RecordsFrom(path, compression, offset))
