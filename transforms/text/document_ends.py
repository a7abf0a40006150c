"""Tokens that no text has: the end of each document, and the ends of its lines."""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Int32s, Int64s


def insert_line_ends(ids: Int32s, positions: Int64s, line_ends: Int32s) -> Int32s:
    """Returns the tokens with `line_ends` before each of some positions.

    Args:
      ids: `[num_tokens] int32`.
      positions: `[num_lines] int64`: where lines begin that follow another line of a document.
      line_ends: `[n] int32`: the tokens of a line end.
    """
    at = np.repeat(positions, len(line_ends))
    return np.insert(ids, at, np.tile(line_ends, len(positions)))


def insert_ends(
    ids: Int32s, counts: Int64s, end_id: int, *, goes_on: bool
) -> tuple[Int32s, Int64s]:
    """Returns the tokens with an end behind each document that has any, and its tokens then.

    Args:
      ids: `[num_tokens] int32`, of documents one behind the other.
      counts: `[num_documents] int64`: the tokens of each.
      end_id: the end.
      goes_on: the last document does not end here.
    """
    ends = counts > 0
    if goes_on and len(ends):
        ends[-1] = False
    return np.insert(ids, np.cumsum(counts)[ends], end_id), counts + ends
