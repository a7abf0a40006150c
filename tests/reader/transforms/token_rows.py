"""Rows of ids and keys for the tests of transforms."""

from __future__ import annotations

import tensorflow as tf


def keys_of(count: int, epoch: int = 0) -> tf.Tensor:
    return tf.constant([[epoch, record] for record in range(count)], tf.int64)


def ragged(rows: list[list[int]]) -> tf.RaggedTensor:
    return tf.ragged.constant(rows, tf.int32)
