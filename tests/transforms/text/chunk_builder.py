"""Chunks from lists, and back, for tests."""

from __future__ import annotations

import numpy as np

from recordmill.transforms.text.chunks import Chunks

Sentences = list[list[int]]


def make_chunks(
    texts: list[Sentences], *, documents: list[int] | None = None, hashes: list[int] | None = None
) -> Chunks:
    """Makes a chunk of each text; each of its own document unless told otherwise."""
    counts = np.array([sum(map(len, text)) for text in texts], np.int64)
    keys = documents if documents is not None else range(1, len(texts) + 1)
    return Chunks(
        np.array(hashes if hashes is not None else range(1000, 1000 + len(texts)), np.uint64),
        np.array(list(keys), np.uint64),
        np.cumsum(counts) - counts,
        counts,
        np.cumsum([0] + [len(text) for text in texts]).astype(np.int64),
        np.array([len(sentence) for text in texts for sentence in text], np.int32),
        np.array([token for text in texts for sentence in text for token in sentence], np.int32),
    )


def texts_of(chunks: Chunks) -> list[Sentences]:
    """Returns the sentences of each chunk."""
    texts = []
    for i in range(len(chunks)):
        at = int(chunks.token_starts[i])
        text = []
        for length in chunks.sentence_lengths[
            chunks.sentence_splits[i] : chunks.sentence_splits[i + 1]
        ].tolist():
            text.append(chunks.ids[at : at + length].tolist())
            at += length
        assert at == chunks.token_starts[i] + chunks.token_counts[i]
        texts.append(text)
    return texts
