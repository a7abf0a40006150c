"""The options of a reader and of `recordmill bench`, checked before anything is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from recordmill.reader.features import Transform
from recordmill.reader.pairs import Pair
from recordmill.reader.workers import Worker, find_worker
from recordmill.records.errors import UsageError
from recordmill.records.schema import Schema
from recordmill.records.spec import Spec, option

OnError = Literal["fail", "skip_record", "skip_shard"]
Remainder = Literal["drop", "keep", "pad", "repeat"]
Int64Names: TypeAlias = str | Annotated[Sequence[str], 'names of features, like ("id",)']
_SIZE = re.compile(r"([1-9]\d*)(?:x([1-9]\d*))?")


class ReaderOptions(Spec, frozen=True, kw_only=True):
    """How a split is read: the arguments of `load`."""

    batch_size: Annotated[int, option("The records in a batch of this worker.", ge=1)]
    shuffle: Annotated[bool, option(
        "False reads the records exactly as they were written, shard after shard."
    )] = True  # fmt: skip
    seed: Annotated[int, option("The seed of the order.")] = 0
    epochs: Annotated[int | None, option(
        "The passes over the split; None goes on for ever, for Keras' `steps_per_epoch`.", ge=1
    )] = 1  # fmt: skip
    remainder: Annotated[Remainder, option(
        "What becomes of the records beyond an epoch's last whole global batch; they differ in "
        'each epoch. "drop" leaves them out; "repeat" fills the batch with records of the epoch; '
        '"pad" with zeros, and adds the feature `row_mask [batch_size] int32`, 0 on those; "keep" '
        "gives them as a smaller batch, which can be empty."
    )] = "drop"  # fmt: skip
    num_workers: Annotated[int | None, option(
        "The number of workers, given together with `worker_index`. Else `input_context`, "
        "TF_CONFIG, Slurm's or torchrun's variables decide, in that order; else there is one "
        "worker.", ge=1
    )] = None  # fmt: skip
    worker_index: Annotated[
        int | None, option("Which of the workers this one is, from 0.", ge=0)
    ] = None
    input_context: Annotated[
        Any, option("The `tf.distribute.InputContext`, which says the same as these two.")
    ] = None
    start_step: Annotated[int, option(
        "Batches to pass over, of all epochs; nothing that lies before is read.", ge=0
    )] = 0  # fmt: skip
    transform: Annotated[Callable[..., Any] | Sequence[Callable[..., Any]], option(
        "One or several of `(features, keys) -> features`, called in the graph on each batch; "
        "`keys [batch, 2] int64` are epoch and number of the record in the split as written, -1 "
        "on padding."
    )] = ()  # fmt: skip
    schema: Annotated[Schema | None, option(
        "The features that the caller was made for, where a difference should be an error."
    )] = None  # fmt: skip
    on_error: Annotated[OnError, option(
        '"fail" names the record that cannot be read, or decoded by `decode_images`. "skip_record" '
        'and "skip_shard" read and decode all once at the beginning and leave out what cannot be: '
        "equal work for all."
    )] = "fail"  # fmt: skip
    cache_dir: Annotated[
        str | os.PathLike[str] | None, option("Where to keep copies of remote shards.")
    ] = None
    cache_bytes: Annotated[int, option("The most that these copies may take.", ge=1)] = 100 << 30
    window_records: Annotated[int | None, option(
        "The records that are permuted together: 32,768, or as many as take 16 MiB.", ge=1
    )] = None  # fmt: skip
    parallel_calls: Annotated[int | None, option(
        "Of each parallel stage; None lets tf.data choose. The order is the same.", ge=1
    )] = None  # fmt: skip
    int64: Annotated[Int64Names, option(
        'Features that stay int64, such as ("id", "time"); others become int32 or an error.'
    )] = ()  # fmt: skip
    reorder: Annotated[Callable[..., Any] | None, option(
        "Changes which records an epoch draws on, such as `balance_by_label`."
    )] = None  # fmt: skip
    as_pair: Annotated[Pair | None, option(
        'Gives `(features, labels)` for Keras: `("image", "label")`, `(("a", "b"), "labels")`, or '
        '"labels" for all others by name; with remainder="pad" `row_mask` is the sample weight.'
    )] = None  # fmt: skip

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """The functions called on each batch, one after the other."""
        return (self.transform,) if callable(self.transform) else tuple(self.transform)

    def find_worker(self) -> Worker:
        """Returns which worker this process is.

        Raises:
          UsageError: see `recordmill.reader.workers.find_worker`.
        """
        return find_worker(self.num_workers, self.worker_index, self.input_context)


class BenchSpec(Spec, frozen=True, kw_only=True):
    """What `recordmill bench` measures."""

    path: Annotated[str, option(
        "a finished dataset", positional=True, value="DIR", path="folder", example="ds"
    )]  # fmt: skip
    split: Annotated[
        str, option("the split, such as train[:10%]", example="--split='train[:10%]'")
    ] = "train"
    batch_size: Annotated[int, option("the records in a batch", ge=1, example="1024")] = 256
    time: Annotated[float, option("the seconds to measure in total", gt=0, example="10")] = 30
    shuffle: Annotated[
        bool, option("shuffle the records, as in training", example="--no-shuffle")
    ] = True
    seed: Annotated[int, option("the seed of the order", example="1")] = 0
    step_msec: Annotated[tuple[float, ...], option(
        "the times of a trainer's step in milliseconds, for which stalls are computed", gt=0,
        split="words", example="--step_msec 20 50"
    )] = (5, 10, 20, 50, 100, 200)  # fmt: skip
    decode: Annotated[bool | None, option(
        "decode images, as training does; by default, if the dataset has images",
        example="--no-decode"
    )] = None  # fmt: skip
    image_size: Annotated[str | None, option(
        "the size of images after decoding; by default their stored size, or 224x224 if sizes "
        "differ", value="HEIGHTxWIDTH", example="256x256"
    )] = None  # fmt: skip
    int64: Annotated[tuple[str, ...], option(
        "the features that stay int64, as load(…, int64=…) reads them", split="comma",
        value="FEATURE,FEATURE", example="id,time"
    )] = ()  # fmt: skip

    def check(self) -> None:
        """Checks the size of images."""
        if self.image_size is None:
            return
        if self.decode is False:
            raise UsageError("--image_size has no effect with --no-decode; leave it out")
        if not _SIZE.fullmatch(self.image_size):
            raise UsageError(f"--image_size must be like 224x224 or 224, got {self.image_size!r}")

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of images after decoding, where they are given."""
        found = _SIZE.fullmatch(self.image_size or "")
        return (int(found[1]), int(found[2] or found[1])) if found else None
