"""The position of a reader, and the identity of its order, as JSON for a checkpoint."""

from __future__ import annotations

import json
import reprlib

import msgspec

from recordmill.reader.opening import OpenedSplit
from recordmill.reader.options import ReaderOptions
from recordmill.reader.order import ORDER_VERSION
from recordmill.records.errors import UsageError
from recordmill.records.hashing import fingerprint64
from recordmill.records.state import Count, FormatError, convert, decode

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 100  # a state may hold anything


class OrderIdentity(msgspec.Struct, frozen=True):
    """Everything that decides the order of a reader, except the number of workers.

    A step has no meaning in another order, so a state of another order is refused. The error names
    the first field that differs.

    Attributes:
      dataset: fingerprint of its manifest.
      split: as the user wrote it, cut after 200 characters.
      shuffle, seed, remainder: as `load` takes them.
      global_batch: rows a step, of all workers.
      window_records: permuted together, about.
      block_records: read together, at most.
      records: that an epoch draws on.
      skipped: fingerprint of the records that `on_error` leaves out.
      reorder: fingerprint of what `reorder` made of the order.
      order_version: of the arithmetic.
    """

    dataset: str
    split: str
    shuffle: bool
    seed: int
    global_batch: int
    remainder: str
    window_records: int
    block_records: int
    records: int
    skipped: str
    reorder: str
    order_version: int = ORDER_VERSION


def identify_order(opened: OpenedSplit, split: str, options: ReaderOptions) -> OrderIdentity:
    """Returns the identity of the order in which a split is read."""
    order = opened.order
    skipped = [[record.path.rpartition("/")[2], record.record] for record in opened.skipped]
    return OrderIdentity(
        dataset=_fingerprint(opened.dataset.manifest.to_bytes()),
        split=split[:200],
        shuffle=options.shuffle,
        seed=options.seed,
        global_batch=order.global_batch,
        remainder=options.remainder,
        window_records=order.window_records,
        block_records=order.block_records,
        records=order.records,
        skipped=_fingerprint(json.dumps(skipped).encode()) if skipped else "",
        reorder=order.fingerprint,
    )


def format_state(identity: OrderIdentity, step: int) -> str:
    """Returns a state: JSON of fewer than 1,024 bytes."""
    return json.dumps({**msgspec.to_builtins(identity), "step": step})


def parse_state(state: str, identity: OrderIdentity) -> int:
    """Returns the step of a state.

    Raises:
      UsageError: it is not a state, or it is of another order; names the first difference.
    """
    try:
        if not isinstance(state, str):
            raise FormatError(f"it is of type {type(state).__name__}")
        values = decode(state.encode(errors="replace"), dict[str, object])
        step = convert(values.pop("step", None), Count)
    except FormatError as error:
        raise UsageError(
            f"a reader's state must be what state() returned, and is not: {error}"
        ) from error
    for name, expected in msgspec.to_builtins(identity).items():
        if name not in values:
            raise UsageError(
                f"a state must name the reader's {name}, and has none, because an earlier release "
                "made it: read on with that release, or begin at a step by start_step"
            )
        if values[name] != expected:
            raise UsageError(
                f"a state must be of the same order, and its {name} is "
                f"{_SHORT.repr(values[name])} where this reader has {expected!r}; open the "
                "reader as before"
            )
    return step


def _fingerprint(content: bytes) -> str:
    return f"{fingerprint64(content):016x}"
