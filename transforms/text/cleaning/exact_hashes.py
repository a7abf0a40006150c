"""Hash the whole text of documents: equal texts have equal hashes of 128 bits.

White space counts as one space, and none at the beginning and the end, so that neither line ends
nor sentence splitting matter. Of 10 billion documents, the chance that two others share a hash is
1 in 10**18.
"""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.jit import kernel
from recordmill.records.codec.randomness import mix_one
from recordmill.records.hashing import FNV_OFFSET, FNV_PRIME, GOLDEN, U64
from recordmill.transforms.sources.document_batch import DocumentBatch

_START, _WITHIN, _SPACE = np.uint64(0), np.uint64(1), np.uint64(2)
_LINE_END = np.uint64(10)
_BLANK = np.uint64(32)


@kernel
def _hash_texts(
    buffer: Bytes, starts: Int64s, ends: Int64s, documents: Int64s, keeps_lines: bool, states: U64
) -> None:
    """Adds lines to the state of each document: two hashes, and what came last."""
    for i in range(starts.shape[0]):
        d = documents[i]
        first, second, last = states[d, 0], states[d, 1], states[d, 2]
        for at in range(starts[i], ends[i]):
            byte = np.uint64(buffer[at])
            if byte <= _BLANK:
                if last == _WITHIN:
                    last = _SPACE
                continue
            if last == _SPACE:
                first = (first ^ _BLANK) * FNV_PRIME
                second = (second ^ _BLANK) * GOLDEN
            first = (first ^ byte) * FNV_PRIME
            second = (second ^ byte) * GOLDEN
            last = _WITHIN
        if keeps_lines:
            first = (first ^ _LINE_END) * FNV_PRIME
            second = (second ^ _LINE_END) * GOLDEN
        if last == _WITHIN:
            last = _SPACE
        states[d, 0], states[d, 1], states[d, 2] = first, second, last


@kernel
def _finish(states: U64, hashes: U64) -> None:
    for d in range(states.shape[0]):
        hashes[d, 0] = mix_one(states[d, 0])
        hashes[d, 1] = mix_one(states[d, 1])


class ExactHasher:
    """Hashes the documents of consecutive batches.

    Args:
      keeps_lines: the lines of a document are texts of their own, as a pair to classify has them.
    """

    def __init__(self, *, keeps_lines: bool) -> None:
        self._keeps_lines = keeps_lines
        self._open = self._new(0)

    def _new(self, count: int) -> U64:
        states = np.zeros((count, 3), np.uint64)
        states[:, 0] = FNV_OFFSET
        states[:, 1] = GOLDEN
        return states

    def add(self, batch: DocumentBatch, *, goes_on: bool) -> tuple[Int64s, U64]:
        """Hashes the documents that end in a batch.

        Args:
          batch: at least one document.
          goes_on: the next batch has the rest of the last document.

        Returns:
          `[n] int64`: those documents, from 0 on, of which each has text; `[n, 2] uint64`.
        """
        states = self._new(len(batch.keys))
        if batch.continues:
            states[:1] = self._open
        lines = batch.lines
        _hash_texts(
            lines.buffer, lines.starts, lines.ends, batch.line_documents, self._keeps_lines, states
        )
        if goes_on:
            self._open, states = states[-1:], states[:-1]
        chosen = np.flatnonzero(states[:, 2] != _START)
        hashes = np.empty((len(chosen), 2), np.uint64)
        _finish(states[chosen], hashes)
        return chosen, hashes

    def rows(self, documents: U64, hashes: U64) -> U64:
        """Returns `[n, 3] uint64`: hash, document, further hash."""
        return np.column_stack([hashes[:, 0], documents, hashes[:, 1]])
