"""Report errors of a dataset's elements in one line of ours, where TensorFlow gives twenty.

An error inside a tf.data pipeline passes through TensorFlow's runtime, which adds the names of
iterators and nodes to it. Where Python iterates the dataset itself, the one line is raised alone.
Where a graph does (`model.fit`, `tf.distribute`), or a dataset that the caller made of ours, only
TensorFlow can raise it: its message then holds the line after "assertion failed".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from recordmill.reader.tensorflow_internals import (
    DatasetOfVariant,
    OwnedIterator,
    assertion_message,
)
from recordmill.records.errors import RunError

# TensorFlow's own binding raises the second where a message holds bytes that are no UTF-8, such as
# those of a record that it cannot parse.
_Raised: TypeAlias = "tf.errors.OpError | UnicodeDecodeError"
Describe: TypeAlias = "Callable[[_Raised, int], str | None]"

_PREFIX = "recordmill: "
PARSE_NAME = "recordmill_parsing"  # the node of our parsing: a transform may parse, too
_UNPARSED = re.compile(
    "Could not parse example input|Invalid protocol message input|"
    r"Name: <unknown>, (?P<why>(?:Key|Feature|Feature list): [^\n\[]*)"
)


class ReadError(RunError, tf.errors.InvalidArgumentError):
    """A dataset's elements cannot be had, for a reason that we know.

    Also an error of TensorFlow, of the kind that it raises for the same cause, because trainers
    catch those.
    """

    def __init__(self, message: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, message)


def check_in_graph(condition: Any, message: str | tf.Tensor) -> list[Any]:
    """Returns control dependencies that fail with one line unless a condition holds.

    Args:
      condition: `[] bool`.
      message: `[] string` of one line, without the name of this package.
    """
    check = tf.debugging.Assert(condition, [tf.strings.join([_PREFIX, message])])
    return [] if check is None else [check]


def check_all_in_graph(conditions: tf.Tensor, parts: Sequence[Any]) -> list[Any]:
    """Returns control dependencies that fail with the line of a condition that does not hold.

    There is no branch in it, which in a small graph would cost more than all the rest.

    Args:
      conditions: `[n] bool`.
      parts: of the lines, `[n] string` each.
    """
    lines = tf.where(conditions, "", tf.strings.join([_PREFIX, *parts]))
    every = tf.reduce_all(conditions)
    check = tf.raw_ops.Assert(condition=every, data=[lines], summarize=conditions.shape[0])
    return [] if check is None else [check]


def checked_message(error: _Raised, folder: str = "DIR") -> str | None:
    """Returns the line of the check that failed, the first of several, or None for other errors.

    Args:
      error: of an iterator.
      folder: the dataset, as a record that cannot be parsed is named by `verify`.
    """
    if isinstance(error, UnicodeDecodeError):
        text = error.object.decode("utf-8", "replace")
    else:
        message = (assertion_message(error) or "").strip()
        first = message.partition(f" {_PREFIX}")[0]
        if first.startswith(_PREFIX):
            return first.removeprefix(_PREFIX)
        text = str(error.message)
    if PARSE_NAME in text and (found := _UNPARSED.search(text)):
        why = " ".join((found["why"] or "it is no such message of protobuf").split())
        return (
            f"every record must be a tf.Example of the dataset's schema, and one is not ({why}); "
            f"see which by `recordmill verify {folder}`, and copy or write the dataset anew"
        )
    return None


def raise_one_line(
    dataset: tf.data.Dataset, describe: Describe = lambda error, _: checked_message(error)
) -> tf.data.Dataset:
    """Returns the same dataset, whose iterators in Python raise `ReadError`.

    It is the same operation, and adds none: nothing is slower.

    Args:
      dataset: to iterate.
      describe: error, elements that the iterator gave or failed on before -> our line for it, or
        None for an error that is none of ours.
    """
    return _OneLineDataset(dataset, describe)


def describe_error(dataset: tf.data.Dataset, error: _Raised, given: int) -> str | None:
    """Returns the line that a dataset has for an error after some elements, as `describe` above."""
    if isinstance(dataset, _OneLineDataset):
        return dataset.describe(error, given)
    return checked_message(error)


class _OneLineDataset(DatasetOfVariant):
    def __init__(self, dataset: tf.data.Dataset, describe: Describe) -> None:
        variant = tf.data.experimental.to_variant(dataset)
        super().__init__(variant, [dataset], dataset.element_spec)
        self.describe = describe

    def __iter__(self) -> Any:
        if not tf.executing_eagerly():
            return super().__iter__()
        return _OneLineIterator(self, self.describe)


class _OneLineIterator(OwnedIterator):
    def __init__(self, dataset: tf.data.Dataset, describe: Describe) -> None:
        self._describe = describe
        self._given = 0
        super().__init__(dataset)

    def __next__(self) -> Any:
        return self._one_line(super().__next__)

    def get_next(self) -> Any:
        """Returns the next element, as `tf.data.Iterator.get_next`."""
        return self._one_line(super().get_next)

    def _one_line(self, take: Callable[[], Any]) -> Any:
        given = self._given
        self._given += 1  # also of one that fails: whoever goes on gets the next one
        try:
            return take()
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            message = self._describe(error, given)
            if message is None:
                raise
            raise ReadError(message) from None
