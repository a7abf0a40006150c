"""A Unigram for kernels: one word -> ids."""

from __future__ import annotations

from typing import NamedTuple

from recordmill.records.arrays import Bytes, Int32s, Int64s
from recordmill.records.codec.jit import subroutine
from recordmill.transforms.subwords.best_path import Float64s, Path, Pieces, best_path


class Model(NamedTuple):
    """A Unigram, for kernels; unknown characters in a row are one token.

    Attributes:
      runs: some "▁" in a row begin one word; else each begins one.
      pieces: of the model.
      unknown_id: of characters without a token.
      byte_ids: `[256] int32`: the tokens of their bytes instead; else empty.
      fuse_words: unknown tokens of two words are one, too.
      single: scores are added in 32 bits, over the line.
      largest_score: of a token, without its sign, where `single`.
    """

    runs: bool
    pieces: Pieces
    unknown_id: int
    byte_ids: Int32s
    fuse_words: bool
    single: bool
    largest_score: float = 0.0


class Room(NamedTuple):
    """Scratch for one word: where its tokens begin, the path, and what the model says."""

    begins: Int64s
    path: Path
    result: Float64s  # margin, score, 1 where a character is unknown


@subroutine
def _emit(
    text: Bytes, piece: int, begin: int, end: int, model: Model, ids: Int32s, at: int, first: int
) -> int:
    """Writes the id of a piece, or what stands for an unknown one; returns the next position."""
    if piece >= 0:
        ids[at] = piece
        return at + 1
    if model.byte_ids.shape[0]:
        for i in range(begin, end):
            ids[at] = model.byte_ids[text[i]]
            at += 1
        return at
    if at > first and ids[at - 1] == model.unknown_id:
        return at
    ids[at] = model.unknown_id
    return at + 1


@subroutine
def by_path(
    text: Bytes, at: int, end: int, model: Model, room: Room, ids: Int32s, count: int,
    before: float, single: bool,
) -> int:  # fmt: skip
    """Writes the ids of a word from position `count` of `ids` on; returns the next one.

    Its margin and score go to `room`.

    Args:
      before, single: see `best_path`.
    """
    path = room.path
    margin = best_path(text, at, end, before, single, model.pieces, path)
    number = 0
    i = end - at
    while i > 0:
        room.begins[number] = i
        number += 1
        i = path.begins[i]
    first = count
    room.result[2] = 0.0
    while number > 0:
        number -= 1
        i = room.begins[number]
        piece = path.pieces[i]
        if piece < 0:
            room.result[2] = 1.0
        count = _emit(text, piece, at + path.begins[i], at + i, model, ids, count, first)
    room.result[0] = margin
    room.result[1] = path.scores[end - at]
    return count
