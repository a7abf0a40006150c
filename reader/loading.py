"""`load` and `Reader`: batches of a finished dataset, for one of several workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from recordmill.reader.opening import open_split
from recordmill.reader.options import ReaderOptions
from recordmill.reader.state import format_state, identify_order, parse_state
from recordmill.records.errors import UsageError
from recordmill.records.spec import takes

if TYPE_CHECKING:
    import tensorflow as tf


class Reader:
    """The batches of a split: the same order for any number of workers, from any step on.

    Iterating gives batches and counts them, so that `state` knows the step of training; `dataset`
    gives the `tf.data.Dataset` alone, for callers that count themselves.

    Attributes:
      records: that an epoch draws on.
      steps_per_epoch: batches of each worker in each epoch; the same for all.
      skipped: the records that `on_error` leaves out.
    """

    @takes(ReaderOptions)
    def __init__(self, path: str | os.PathLike[str], split: str, **options: Any) -> None:
        """Opens a dataset; `load` says what the arguments are.

        Raises:
          TypeError, UsageError: see `load`.
        """
        self._options = ReaderOptions(**options)
        opened = open_split(path, split, self._options)
        self.skipped = opened.skipped
        self._order = opened.order
        self._source = opened.source
        self._identity = identify_order(opened, split, self._options)
        self._step = 0
        self._go_to(self._options.start_step)

    @property
    def records(self) -> int:
        """The records that an epoch draws on."""
        return self._order.records

    @property
    def steps_per_epoch(self) -> int:
        """The batches of each worker in each epoch."""
        return self._order.steps_per_epoch

    def _go_to(self, step: int) -> None:
        epochs = self._options.epochs
        end = None if epochs is None else epochs * self.steps_per_epoch
        if step < 0 or (end is not None and step > end):
            raise UsageError(
                f"start_step must be in [0, {'…' if end is None else end}], the steps of all "
                f"epochs, got {step}"
            )
        self._step = step

    def dataset(self) -> tf.data.Dataset:
        """Returns the batches from the reader's step on, as `load` does."""
        from recordmill.reader.pipeline import build_dataset

        return build_dataset(
            self._source, self._order, epochs=self._options.epochs, start_step=self._step,
            transforms=self._options.transforms, parallel_calls=self._options.parallel_calls,
            as_pair=self._options.as_pair,
        )  # fmt: skip

    @property
    def has_transforms(self) -> bool:
        """True where batches are changed after parsing."""
        return bool(self._options.transforms)

    def read_only(self) -> tuple[tf.data.Dataset, int]:
        """Returns an epoch's groups of windows, read and not parsed, and the batches of each."""
        from recordmill.reader.pipeline import read_only

        steps = self._order.window_steps * self._order.windows_at_once
        return read_only(self._source, self._order), steps

    def __iter__(self) -> Iterator[Any]:
        """Yields batches, and counts them.

        Raises:
          RunError: names a record that cannot be read, or a value that does not fit int32.
        """
        return self._counted(self.dataset())

    def as_numpy(self) -> Iterator[Any]:
        """Yields batches as arrays, as `recordmill.reader.as_numpy` does, and counts them.

        Raises:
          RunError: names a record that cannot be read, or a value that does not fit int32.
        """
        from recordmill.reader.arrays import as_numpy

        return self._counted(as_numpy(self.dataset()))

    def _counted(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            self._step += 1
            yield batch

    def state(self, step: int | None = None) -> str:
        """Returns the position of training, as JSON of fewer than 1,024 bytes for a checkpoint.

        Args:
          step: the batches consumed, for those who iterate `dataset()`; else the reader knows.
        """
        return format_state(self._identity, self._step if step is None else step)

    def restore(self, state: str) -> None:
        """Continues at a state's position, with any number of workers of the same global batch.

        Raises:
          UsageError: the state is of another dataset or order, which the message names.
        """
        self._go_to(parse_state(state, self._identity))


@takes(ReaderOptions)
def load(path: str | os.PathLike[str], split: str, **options: Any) -> tf.data.Dataset:
    """Returns the batches that one worker trains on.

    The order is a pure function of dataset, seed, epoch and global batch (`batch_size` times the
    number of workers): worker w of W gets rows `[w * batch_size, (w + 1) * batch_size)` of each
    global batch. Iterating the dataset twice gives the same batches twice; `epochs` gives another
    order each epoch. Memory: about five windows, each of at most 16 MiB of
    records, for any number of workers.

    Args:
      path: the folder that holds `_SUCCESS`; local, or `gs://…` by TensorFlow's own file systems.
      split: "train", "train[:10%]", "train[100:200]", "train+validation".
      options: the keyword arguments listed below.

    Returns:
      feature -> `[batch_size, *shape]` int32, int64, float32 or string; ragged where lengths vary.

    Raises:
      UsageError: no `_SUCCESS`, no such split, another schema, a file that does not belong to the
        split, a wrong combination of workers, not one batch to be had, a wrong name in `int64`.
      TypeError: an argument that there is not, or no `batch_size`.
      RunError: while iterating, in `model.fit` an OpError: a broken record, a value beyond int32.
    """
    return Reader(path, split, **options).dataset()
