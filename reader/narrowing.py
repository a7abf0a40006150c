"""Make int32 of int64, as accelerators want it: never another number, but an error in one line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from recordmill.reader.dataset import FinishedDataset
from recordmill.reader.features import Features
from recordmill.reader.options import Int64Names
from recordmill.records.errors import RunError, UsageError, one_of
from recordmill.records.spec import check_type

if TYPE_CHECKING:
    import tensorflow as tf

# Feature -> the line for a value of it that does not fit, before and after that value.
DescribeValue: TypeAlias = "Callable[[str], tuple[str, str]]"

_SMALLEST, _LARGEST = -(1 << 31), (1 << 31) - 1
_LARGE = 1 << 14  # numbers of a tensor
_MANY = 1 << 16  # numbers of a batch


def int64_names(names: Int64Names) -> tuple[str, ...]:
    """Returns the argument `int64` as names.

    Raises:
      UsageError: it is neither a name nor several.
    """
    found: str | tuple[str, ...] = check_type("int64", names, Int64Names)
    return (found,) if isinstance(found, str) else tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Which numbers of a dataset become int32: all of int64, but for some features.

    Attributes:
      dataset: its path, for errors.
      kept: the features that stay int64.
      small: the features that fit by construction, which batches need not be searched for.
    """

    dataset: str
    kept: tuple[str, ...] = ()
    small: frozenset[str] = frozenset()

    @classmethod
    def of(cls, dataset: FinishedDataset, names: Int64Names) -> Narrowing:
        """Returns what the argument `int64` means for a dataset.

        Raises:
          UsageError: a name is none of an int64 feature of the dataset.
        """
        kept = int64_names(names)
        valid = {f.name: f.shape for f in dataset.schema.features if f.dtype == "int64"}
        if kept and not valid:
            raise UsageError(f"{dataset.path} has no int64 features; leave out int64={kept!r:.200}")
        for name in kept:
            one_of(f"{dataset.path}: the int64 feature", name, valid)
        # Text jobs make rows of tokens as int32. What they carry along of documents is single.
        rows = (name for name, shape in valid.items() if shape)
        is_text = isinstance(dataset.manifest.config.get("objective"), dict)
        return cls(dataset.path, kept, frozenset(rows if is_text else ()))

    def batch(self, features: Features) -> Features:
        """Returns a batch, int64 as int32, in the graph; ends in one line if a value does not fit.

        Args:
          features: feature -> `[batch_size, *shape]`, as the records have them.
        """
        rest = {name: values for name, values in features.items() if name not in self.kept}
        narrow = to_int32(rest, lambda name: self._describe(self.dataset, name), self.small)
        return {name: narrow.get(name, values) for name, values in features.items()}

    def record(self, features: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Returns a record in numpy, int64 as int32.

        Args:
          features: feature -> array or number, as the record has them.
          where: the record is, for the error.

        Raises:
          RunError: a value does not fit int32.
        """
        return {
            name: values if name in self.kept else self._values(name, values, where)
            for name, values in features.items()
        }

    def _values(self, name: str, values: Any, where: str) -> Any:
        if getattr(values, "dtype", None) != np.int64:
            return values
        narrow = values.astype(np.int32)
        if (narrow != values).any():
            flat = np.ravel(values)
            before, after = self._describe(where, name)
            raise RunError(f"{before}{flat[flat != np.ravel(narrow)][0]}{after}")
        return narrow

    def _describe(self, where: str, name: str) -> tuple[str, str]:
        return (
            f"{where}: feature {name!r} must fit int32, and a value is ",
            f"; read it as int64 by int64={(*self.kept, name)!r}",
        )


def to_int32(features: Features, describe: DescribeValue, small: Collection[str] = ()) -> Features:
    """Returns features, int64 as int32, in the graph.

    A value that does not fit ends the step with the line that `describe` gives. Where no number is
    below 0 that costs one pass over them, and none over features in `small`.
    """
    import tensorflow as tf

    wide = {
        name: values.flat_values if isinstance(values, tf.RaggedTensor) else values
        for name, values in features.items()
        if values.dtype == tf.int64 and name not in small
    }
    tensors = list(wide.values())
    if not tensors:
        checks = []
    elif sum(x.shape.num_elements() or 0 for x in tensors) < _MANY:
        checks = _check_each(wide, describe)
    else:
        # A branch costs as much as a few thousand numbers, so it is for many.
        fit = tf.cond(
            _fit_at_once(tensors),
            lambda: tf.constant(True),
            lambda: _after(_check_each(wide, describe)),
        )
        checks = [fit]
    with tf.control_dependencies(checks):
        return {
            name: tf.cast(values, tf.int32) if values.dtype == tf.int64 else values
            for name, values in features.items()
        }


def _fit_at_once(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns False if a value does not fit int32, or if a number is below 0 in a large tensor.

    One pass over large tensors; small ones, which may have such numbers, are looked at as one.
    """
    import tensorflow as tf

    large = [x for x in tensors if (x.shape.num_elements() or _LARGE) >= _LARGE]
    small = [tf.reshape(x, [-1]) for x in tensors if (x.shape.num_elements() or _LARGE) < _LARGE]
    # As uint64, numbers below 0 are beyond all others.
    most = [tf.reduce_max(tf.bitcast(x, tf.uint64)) for x in large]
    limits = [_LARGEST] * len(large)
    if small:
        from_smallest = tf.concat(small, axis=0) - _SMALLEST
        most.append(tf.reduce_max(tf.bitcast(from_smallest, tf.uint64)))
        limits.append(_LARGEST - _SMALLEST)
    return tf.reduce_all(tf.stack(most) <= tf.constant(limits, tf.uint64))


def _check_each(wide: Mapping[str, tf.Tensor], describe: DescribeValue) -> list[Any]:
    """Returns control dependencies that fail with the lines of the features that do not fit."""
    import tensorflow as tf

    from recordmill.reader.one_line_errors import check_all_in_graph

    least = tf.stack([tf.reduce_min(x) for x in wide.values()])
    most = tf.stack([tf.reduce_max(x) for x in wide.values()])
    beyond = most > _LARGEST
    values = tf.strings.as_string(tf.where(beyond, most, least))
    before, after = zip(*map(describe, wide), strict=True)
    return check_all_in_graph(~(beyond | (least < _SMALLEST)), (before, values, after))


def _after(checks: list[Any]) -> tf.Tensor:
    import tensorflow as tf

    with tf.control_dependencies(checks):
        return tf.constant(True)
