"""Tokens that no text has: the end of each document, and the ends of its lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Int32s, Int64s
from recordmill.records.codec.jit import kernel


def insert_line_ends(ids: Int32s, positions: Int64s, line_ends: Int32s) -> Int32s:
    """Returns the tokens with `line_ends` before each of some positions.

    Args:
      ids: `[num_tokens] int32`.
      positions: `[num_lines] int64`: where lines begin that follow another line of a document.
      line_ends: `[n] int32`: the tokens of a line end.
    """
    return _inserted(ids, positions, line_ends, ids.dtype) if len(positions) else ids


def insert_ends(
    ids: Int32s,
    counts: Int64s,
    end_id: int,
    *,
    goes_on: bool,
    id_type: npt.DTypeLike = np.int32,
) -> tuple[npt.NDArray[Any], Int64s]:
    """Returns the tokens with an end behind each document that has any, and its tokens then.

    Args:
      ids: `[num_tokens] int32`, of documents one behind the other.
      counts: `[num_documents] int64`: the tokens of each.
      end_id: the end.
      goes_on: the last document does not end here.
      id_type: of the result; it holds all ids.
    """
    ends = counts > 0
    if goes_on and len(ends):
        ends[-1] = False
    added = np.array([end_id], np.int32)
    return _inserted(ids, np.cumsum(counts)[ends], added, id_type), counts + ends


def _inserted(
    ids: Int32s, positions: Int64s, added: Int32s, id_type: npt.DTypeLike
) -> npt.NDArray[Any]:
    out = np.empty(len(ids) + len(positions) * len(added), id_type)
    _insert(ids, positions, added, out)
    return out


@kernel
def _insert(ids: Int32s, positions: Int64s, added: Int32s, out: Any) -> None:
    """Copies tokens with others before each of some positions: thrice as fast as numpy."""
    before, width = 0, added.shape[0]
    for i in range(positions.shape[0]):
        at = positions[i]
        out[before + i * width : at + i * width] = ids[before:at]
        out[at + i * width : at + (i + 1) * width] = added
        before = at
    out[before + positions.shape[0] * width :] = ids[before:]
