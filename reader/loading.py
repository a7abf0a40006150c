"""`load` and `Reader`: batches of a finished dataset, for one of several workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from recordmill.reader.features import Transform
from recordmill.reader.narrowing import Int64Names
from recordmill.reader.opening import open_split
from recordmill.reader.options import OnError, ReaderOptions
from recordmill.reader.order import Order, Remainder
from recordmill.reader.pairs import Pair
from recordmill.reader.state import format_state, identify_order, parse_state
from recordmill.records.errors import UsageError
from recordmill.records.schema import Schema

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

    def __init__(
        self,
        path: str | os.PathLike[str],
        split: str,
        *,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        epochs: int | None = 1,
        remainder: Remainder = "drop",
        num_workers: int | None = None,
        worker_index: int | None = None,
        input_context: tf.distribute.InputContext | None = None,
        start_step: int = 0,
        transform: Transform | Sequence[Transform] = (),
        schema: Schema | None = None,
        on_error: OnError = "fail",
        cache_dir: str | None = None,
        cache_bytes: int = 100 << 30,
        window_records: int | None = None,
        parallel_calls: int | None = None,
        reorder: Callable[[Order], Order] | None = None,
        as_pair: Pair | None = None,
        int64: Int64Names = (),
    ) -> None:
        """Opens a dataset; `load` says what the arguments are.

        Raises:
          UsageError: see `load`.
        """
        options = ReaderOptions(
            batch_size=batch_size, shuffle=shuffle, seed=seed, epochs=epochs,
            remainder=remainder, num_workers=num_workers, worker_index=worker_index,
            input_context=input_context, start_step=start_step, transform=transform, schema=schema,
            on_error=on_error, cache_dir=cache_dir, cache_bytes=cache_bytes,
            window_records=window_records, parallel_calls=parallel_calls, reorder=reorder,
            as_pair=as_pair, int64=int64,
        )  # fmt: skip
        opened = open_split(path, split, options)
        self.skipped = opened.skipped
        self._options = options
        self._order = opened.order
        self._source = opened.source
        self._identity = identify_order(opened, split, options)
        self._step = 0
        self._go_to(start_step)

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
        """Returns an epoch's windows, read and not parsed, and the batches of each, to measure."""
        from recordmill.reader.pipeline import read_only

        return read_only(self._source, self._order), self._order.window_steps

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


# The parameters share lines because each one has its line in the docstring.
def load(
    path: str | os.PathLike[str], split: str, *, batch_size: int, shuffle: bool = True,
    seed: int = 0, epochs: int | None = 1, remainder: Remainder = "drop",
    num_workers: int | None = None, worker_index: int | None = None,
    input_context: tf.distribute.InputContext | None = None, start_step: int = 0,
    transform: Transform | Sequence[Transform] = (), schema: Schema | None = None,
    on_error: OnError = "fail", cache_dir: str | None = None, cache_bytes: int = 100 << 30,
    window_records: int | None = None, parallel_calls: int | None = None, int64: Int64Names = (),
    reorder: Callable[[Order], Order] | None = None, as_pair: Pair | None = None,
) -> tf.data.Dataset:  # fmt: skip
    """Returns the batches that one worker trains on.

    The order is a pure function of dataset, seed, epoch and global batch (`batch_size` times the
    number of workers): worker w of W gets rows `[w * batch_size, (w + 1) * batch_size)` of each
    global batch. Iterating the dataset twice gives the same batches twice; `epochs` gives another
    order each epoch. Memory: about four windows, each of at most 16 MiB of records.

    Args:
      path: the folder that holds `_SUCCESS`; local, or `gs://…` by TensorFlow's own file systems.
      split: "train", "train[:10%]", "train[100:200]", "train+validation".
      batch_size: records a batch of this worker.
      shuffle: False reads the records exactly as they were written, shard after shard.
      seed: of the order.
      epochs: passes over the split; None goes on for ever, for Keras' `steps_per_epoch`.
      remainder: what becomes of the records beyond an epoch's last whole global batch; they differ
        in each epoch. "drop" leaves them out; "repeat" fills the batch with records of the epoch;
        "pad" with zeros, and adds the feature `row_mask [batch_size] int32`, 0 on those; "keep"
        gives them as a smaller batch, which can be empty.
      num_workers, worker_index: given together. Else `input_context` (of `tf.distribute`),
        TF_CONFIG, Slurm's or torchrun's variables decide, in that order; else there is one worker.
      start_step: batches to pass over, of all epochs; nothing that lies before is read.
      transform: one or several of `(features, keys) -> features`, called in the graph on each
        batch; `keys [batch, 2] int64` are epoch and number of the record in the split as written,
        -1 on padding.
      schema: the features that the caller was made for, where a difference should be an error.
      on_error: "fail" names the record that cannot be read. "skip_record" and "skip_shard" read
        all shards once at the beginning and leave out what cannot be read: equal work for all.
      cache_dir, cache_bytes: where to keep copies of remote shards, and the most they may take.
      window_records: records that are permuted together: 32,768, or as many as take 16 MiB.
      parallel_calls: of each parallel stage; None lets tf.data choose. The order is the same.
      reorder: changes which records an epoch draws on, such as `balance_by_label`.
      as_pair: gives `(features, labels)` for Keras: `("image", "label")`, `(("a", "b"), "labels")`,
        or "labels" for all others by name; with remainder="pad" `row_mask` is the sample weight.
      int64: features that stay int64, such as ("id", "time"); others become int32 or an error.

    Returns:
      feature -> `[batch_size, *shape]` int32, int64, float32 or string; ragged where lengths vary.

    Raises:
      UsageError: no `_SUCCESS`, no such split, another schema, a file that does not belong to the
        split, a wrong combination of workers, not one batch to be had, a wrong name in `int64`.
      RunError: while iterating, in `model.fit` an OpError: a broken record, a value beyond int32.
    """
    return Reader(
        path, split, batch_size=batch_size, shuffle=shuffle, seed=seed, epochs=epochs,
        remainder=remainder, num_workers=num_workers, worker_index=worker_index,
        input_context=input_context, start_step=start_step, transform=transform, schema=schema,
        on_error=on_error, cache_dir=cache_dir, cache_bytes=cache_bytes, as_pair=as_pair,
        window_records=window_records, parallel_calls=parallel_calls, reorder=reorder, int64=int64,
    ).dataset()  # fmt: skip
