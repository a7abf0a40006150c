"""Turn batches into numpy arrays, for JAX, PyTorch and other libraries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy.typing as npt

if TYPE_CHECKING:
    import tensorflow as tf


class RaggedArray(NamedTuple):
    """Rows of different lengths: row i is `values[row_splits[i]:row_splits[i + 1]]`."""

    values: npt.NDArray[Any]
    row_splits: npt.NDArray[Any]


def _array(value: Any) -> Any:
    if hasattr(value, "row_splits"):
        return RaggedArray(value.values.numpy(), value.row_splits.numpy())
    return value.numpy()


def _arrays(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: _array(value) for name, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(map(_arrays, batch))
    return _array(batch)


def as_numpy(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yields the batches of a dataset of features as arrays of the same shape and dtype.

    Strings become arrays of `bytes` objects, RaggedTensors `RaggedArray`. Pairs stay pairs.
    """
    for batch in dataset:
        yield _arrays(batch)
