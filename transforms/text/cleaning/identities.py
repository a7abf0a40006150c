"""Identities of 128 bits, `[n, 2] uint64`: of 10 billion documents the chance that two others share
one is 1 in 10**18. The first 64 bits decide the order, the others only where the first are equal.
"""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.jit import kernel
from recordmill.records.hashing import U64


def ranks_of(identities: U64) -> tuple[U64, Int64s]:
    """Returns identities in order, each once, and the number of each that was given in these.

    Args:
      identities: `[m, 2] uint64`, in any order.

    Returns:
      `[n, 2] uint64` and `[m] int64`.
    """
    order = np.lexsort((identities[:, 1], identities[:, 0]))
    ordered = identities[order]
    begins = np.ones(len(ordered), np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    ranks = np.empty(len(ordered), np.int64)
    ranks[order] = np.cumsum(begins) - 1
    return ordered[begins], ranks


@kernel
def _find(known: U64, wanted: U64, found: Int64s) -> None:
    for i in range(wanted.shape[0]):
        low, high = 0, known.shape[0]
        while low < high:
            middle = (low + high) // 2
            if known[middle, 0] < wanted[i, 0] or (
                known[middle, 0] == wanted[i, 0] and known[middle, 1] < wanted[i, 1]
            ):
                low = middle + 1
            else:
                high = middle
        is_known = (
            low < known.shape[0] and known[low, 0] == wanted[i, 0] and known[low, 1] == wanted[i, 1]
        )
        found[i] = low if is_known else -1


def positions_of(known: U64, wanted: U64) -> Int64s:
    """Returns `[m] int64`: the position of each wanted identity in the known ones, -1 for none.

    Args:
      known: `[n, 2] uint64` in order, each once.
      wanted: `[m, 2] uint64`.
    """
    found = np.empty(len(wanted), np.int64)
    _find(np.ascontiguousarray(known), np.ascontiguousarray(wanted), found)
    return found
