"""Choose the split of an input by the hash of its group, and by nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import U64, combine, seed_for


def choose_splits(groups: U64, shares: Iterable[float]) -> Int64s:
    """Returns `[n] int64`: the split of each document, by the hash of its group.

    The choice depends on neither seed nor vocabulary: a document stays in its split for ever.
    """
    bounds = np.cumsum(list(shares))[:-1]
    salted = combine(groups, np.full(len(groups), seed_for(0, "splits"), np.uint64))
    fractions = (salted >> np.uint64(11)).astype(np.float64) / (1 << 53)
    return np.searchsorted(bounds, fractions, side="right").astype(np.int64)
