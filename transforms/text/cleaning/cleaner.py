"""Clean the documents of one work item of scatter, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import U64
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.text.cleaning.document_lengths import LengthFilter, Verdicts
from recordmill.transforms.text.cleaning.dropped import DropList
from recordmill.transforms.text.text_spec import CleanSpec

HeldT = TypeVar("HeldT")
ChooseSplits = Callable[[DocumentBatch, SourceRange], Int64s]


class KnownDuplicates(Protocol):
    """The duplicates among the documents of a work item."""

    def find(self, first: int, count: int) -> tuple[Int64s, U64]:
        """Returns which of some documents are dropped, from 0 on, and what each repeats.

        Args:
          first: the number of a document in the work item.
          count: of documents.
        """
        ...

    def origin(self, original: int) -> dict[str, Any]:
        """Returns what a document that others repeat is found by."""
        ...


class DocumentCleaner(Generic[HeldT]):
    """Normalizes documents, and drops duplicates and those of the wrong length.

    Args:
      spec: what to do.
      normalizer: of lines; None where they stay as they are.
      duplicates: of the work item; None where documents are not compared.
      choose_splits: returns the split of each document of a batch.
      drops: takes what is dropped.
    """

    def __init__(
        self,
        spec: CleanSpec,
        normalizer: Callable[[Lines], Lines] | None,
        duplicates: KnownDuplicates | None,
        choose_splits: ChooseSplits,
        drops: DropList,
    ) -> None:
        self._reason = "near_duplicate" if spec.deduplicate == "near" else "duplicate"
        self._normalizer = normalizer
        self._duplicates = duplicates
        self._choose_splits = choose_splits
        self._lengths: LengthFilter[HeldT] | None = None
        if spec.limits_length:
            self._lengths = LengthFilter(spec.min_tokens, spec.max_tokens)
        self._numbered = 0
        self._open_position = 0
        self._drops = drops
        self.num_duplicates = 0
        self.num_of_wrong_length = 0

    def documents(
        self, batches: Iterable[DocumentBatch], source: SourceRange
    ) -> Iterator[DocumentBatch]:
        """Yields the batches of one source with their text normalized, without duplicates."""
        for batch in batches:
            cleaned = batch
            if self._normalizer:
                cleaned = replace(cleaned, lines=self._normalizer(cleaned.lines))
            if self._duplicates:
                cleaned = self._without_duplicates(cleaned, source, self._duplicates)
            yield cleaned

    def _without_duplicates(
        self, batch: DocumentBatch, source: SourceRange, duplicates: KnownDuplicates
    ) -> DocumentBatch:
        first = self._numbered - batch.continues
        self._numbered = first + len(batch.keys)
        dropped, originals = duplicates.find(first, len(batch.keys))
        if not len(dropped):
            return batch
        splits = self._choose_splits(batch, source)
        for i, original in zip(dropped.tolist(), originals.tolist(), strict=True):
            if i == 0 and batch.continues:
                continue  # counted with its first part
            more = {}
            if self._drops.is_listed:
                more = {"duplicate_of": duplicates.origin(original)}
            described = partial(batch.description, source.name, int(batch.positions[i]))
            self._drops.add(self._reason, int(splits[i]), described, **more)
            self.num_duplicates += 1
        keep = np.ones(len(batch.keys), np.bool_)
        keep[dropped] = False
        return batch.select(keep)

    def judge(
        self,
        batch: DocumentBatch,
        line_tokens: Int64s,
        splits: Int64s,
        source: SourceRange,
        *,
        goes_on: bool,
    ) -> Verdicts[HeldT] | None:
        """Decides which documents have the right length; None where any length is right.

        Args:
          batch: what `documents` yielded, at least one document.
          line_tokens: `[num_lines] int64`: the tokens of each line.
          splits: `[num_documents] int64`.
          source: that the batch is of.
          goes_on: the next batch has the rest of the last document.
        """
        if self._lengths is None:
            return None
        size = len(batch.keys)
        counts = np.bincount(batch.line_documents, weights=line_tokens, minlength=size)
        verdicts = self._lengths.judge(
            counts.astype(np.int64), continues=batch.continues, goes_on=goes_on
        )
        begin = self._open_position if batch.continues else int(batch.positions[0])
        for reason, dropped in (("too_short", verdicts.too_short), ("too_long", verdicts.too_long)):
            self.num_of_wrong_length += len(dropped)
            for i in dropped.tolist():
                position = int(batch.positions[i]) if i else begin
                described = partial(batch.description, source.name, position)
                tokens = int(verdicts.tokens[i])
                self._drops.add(reason, int(splits[i]), described, tokens=tokens)
        self._open_position = int(batch.positions[-1]) if size > 1 else begin
        return verdicts

    def hold(self, part: HeldT) -> None:
        """Keeps a part of the document that `judge` lets wait."""
        if self._lengths:
            self._lengths.hold(part)
