"""Unigram segmentation of one word by the best path (Kudo 2018, arXiv:1804.10959): kernels.

SentencePiece adds the scores of a whole line in 32 bits, so that a tie, or nearly one, may be
decided by rounding, which depends on what stands before the word. The margin of a word says how far
it is from that: where it is too small, the word is segmented again from the line's score so far,
in SentencePiece's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bytes, Int32s, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.hashing import GOLDEN, U64

Float64s = npt.NDArray[np.float64]
_FREE = np.uint64(0xFFFFFFFFFFFFFFFF)
_FAR = 1e30


class Pieces(NamedTuple):
    """The pieces of a model as a trie in a hash table.

    Attributes:
      keys: `[2**n] uint64`: a node and a byte.
      nodes: `[2**n] int32`: the node below.
      piece_of: `[num_nodes] int32`: the piece that ends at a node, -1 for none.
      scores: `[num_pieces] float64`.
      unknown_score: of a character that no piece is.
    """

    keys: U64
    nodes: Int32s
    piece_of: Int32s
    scores: Float64s
    unknown_score: float


@subroutine
def _slot(keys: U64, node: int, byte: int) -> np.uint64:
    """Returns the slot of a node and a byte, or the free one where it belongs."""
    mask = np.uint64(keys.shape[0] - 1)
    key = np.uint64(node) << np.uint64(8) | np.uint64(byte)
    slot = (key * GOLDEN >> np.uint64(24)) & mask
    while keys[slot] != key and keys[slot] != _FREE:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def _fill(
    pool: Bytes, splits: Int64s, ids: Int64s, keys: U64, nodes: Int32s, piece_of: Int32s
) -> int:
    count = 1
    for i in range(ids.shape[0]):
        node = 0
        for at in range(splits[i], splits[i + 1]):
            slot = _slot(keys, node, pool[at])
            if keys[slot] == _FREE:
                keys[slot] = np.uint64(node) << np.uint64(8) | np.uint64(pool[at])
                nodes[slot] = count
                count += 1
            node = nodes[slot]
        piece_of[node] = ids[i]
    return count


def make_pieces(
    spelled: Sequence[bytes], ids: Sequence[int], scores: Float64s, unknown_score: float
) -> Pieces:
    """Returns the trie of some pieces.

    Args:
      spelled: each piece, not empty.
      ids: of the same.
      scores: `[num_ids]`: of all ids.
      unknown_score: see `Pieces`.
    """
    splits = np.zeros(len(spelled) + 1, np.int64)
    np.cumsum([len(piece) for piece in spelled], out=splits[1:])
    most = int(splits[-1]) + 1
    size = 1 << max(4, (2 * most).bit_length())
    keys, nodes = np.full(size, _FREE), np.zeros(size, np.int32)
    piece_of = np.full(most, -1, np.int32)
    pool = np.frombuffer(b"".join(spelled), np.uint8)
    count = _fill(pool, splits, np.array(ids, np.int64), keys, nodes, piece_of)
    return Pieces(keys, nodes, piece_of[:count].copy(), scores, unknown_score)


class Path(NamedTuple):
    """Room for the best paths to each byte of a word, `[word bytes + 1]` each."""

    scores: Float64s
    seconds: Float64s
    begins: Int64s
    pieces: Int32s


@subroutine
def _offer(path: Path, target: int, score: float, begin: int, piece: int) -> None:
    """Takes a way to a byte if it is the best, or the second best."""
    scores, seconds, begins, pieces = path
    if begins[target] < 0 or score > scores[target]:
        seconds[target] = -_FAR if begins[target] < 0 else scores[target]
        scores[target] = score
        begins[target] = begin
        pieces[target] = piece
    elif score > seconds[target]:
        seconds[target] = score


@subroutine
def best_path(
    text: Bytes, at: int, end: int, before: float, single: bool, model: Pieces, path: Path
) -> float:
    """Fills `path` for a word; returns the margin of the best path over others.

    Args:
      text: valid UTF-8.
      at, end: the word.
      before: the score of what stands before it.
      single: add scores as SentencePiece does, in 32 bits.
      model: the pieces.
      path: room; in `path.pieces`, -1 stands for an unknown character.
    """
    keys, nodes, piece_of, piece_scores, unknown_score = model
    scores, seconds, begins, _ = path
    length = end - at
    for i in range(length + 1):
        begins[i] = -1
    scores[0] = before
    i = 0
    while i < length:
        first = text[at + i]
        width = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        width = min(width, length - i)
        single_char = False
        node = 0
        for j in range(i, length):
            slot = _slot(keys, node, text[at + j])
            if keys[slot] == _FREE:
                break
            node = nodes[slot]
            piece = piece_of[node]
            if piece >= 0:
                score = piece_scores[piece] + scores[i]
                if single:
                    score = np.float64(np.float32(score))
                _offer(path, j + 1, score, i, piece)
                single_char |= j + 1 - i == width
        if not single_char:
            score = unknown_score + scores[i]
            if single:
                score = np.float64(np.float32(score))
            _offer(path, i + width, score, i, -1)
        i += width
    margin = _FAR
    i = length
    while i > 0:
        margin = min(margin, scores[i] - seconds[i])
        i = begins[i]
    return margin
