"""The options of a reader, checked before anything is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from recordmill.reader.features import Transform
from recordmill.reader.narrowing import Int64Names, int64_names
from recordmill.reader.order import REMAINDERS, Order, Remainder
from recordmill.reader.pairs import Pair, check_pair
from recordmill.reader.workers import Worker, find_worker
from recordmill.records.errors import UsageError, one_of
from recordmill.records.schema import Schema

if TYPE_CHECKING:
    import tensorflow as tf

OnError = Literal["fail", "skip_record", "skip_shard"]
_ON_ERROR = ("fail", "skip_record", "skip_shard")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """How a split is read: the arguments of `load`, which says what each does.

    Raises:
      UsageError: a value is not valid for any dataset.
    """

    batch_size: int
    shuffle: bool
    seed: int
    epochs: int | None
    remainder: Remainder
    num_workers: int | None
    worker_index: int | None
    input_context: tf.distribute.InputContext | None
    start_step: int
    transform: Transform | Sequence[Transform]
    schema: Schema | None
    on_error: OnError
    cache_dir: str | None
    cache_bytes: int
    window_records: int | None
    parallel_calls: int | None
    reorder: Callable[[Order], Order] | None
    as_pair: Pair | None = None
    int64: Int64Names = ()

    def __post_init__(self) -> None:
        one_of("remainder", self.remainder, REMAINDERS)
        one_of("on_error", self.on_error, _ON_ERROR)
        if self.as_pair is not None:
            check_pair(self.as_pair)
        int64_names(self.int64)
        for name in ("batch_size", "epochs", "window_records", "parallel_calls"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be 1 or more, got {value}")

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
