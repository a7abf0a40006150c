"""Drop documents by their number of tokens, also those that are read in parts."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np

from recordmill.records.arrays import Bools, Int64s

HeldT = TypeVar("HeldT")


class Verdicts(NamedTuple, Generic[HeldT]):
    """What becomes of the documents of a batch.

    Attributes:
      keep: `[num_documents] bool`.
      too_short, too_long: `[n] int64`: the documents that are dropped with this batch.
      tokens: `[num_documents] int64`: of each so far.
      waits: the last document goes on and nothing is decided; it is not kept so far, and what it
        has goes to `LengthFilter.hold`.
      released: what was held of a document that is kept.
    """

    keep: Bools
    too_short: Int64s
    too_long: Int64s
    tokens: Int64s
    waits: bool
    released: list[HeldT]


class LengthFilter(Generic[HeldT]):
    """Judges documents in the order of consecutive batches.

    It holds parts of one document at most: as many tokens as `most`, or as `least` where there is
    no `most`.

    Args:
      least: documents with fewer tokens are dropped; those with none are left alone.
      most: documents with more tokens are dropped; None for no bound.
    """

    def __init__(self, least: int, most: int | None) -> None:
        self._least = least
        self._most = most
        self._open_tokens = 0
        self._open_state = ""
        self._held: list[HeldT] = []

    def hold(self, part: HeldT) -> None:
        """Keeps a part of the document that waits."""
        self._held.append(part)

    def judge(self, counts: Int64s, *, continues: bool, goes_on: bool) -> Verdicts[HeldT]:
        """Decides on the documents of the next batch.

        Args:
          counts: `[num_documents] int64`: the tokens of each in this batch, at least one document.
          continues: the first is the rest of the last one of the batch before.
          goes_on: the next batch has the rest of the last one.
        """
        counts = counts.copy()
        before = self._open_state if continues else ""
        if continues:
            counts[0] += self._open_tokens
        last = len(counts) - 1
        too_short = (counts > 0) & (counts < self._least)
        too_long = np.zeros(len(counts), np.bool_) if self._most is None else counts > self._most
        state = ""
        if goes_on:
            too_short[last] = False
            decided = self._most is None and counts[last] >= self._least
            state = "dropped" if too_long[last] else "kept" if decided else "wait"
        keep = ~(too_short | too_long)
        if state == "wait":
            keep[last] = False
        if before == "dropped":
            too_long[0] = False  # counted already
        released: list[HeldT] = []
        if before == "wait" and not (last == 0 and state == "wait"):
            released, self._held = (self._held if keep[0] else []), []
        self._open_tokens, self._open_state = int(counts[last]), state
        return Verdicts(
            keep, np.flatnonzero(too_short), np.flatnonzero(too_long), counts, state == "wait",
            released,
        )  # fmt: skip
