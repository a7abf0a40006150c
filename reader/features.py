"""Types of the batches that pass between the stages of a reader, and of functions of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    import tensorflow as tf

# Feature -> `[batch_size, *shape]`.
Features: TypeAlias = "dict[str, tf.Tensor | tf.RaggedTensor]"
# Takes `keys [batch_size, 2] int64` too: epoch, and number of the record in the split as written.
Transform: TypeAlias = "Callable[[Features, tf.Tensor], Features]"


class Decoder:
    """A transform that decodes what records hold, and fails on a record that it cannot decode.

    Attributes:
      whole: the same, without leaving out a part: fails wherever the transform may.
    """

    def __init__(self, transform: Transform, whole: Transform) -> None:
        self._transform = transform
        self.whole = whole

    def __call__(self, features: Features, keys: tf.Tensor) -> Features:
        """Returns the decoded features."""
        return self._transform(features, keys)


_Function = TypeVar("_Function", bound="Callable[..., object]")


def in_graph(function: _Function) -> _Function:
    """Returns a function marked as plain graph code.

    AutoGraph would have nothing to convert in it, would take longer to trace it, and would spread
    its errors over many lines.
    """
    import tensorflow as tf

    marked: _Function = tf.autograph.experimental.do_not_convert(function)
    return marked
