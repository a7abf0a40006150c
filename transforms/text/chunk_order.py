"""The order of chunks in a shard: by hash and document, and where both are equal by content."""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.jit import kernel
from recordmill.records.codec.randomness import mix_one
from recordmill.records.hashing import FNV_OFFSET, FNV_PRIME, U64, fingerprint64
from recordmill.transforms.subwords.tokenizer import Ids
from recordmill.transforms.text.chunk_fields import take_fields
from recordmill.transforms.text.chunks import Chunks


def sort_chunks(chunks: Chunks) -> Chunks:
    """Orders chunks by (hash, document); `ids` stay as they are, and chunks point into them.

    Documents of users' pipelines may have one key, or no key and one text: then the content decides
    the order, whichever run file a chunk comes from.
    """
    order = np.lexsort((chunks.documents, chunks.hashes))
    hashes, documents = chunks.hashes[order], chunks.documents[order]
    if ((hashes[1:] == hashes[:-1]) & (documents[1:] == documents[:-1])).any():
        order = np.lexsort((_contents(chunks), chunks.documents, chunks.hashes))
    counts = np.diff(chunks.sentence_splits)
    starts = chunks.sentence_splits[:-1][order]
    splits = np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64)
    index = np.repeat(starts - splits[:-1], counts[order]) + np.arange(splits[-1])
    return Chunks(
        chunks.hashes[order], chunks.documents[order], chunks.token_starts[order],
        chunks.token_counts[order], splits, chunks.sentence_lengths[index], chunks.ids,
        take_fields(chunks.fields, order),
    )  # fmt: skip


@kernel
def _hash_chunks(
    starts: Int64s, counts: Int64s, splits: Int64s, lengths: Ids, ids: Ids, hashes: U64
) -> None:
    for i in range(hashes.shape[0]):
        found = hashes[i]
        for j in range(splits[i], splits[i + 1]):
            found = (found ^ np.uint64(lengths[j])) * FNV_PRIME
        for j in range(starts[i], starts[i] + counts[i]):
            found = (found ^ np.uint64(ids[j])) * FNV_PRIME
        hashes[i] = mix_one(found)


def _contents(chunks: Chunks) -> U64:
    """Returns `[num_chunks] uint64`: hashes of what chunks hold."""
    hashes = np.full(len(chunks), FNV_OFFSET, np.uint64)
    if chunks.fields is not None:
        texts = chunks.fields.texts(np.arange(len(chunks)))
        known = [fingerprint64(repr(each).encode()) for each in texts]
        hashes ^= np.array(known, np.uint64)
    _hash_chunks(
        chunks.token_starts, chunks.token_counts, chunks.sentence_splits, chunks.sentence_lengths,
        chunks.ids.astype(np.int32), hashes,
    )  # fmt: skip
    return hashes
