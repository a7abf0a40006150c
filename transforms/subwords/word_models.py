"""A tokenizer's model for kernels: one word -> ids."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recordmill.records.arrays import Bytes, Int32s, Int64s
from recordmill.records.codec.jit import subroutine
from recordmill.records.hashing import GOLDEN
from recordmill.transforms.subwords.best_path import Float64s, Path, Pieces, best_path
from recordmill.transforms.subwords.merging import Merges, merge_word

BPE, UNIGRAM = range(2)


class Model(NamedTuple):
    """A tokenizer's model, for kernels.

    Attributes:
      kind: `BPE` or `UNIGRAM`.
      cut: how lines are cut into words: see `word_end`.
      classes: from `char_classes`.
      merges: of BPE.
      pieces: of Unigram; of BPE, the vocabulary, where `whole_words`.
      whole_words: a word that is a token is not merged ("ignore_merges").
      num_ids: symbols beyond are characters that no token is.
      unknown_id: of characters without a token; -1: none.
      byte_ids: `[256] int32`: the tokens of their bytes instead; else empty.
      fuse: unknown tokens in a row become one.
      fuse_words: also where they are of two words.
      single: scores are added in 32 bits, over the line.
      largest_score: of a token, without its sign, where `single`.
    """

    kind: int
    cut: int
    classes: Bytes
    merges: Merges
    pieces: Pieces
    whole_words: bool
    num_ids: int
    unknown_id: int
    byte_ids: Int32s
    fuse: bool
    fuse_words: bool
    single: bool
    largest_score: float = 0.0


class Room(NamedTuple):
    """Scratch for one word: symbols with their begins, the path, and what the model says."""

    symbols: Int32s
    begins: Int64s
    path: Path
    result: Float64s  # margin, score, 1 where a character is unknown


@subroutine
def _emit(
    text: Bytes, symbol: int, begin: int, end: int, model: Model, ids: Int32s, at: int, first: int
) -> int:
    """Writes the id of a symbol, or what stands for an unknown one; returns the next position."""
    if 0 <= symbol < model.num_ids:
        ids[at] = symbol
        return at + 1
    if model.byte_ids.shape[0]:
        for i in range(begin, end):
            ids[at] = model.byte_ids[text[i]]
            at += 1
        return at
    if model.unknown_id < 0 or (model.fuse and at > first and ids[at - 1] == model.unknown_id):
        return at
    ids[at] = model.unknown_id
    return at + 1


@subroutine
def _whole_word(text: Bytes, at: int, end: int, pieces: Pieces) -> int:
    """Returns the id of a token that is the word, -1 for none."""
    node = 0
    mask = np.uint64(pieces.keys.shape[0] - 1)
    for i in range(at, end):
        key = np.uint64(node) << np.uint64(8) | np.uint64(text[i])
        slot = (key * GOLDEN >> np.uint64(24)) & mask
        while pieces.keys[slot] != key:
            if pieces.keys[slot] == np.uint64(0xFFFFFFFFFFFFFFFF):
                return -1
            slot = (slot + np.uint64(1)) & mask
        node = pieces.nodes[slot]
    return pieces.piece_of[node]


@subroutine
def by_merges(
    text: Bytes, at: int, end: int, model: Model, room: Room, ids: Int32s, count: int
) -> int:
    """Writes the ids of a word by BPE from position `count` of `ids` on; returns the next one."""
    if model.whole_words:
        whole = _whole_word(text, at, end, model.pieces)
        if whole >= 0:
            ids[count] = whole
            return count + 1
    symbols, begins = room.symbols, room.begins
    number = merge_word(text, at, end, model.merges, symbols, begins)
    first = count
    for i in range(number):
        stop = begins[i + 1] if i + 1 < number else end
        count = _emit(text, symbols[i], begins[i], stop, model, ids, count, first)
    return count


@subroutine
def by_path(
    text: Bytes, at: int, end: int, model: Model, room: Room, ids: Int32s, count: int,
    before: float, single: bool,
) -> int:  # fmt: skip
    """Writes the ids of a word by Unigram as `by_merges` does, and its margin and score to `room`.

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
