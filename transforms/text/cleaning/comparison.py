"""Find which documents repeat others, given sorted hashes; all of it in arrays.

A document is a number, its position in the order of the input: work item, then its number in there.
The first document of those that are equal or similar is kept.
"""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.jit import kernel
from recordmill.records.hashing import U64
from recordmill.transforms.text.cleaning.minhash import differing_hashes

_MOST_LEADERS = 64  # of a bucket, that a document is compared with
_ITEM_BITS = 32


def first_document(work_item: int) -> int:
    """Returns the number of the first document of a work item."""
    return work_item << _ITEM_BITS


def work_item_of(document: int) -> tuple[int, int]:
    """Returns the work item of a document, and its number in there."""
    return document >> _ITEM_BITS, document & ((1 << _ITEM_BITS) - 1)


def equal_documents(rows: U64) -> U64:
    """Returns `[n, 2] uint64`: the documents that repeat another, and the first one of each.

    Args:
      rows: `[m, 3] uint64` of `ExactHasher`, all that there are of each hash, in any order.
    """
    ordered = rows[np.lexsort((rows[:, 1], rows[:, 2], rows[:, 0]))]
    begins = np.ones(len(ordered), np.bool_)
    begins[1:] = (ordered[1:, 0] != ordered[:-1, 0]) | (ordered[1:, 2] != ordered[:-1, 2])
    firsts = ordered[np.flatnonzero(begins), 1][np.cumsum(begins) - 1]
    repeats = ~begins
    return np.column_stack([ordered[repeats, 1], firsts[repeats]])


@kernel
def _meet(rows: U64, most_differing: int, pairs: U64) -> int:
    count = 0
    leaders = np.empty(_MOST_LEADERS, np.int64)
    held = 0
    for i in range(rows.shape[0]):
        if i and rows[i, 0] != rows[i - 1, 0]:
            held = 0
        found = False
        for k in range(held):
            if differing_hashes(rows, leaders[k], i, 2) <= most_differing:
                pairs[count, 0] = rows[i, 1]
                pairs[count, 1] = rows[leaders[k], 1]
                count += 1
                found = True
                break
        if not found and held < _MOST_LEADERS:
            leaders[held] = i
            held += 1
    return count


def similar_documents(rows: U64, most_differing: int) -> U64:
    """Returns `[n, 2] uint64`: pairs of similar documents, the later one first, each once.

    Documents of a bucket are compared with the first of each group of similar ones there, up to 64
    groups: a bucket of a million documents costs no more than 64 comparisons for each.

    Args:
      rows: `[m, 6] uint64` of `MinHasher`, all that there are of each hash, in any order.
      most_differing: see `minhash.most_differing`.
    """
    ordered = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    pairs = np.empty((len(ordered), 2), np.uint64)
    count = _meet(ordered, most_differing, pairs)
    return np.unique(pairs[:count], axis=0)


@kernel
def _root(parents: Int64s, node: int) -> int:
    while parents[node] != node:
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@kernel
def _join(parents: Int64s, pairs: Int64s) -> None:
    for i in range(pairs.shape[0]):
        a, b = _root(parents, pairs[i, 0]), _root(parents, pairs[i, 1])
        if a < b:
            parents[b] = a
        else:
            parents[a] = b


@kernel
def _flatten(parents: Int64s) -> None:
    for i in range(parents.shape[0]):
        parents[i] = _root(parents, i)


class Clusters:
    """Groups of documents that are similar, also by way of others; the first of each is kept.

    Union-find: the parent of a node comes before it, so that the root of a group is its first
    document, in whatever order pairs come. It holds 16 bytes for each document in a pair.

    Args:
      documents: `[n] uint64`, ascending, each once: all documents in a pair.
    """

    def __init__(self, documents: U64) -> None:
        self._documents = documents
        self._parents = np.arange(len(documents), dtype=np.int64)

    def join(self, pairs: U64) -> None:
        """Joins the groups of `[n, 2] uint64`: pairs of documents."""
        _join(self._parents, np.searchsorted(self._documents, pairs))

    def repeats(self) -> U64:
        """Returns `[m, 2] uint64`: the documents to drop, ascending, and the first of each."""
        _flatten(self._parents)
        dropped = np.flatnonzero(self._parents != np.arange(len(self._parents)))
        firsts = self._documents[self._parents[dropped]]
        return np.column_stack([self._documents[dropped], firsts])
