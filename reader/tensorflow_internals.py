"""Everything that the reader uses of TensorFlow beyond its documented interface.

`tests/reader/test_compat.py` has a test for each use, so that a release which changes one is
noticed there and not in training.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

__all__ = ["DatasetOfVariant", "OwnedIterator", "assertion_message", "first_line"]

# The kernel of tf.debugging.Assert writes "assertion failed: [<data>]", and escapes the data.
_ASSERTION = re.compile(r"assertion failed: \[(?P<data>.*)\]$", re.MULTILINE)
# An error begins with the names of nodes and of iterators, and ends with that of the operation.
_NODES = re.compile(
    r"^(\{\{.*?\}\} ?|Error in user-defined function passed to \S+ transformation with iterator: "
    r"\S+: )*"
)
_ESCAPE = re.compile(r"\\([\\'\"])")


class DatasetOfVariant(tf.data.Dataset):
    """A dataset made of a variant tensor that an operation returned.

    TensorFlow wants a subclass with `_inputs` and `element_spec`, and hands its constructor the
    variant. `tf.data.experimental.from_variant` would do, but gives a dataset without inputs, which
    loses their options.
    """

    def __init__(self, variant: tf.Tensor, inputs: Sequence[tf.data.Dataset], spec: Any) -> None:
        """Makes the dataset.

        Args:
          variant: `[] variant`.
          inputs: the datasets that it is made of, whose options it keeps.
          spec: what an element is.
        """
        self._datasets = list(inputs)
        self._spec = spec
        super().__init__(variant)

    def _inputs(self) -> list[tf.data.Dataset]:
        return self._datasets

    @property
    def element_spec(self) -> Any:
        """The spec of an element."""
        return self._spec


def assertion_message(error: tf.errors.OpError) -> str | None:
    """Returns the one string that `tf.debugging.Assert` was given, or None for another error."""
    match = _ASSERTION.search(error.message)
    return _ESCAPE.sub(r"\1", match["data"]) if match else None


def first_line(error: tf.errors.OpError) -> str:
    """Returns what an error says, without the names of TensorFlow's nodes."""
    line = (str(error.message).splitlines() or [""])[0]
    return _NODES.sub("", line).partition(" [Op:")[0].rstrip(".") or type(error).__name__
