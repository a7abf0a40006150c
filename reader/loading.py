"""`load` and `Reader`: batches of a finished dataset, for one of several workers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from recordmill.reader.dataset import FinishedDataset, check_schema, open_dataset
from recordmill.reader.order import REMAINDERS, Order, Remainder
from recordmill.reader.selection import Part, parse_selection
from recordmill.reader.shards import RecordPlaces, Stretch, without
from recordmill.reader.workers import find_worker
from recordmill.records.errors import RunError, UsageError, one_of
from recordmill.records.hashing import fingerprint64
from recordmill.records.manifest import ShardInfo
from recordmill.records.schema import Schema

if TYPE_CHECKING:
    import tensorflow as tf

    from recordmill.reader.damage import BadRecord
    from recordmill.reader.pipeline import Source, Transform

OnError = Literal["fail", "skip_record", "skip_shard"]
_ON_ERROR = ("fail", "skip_record", "skip_shard")

_WINDOW_RECORDS = 1 << 15
_WINDOW_BYTES = 1 << 24
# To begin with a block costs as much as to read some hundred records, and with a window a thousand.
_WINDOW_BLOCKS = 16
_WRITTEN_WINDOW_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class _State:
    """Where a reader stands, and of what order. The order of the fields is that of complaints."""

    dataset: str
    split: str
    shuffle: bool
    seed: int
    global_batch: int
    remainder: str
    window_records: int
    records: int
    reorder: str


class Reader:
    """The batches of a split: the same order for any number of workers, from any step on.

    Iterating gives batches and counts them, so that `state` knows where training stands; `dataset`
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
    ) -> None:
        """Opens a dataset; `load` says what the arguments are.

        Raises:
          UsageError: see `load`.
        """
        one_of("remainder", remainder, REMAINDERS)
        one_of("on_error", on_error, _ON_ERROR)
        _check_counts(
            batch_size=batch_size, epochs=epochs, window_records=window_records,
            parallel_calls=parallel_calls,
        )  # fmt: skip
        worker = find_worker(num_workers, worker_index, input_context)
        dataset = open_dataset(path)
        if schema is not None:
            check_schema(dataset, schema)
        parts = parse_selection(split, dataset.split_records, dataset.path)
        shards, stretches = _stretches(dataset, parts)
        paths = _paths(dataset, shards, cache_dir, cache_bytes)
        self.skipped, stretches = _leave_out(dataset, shards, paths, stretches, on_error)
        mean_bytes = max(1, sum(s.record_bytes for s in shards) // sum(s.records for s in shards))
        window = window_records or max(1, min(_WINDOW_RECORDS, _WINDOW_BYTES // mean_bytes))
        whole_shards = bool(dataset.manifest.compression)
        blocks = _WINDOW_BLOCKS if shuffle else _WRITTEN_WINDOW_BLOCKS
        block = window if whole_shards else max(1, window // blocks)
        self._order = Order(
            stretches=tuple(stretches), batch_size=batch_size, workers=worker.count,
            worker=worker.index, seed=seed if shuffle else None, remainder=remainder,
            window_records=window, block_records=block, whole_shards=whole_shards,
        )  # fmt: skip
        if reorder is not None:
            self._order = reorder(self._order)
        self._source = _source(dataset, shards, paths, mean_bytes, exact=bool(self.skipped))
        self._epochs = epochs
        self._transforms = [transform] if callable(transform) else list(transform)
        self._parallel_calls = parallel_calls
        self._state = _State(
            dataset=f"{fingerprint64(dataset.manifest.to_bytes()):016x}", split=split[:200],
            shuffle=shuffle, seed=seed, global_batch=self._order.global_batch,
            remainder=remainder, window_records=window, records=self._order.records,
            reorder=self._order.fingerprint,
        )  # fmt: skip
        if not self.steps_per_epoch:
            raise UsageError(
                f"{worker.count} workers x batch_size {batch_size} must be at most the "
                f"{self.records} records of {split!r}; or give remainder='keep', 'pad' or 'repeat'"
            )
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
        end = None if self._epochs is None else self._epochs * self.steps_per_epoch
        if step < 0 or (end is not None and step > end):
            raise UsageError(
                f"start_step must be in [0, {'…' if end is None else end}], the steps of all "
                f"epochs, got {step}"
            )
        self._step = step

    def dataset(self) -> tf.data.Dataset:
        """Returns the batches from the reader's place on."""
        from recordmill.reader.pipeline import build_dataset

        return build_dataset(
            self._source, self._order, epochs=self._epochs, start_step=self._step,
            transforms=self._transforms, parallel_calls=self._parallel_calls,
        )  # fmt: skip

    @property
    def has_transforms(self) -> bool:
        """True where batches are changed after parsing."""
        return bool(self._transforms)

    def read_only(self) -> tuple[tf.data.Dataset, int]:
        """Returns an epoch's windows, read and not parsed, and the batches in each: to measure."""
        from recordmill.reader.pipeline import read_only

        return read_only(self._source, self._order), self._order.window_steps

    def __iter__(self) -> Iterator[Any]:
        """Yields batches, and moves the reader's place.

        Raises:
          RunError: names a record that cannot be read.
        """
        return self._counted(self.dataset())

    def as_numpy(self) -> Iterator[dict[str, Any]]:
        """Yields batches as arrays, as `recordmill.reader.as_numpy` does, and moves the place."""
        from recordmill.reader.arrays import as_numpy

        return self._counted(as_numpy(self.dataset()))

    def _counted(self, batches: Iterable[Any]) -> Iterator[Any]:
        import tensorflow as tf

        try:
            for batch in batches:
                self._step += 1
                yield batch
        except tf.errors.OpError as error:
            if not self._source.complaints:
                raise
            raise RunError(self._source.complaints[-1]) from error

    def state(self, step: int | None = None) -> str:
        """Returns the place as JSON of fewer than 1,024 bytes, for a checkpoint.

        Args:
          step: the batches consumed, for those who iterate `dataset()`; else the reader knows.
        """
        return json.dumps({**asdict(self._state), "step": self._step if step is None else step})

    def restore(self, state: str) -> None:
        """Goes on where `state` was taken, by any number of workers of the same global batch.

        Raises:
          UsageError: the state is of another dataset or order.
        """
        try:
            found = json.loads(state)
            step = int(found.pop("step"))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                f"a reader's state must be what state() returned, and is not: {error}"
            ) from error
        for name, expected in asdict(self._state).items():
            if found.get(name) != expected:
                raise UsageError(
                    f"a state must be of the same order, and its {name} is {found.get(name)!r} "
                    f"where this reader has {expected!r}; open the reader as before"
                )
        self._go_to(step)


def load(
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
) -> tf.data.Dataset:
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
      epochs: passes over the split; None goes on for ever, as Keras wants it with
        `steps_per_epoch`.
      remainder: what becomes of the records beyond the last whole global batch of an epoch, which
        are others each epoch. "drop" leaves them out; "repeat" fills the batch up with records of
        the epoch; "pad" with zeros, and adds the feature `row_mask [batch_size] int32`, 0 on
        those; "keep" deals them out as a smaller batch, which can be empty.
      num_workers, worker_index: given together. Else `input_context`, TF_CONFIG, Slurm's or
        torchrun's variables say it, in that order; else there is one worker.
      input_context: of `tf.distribute`: `num_input_pipelines` workers.
      start_step: batches to pass over, of all epochs; nothing that lies before is read.
      transform: one or several of `(features, keys) -> features`, called in the graph on each
        batch; `keys [batch, 2] int64` are epoch and number of the record in the split as written,
        -1 on padding.
      schema: the features that the caller was made for, where a difference should be an error.
      on_error: "fail" names the record that cannot be read. "skip_record" and "skip_shard" read
        all shards once at the beginning and leave out what cannot be read, so that all workers
        still do equal work.
      cache_dir: where to keep copies of remote shards.
      cache_bytes: the most that these may take.
      window_records: records that are permuted together: 32,768, or as many as take 16 MiB.
      parallel_calls: of each parallel stage; None lets tf.data choose. The order is the same.
      reorder: changes which records an epoch draws on, such as `balance_by_label`.

    Returns:
      A dataset of feature name -> `[batch_size, *shape]` int32, float32 or string; RaggedTensor for
      features whose length varies. Its cardinality is known.

    Raises:
      UsageError: no `_SUCCESS`, no such split, another schema, a file that does not belong to the
        split, a wrong combination of workers, or not one batch to be had.
    """
    return Reader(
        path, split, batch_size=batch_size, shuffle=shuffle, seed=seed, epochs=epochs,
        remainder=remainder, num_workers=num_workers, worker_index=worker_index,
        input_context=input_context, start_step=start_step, transform=transform, schema=schema,
        on_error=on_error, cache_dir=cache_dir, cache_bytes=cache_bytes,
        window_records=window_records, parallel_calls=parallel_calls, reorder=reorder,
    ).dataset()  # fmt: skip


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} must be 1 or more, got {value}")


def _stretches(
    dataset: FinishedDataset, parts: Sequence[Part]
) -> tuple[list[ShardInfo], list[Stretch]]:
    """Returns the shards that some parts of splits need, and the records in them."""
    shards: list[ShardInfo] = []
    stretches = []
    numbers: dict[str, int] = {}
    for part in parts:
        split = dataset.split(part.split)
        dataset.check_files(split)
        base = numbers.setdefault(
            part.split, sum(dataset.split(other).records for other in numbers)
        )
        before = 0
        for shard in split.shards:
            first = max(part.first, before) - before
            last = min(part.last, before + shard.records) - before
            if last > first:
                if shard not in shards[-1:]:
                    shards.append(shard)
                number = base + before + first
                stretches.append(Stretch(len(shards) - 1, first, last - first, number))
            before += shard.records
    return shards, stretches


def _paths(
    dataset: FinishedDataset,
    shards: Sequence[ShardInfo],
    cache_dir: str | None,
    cache_bytes: int,
) -> list[str]:
    if cache_dir is None:
        return [dataset.file(shard.name.path) for shard in shards]
    from recordmill.reader.caching import ShardCache

    return ShardCache(cache_dir, cache_bytes).fetch(dataset, shards)


def _leave_out(
    dataset: FinishedDataset,
    shards: Sequence[ShardInfo],
    paths: Sequence[str],
    stretches: list[Stretch],
    on_error: OnError,
) -> tuple[list[BadRecord], list[Stretch]]:
    """Returns the records that cannot be read, and the stretches without what they spoil."""
    if on_error == "fail":
        return [], stretches
    from recordmill.reader.damage import scan

    compression = dataset.manifest.compression
    found = scan(paths, compression, lambda i: dataset.index(shards[i]))
    bad = [record for records in found for record in records]
    if on_error == "skip_shard":
        spoilt = {i for i, records in enumerate(found) if records}
        kept = [stretch for stretch in stretches if stretch.shard not in spoilt]
    else:
        holes = [(i, record.record) for i, records in enumerate(found) for record in records]
        kept = without(stretches, holes)
    if not kept:
        raise UsageError(
            f"at least one record must be readable, and {len(bad)} in {len(paths)} shards are not, "
            f"first {bad[0]}; copy the dataset again"
        )
    return bad, kept


def _source(
    dataset: FinishedDataset,
    shards: Sequence[ShardInfo],
    paths: Sequence[str],
    record_bytes: int,
    *,
    exact: bool,
) -> Source:
    from recordmill.reader.pipeline import Source

    places = None
    if not dataset.manifest.compression:
        records = [shard.records for shard in shards]
        limit = {"most": sum(records)} if exact else {}
        places = RecordPlaces(
            dataset.read, [shard.name.index_path for shard in shards], records, **limit
        )
    return Source(tuple(paths), dataset.manifest.compression, places, dataset.schema, record_bytes)
