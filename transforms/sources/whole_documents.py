"""Documents whole, of batches that may hold parts of long ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.sources.document_batch import DocumentBatch


class WholeDocument(NamedTuple):
    """A document as it was read: the batch that it begins in, its number there, its lines."""

    batch: DocumentBatch
    number: int
    lines: list[bytes]
    position: int
    key: int


def whole_documents(
    batches: Iterable[DocumentBatch],
) -> Iterator[tuple[list[Reject], list[WholeDocument]]]:
    """Yields the rejects of each batch, and the documents of which all parts are read."""
    held: WholeDocument | None = None
    for batch in batches:
        data = batch.lines.buffer.tobytes()
        count = len(batch.keys)
        bounds = np.searchsorted(batch.line_documents, np.arange(count + 1)).tolist()
        starts, ends = batch.lines.starts.tolist(), batch.lines.ends.tolist()
        documents: list[WholeDocument] = []
        positions, keys = batch.positions.tolist(), batch.keys.tolist()
        for i in range(count):
            lines = [data[starts[at] : ends[at]] for at in range(bounds[i], bounds[i + 1])]
            if i == 0 and batch.continues and held is not None:
                held.lines.extend(lines)
                continue
            if held is not None:
                documents.append(held)
            held = WholeDocument(batch, i, lines, positions[i], keys[i])
        yield batch.rejects, documents
    if held is not None:
        yield [], [held]
