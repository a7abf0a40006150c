"""Documents with more text than they may have, left out as rejects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from recordmill.records.arrays import Bools, Int64s
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.sources.document_batch import DocumentBatch


def without_long_documents(
    batches: Iterable[DocumentBatch], most_bytes: int, name: str
) -> Iterator[DocumentBatch]:
    """Yields batches without the documents that are too long; these are rejects.

    What counts is the text, without white space between its lines, so that it depends on the
    document alone. Memory: what is known of a document until it ends, `most_bytes` at most.

    Args:
      batches: of one source, in order.
      most_bytes: of the text of a document.
      name: of the source, for rejects.
    """
    filtered = _Filter(most_bytes, name)
    for batch in batches:
        yield from filtered.add(batch)
    yield from filtered.held


class _Filter:
    """Holds batches back whose last document may go on.

    Attributes:
      held: the first one has the beginning of that document, the others hold it alone.
    """

    def __init__(self, most_bytes: int, name: str) -> None:
        self._most_bytes = most_bytes
        self._name = name
        self.held: list[DocumentBatch] = []
        self._open_bytes = 0  # of the document that may go on
        self._is_rejected = False  # that document

    def add(self, batch: DocumentBatch) -> Iterator[DocumentBatch]:
        """Takes a batch; yields those that need not be held any longer."""
        sizes = _sizes(batch)
        last = len(sizes) - 1
        if not batch.continues:
            self._is_rejected, self._open_bytes = False, 0
        elif len(sizes):
            sizes[0] += self._open_bytes
        drop = sizes > self._most_bytes
        rejects = [self._reject(batch, i) for i in np.flatnonzero(drop).tolist()]
        if batch.continues and len(sizes):
            if self._is_rejected:
                rejects = rejects[int(drop[0]) :]
            elif drop[0]:
                rejects[0] = self._reject(self.held[0], -1)
                self.held = [_without_last(each) for each in self.held]
            drop[0] |= self._is_rejected
        batch = _without(batch, drop) if drop.any() else batch
        batch = replace(batch, rejects=[*batch.rejects, *rejects])
        if last or not batch.continues or drop[0]:  # no document of those that are held goes on
            yield from self.held
            self.held = []
        self.held.append(batch)
        if last >= 0:
            self._is_rejected, self._open_bytes = bool(drop[last]), int(sizes[last])

    def _reject(self, batch: DocumentBatch, document: int) -> Reject:
        detail = f"more than {self._most_bytes} bytes"
        position = int(batch.positions[document])
        return Reject(self._name, position, "read", "document_too_long", detail)


def _sizes(batch: DocumentBatch) -> Int64s:
    """Returns `[num_documents] int64`: bytes of the text of each."""
    sizes = np.zeros(len(batch.keys), np.int64)
    np.add.at(sizes, batch.line_documents, batch.lines.ends - batch.lines.starts)
    return sizes


def _without_last(batch: DocumentBatch) -> DocumentBatch:
    return _without(batch, np.arange(len(batch.keys)) == len(batch.keys) - 1)


def _without(batch: DocumentBatch, drop: Bools) -> DocumentBatch:
    """Returns a batch without some documents, `[num_documents] bool`."""
    keep = ~drop
    lines = keep[batch.line_documents]
    number = np.cumsum(keep) - 1
    carried = batch.carried
    return replace(
        batch,
        lines=batch.lines.select(lines),
        line_documents=number[batch.line_documents[lines]],
        keys=batch.keys[keep],
        groups=batch.groups[keep],
        continues=batch.continues and not drop[0],
        splits=None if batch.splits is None else batch.splits[keep],
        carried=carried and [each for each, kept in zip(carried, keep, strict=True) if kept],
        contents=lambda: batch.contents()[keep],
        positions=batch.positions[keep],
    )
