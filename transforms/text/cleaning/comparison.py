"""Find which documents repeat others, given sorted hashes; all of it in arrays.

A document is a number: work item, then its number in there. Its place is `[places] uint64`, columns
in order of their weight, the number last: for files the number alone, which is the position in the
order of the input; elements of a PCollection have no order, and two hashes of all that they have
come first. The first document of those that are equal or similar is kept.
"""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.hashing import U64
from recordmill.transforms.text.cleaning.minhash import SKETCH_WORDS, differing_hashes

EXACT_WIDTH, NEAR_WIDTH = 3, 2 + SKETCH_WORDS  # of the rows of hashers
_MOST_LEADERS = 64  # of a bucket, that a document is compared with
_ITEM_BITS = 32


def first_document(work_item: int) -> int:
    """Returns the number of the first document of a work item."""
    return work_item << _ITEM_BITS


def work_item_of(document: int) -> tuple[int, int]:
    """Returns the work item of a document, and its number in there."""
    return document >> _ITEM_BITS, document & ((1 << _ITEM_BITS) - 1)


def places_of(rows: U64, width: int) -> U64:
    """Returns `[m, places] uint64`: the places of the documents of rows of a hasher.

    Args:
      rows: `[m, width + places - 1] uint64`, with what comes before numbers at their ends.
      width: of the hasher's rows.
    """
    return rows[:, [*range(width, rows.shape[1]), 1]]


def equal_documents(rows: U64) -> U64:
    """Returns `[n, 2] uint64`: the documents that repeat another, and the first one of each.

    Args:
      rows: of `ExactHasher`, see `places_of`, all that there are of each hash, in any order.
    """
    places = places_of(rows, EXACT_WIDTH)
    ordered = rows[np.lexsort((*places.T[::-1], rows[:, 2], rows[:, 0]))]
    begins = np.ones(len(ordered), np.bool_)
    begins[1:] = (ordered[1:, 0] != ordered[:-1, 0]) | (ordered[1:, 2] != ordered[:-1, 2])
    firsts = ordered[np.flatnonzero(begins), 1][np.cumsum(begins) - 1]
    repeats = ~begins
    return np.column_stack([ordered[repeats, 1], firsts[repeats]])


@kernel
def _meet(rows: U64, most_differing: int, pairs: Int64s) -> int:
    count = 0
    leaders = np.empty(_MOST_LEADERS, np.int64)
    held = 0
    for i in range(rows.shape[0]):
        if i and rows[i, 0] != rows[i - 1, 0]:
            held = 0
        found = False
        for k in range(held):
            if differing_hashes(rows, leaders[k], i, 2) <= most_differing:
                pairs[count, 0] = i
                pairs[count, 1] = leaders[k]
                count += 1
                found = True
                break
        if not found and held < _MOST_LEADERS:
            leaders[held] = i
            held += 1
    return count


def similar_documents(rows: U64, most_differing: int) -> U64:
    """Returns `[n, 2 * places] uint64`: similar documents, the later one first, each pair once.

    Documents of a bucket are compared with the first of each group of similar ones there, up to 64
    groups: a bucket of a million documents costs no more than 64 comparisons for each.

    Args:
      rows: of `MinHasher`, see `places_of`, all that there are of each hash, in any order.
      most_differing: see `minhash.most_differing`.
    """
    ordered = rows[np.lexsort((*places_of(rows, NEAR_WIDTH).T[::-1], rows[:, 0]))]
    pairs = np.empty((len(ordered), 2), np.int64)
    count = _meet(ordered, most_differing, pairs)
    places = places_of(ordered, NEAR_WIDTH)[pairs[:count]]
    return np.unique(places.reshape(count, 2 * places.shape[2]), axis=0)


def distinct(places: U64) -> U64:
    """Returns places in order, each once."""
    ordered = places[np.lexsort(places.T[::-1])]
    begins = np.ones(len(ordered), np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return ordered[begins]


@kernel
def _find(known: U64, wanted: U64, found: Int64s) -> None:
    for i in range(wanted.shape[0]):
        low, high = 0, known.shape[0] - 1
        while low < high:
            middle = (low + high) // 2
            column = 0
            while column < known.shape[1] - 1 and known[middle, column] == wanted[i, column]:
                column += 1
            if known[middle, column] < wanted[i, column]:
                low = middle + 1
            else:
                high = middle
        found[i] = low


@subroutine
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
    document, in whatever order pairs come. It holds a place and 8 bytes for each document in pairs.

    Args:
      documents: `[n, places] uint64`, as `distinct` returns them: all documents in a pair.
    """

    def __init__(self, documents: U64) -> None:
        self._documents = np.ascontiguousarray(documents)
        self._parents = np.arange(len(documents), dtype=np.int64)

    def join(self, pairs: U64) -> None:
        """Joins the groups of pairs of documents, as `similar_documents` returns them."""
        places = np.ascontiguousarray(pairs.reshape(-1, self._documents.shape[1]))
        nodes = np.empty(len(places), np.int64)
        _find(self._documents, places, nodes)
        _join(self._parents, nodes.reshape(-1, 2))

    def repeats(self) -> U64:
        """Returns `[m, 2] uint64`: the documents to drop, ascending, and the first of each."""
        _flatten(self._parents)
        dropped = np.flatnonzero(self._parents != np.arange(len(self._parents)))
        numbers = self._documents[:, -1]
        found = np.column_stack([numbers[dropped], numbers[self._parents[dropped]]])
        return found[np.argsort(found[:, 0])]
