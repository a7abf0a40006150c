"""Fill in the middle: a document's middle is moved to its end (Bavarian et al. 2022).

arXiv:2207.14255. Prefix, suffix, middle (PSM) is `<PRE> prefix <SUF> suffix <MID> middle`; suffix,
prefix, middle (SPM, the paper's second variant) `<PRE> <SUF> suffix <MID> prefix middle`. An end of
text stays at the end. What a row cannot hold is cut before, so that a row has all three (the
paper's context level), unless documents are joined (`--packing=concat`). Cuts are between tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bools, Int32s, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.randomness import next_below, next_unit, start
from recordmill.records.hashing import U64
from recordmill.transforms.text.packing import Parts
from recordmill.transforms.text.text_spec import Gpt

FIM_TOKENS = 3  # prefix, suffix and middle


class FimIds(NamedTuple):
    """The ids of the special tokens, and of the end of text."""

    prefix: int
    suffix: int
    middle: int
    end: int


@kernel
def _draw_documents(keys: U64, seed: np.uint64, rate: float, moved: Bools) -> None:
    rng = np.empty(1, np.uint64)
    for i in range(keys.shape[0]):
        start(rng, seed, keys[i], 0)
        moved[i] = next_unit(rng) < rate


def draw_documents(keys: U64, *, spec: Gpt, seed: int) -> Bools:
    """Returns `[n] bool`: the documents whose middles are moved.

    Args:
      keys: `[n] uint64`, of documents.
      spec: how often.
      seed: of this purpose, from `hashing.seed_for`.
    """
    moved = np.empty(len(keys), np.bool_)
    _draw_documents(keys, np.uint64(seed), spec.fim_rate, moved)
    return moved


@subroutine
def _put(ids: Any, begin: int, end: int, out: Int32s, at: int) -> int:
    for j in range(begin, end):
        out[at] = ids[j]
        at += 1
    return at


@kernel
def _move(
    ids: Any, starts: Int64s, lengths: Int64s, keys: U64, moved: Bools, special: FimIds,
    seed: np.uint64, spm_rate: float, out: Int32s, begins: Int64s,
) -> int:  # fmt: skip
    """Copies all parts, some of them with their middles moved; returns how many are SPM."""
    rng = np.empty(1, np.uint64)
    at = 0
    suffix_first = 0
    for i in range(starts.shape[0]):
        begins[i] = at
        begin, end = starts[i], starts[i] + lengths[i]
        if not moved[i]:
            at = _put(ids, begin, end, out, at)
            continue
        has_end = ids[end - 1] == special.end
        end -= has_end
        start(rng, seed, keys[i], 1)
        is_spm = next_unit(rng) < spm_rate
        suffix_first += is_spm
        first = begin + next_below(rng, end - begin + 1)
        second = begin + next_below(rng, end - begin + 1)
        first, second = min(first, second), max(first, second)
        out[at] = special.prefix
        at += 1
        if not is_spm:
            at = _put(ids, begin, first, out, at)
        out[at] = special.suffix
        at = _put(ids, second, end, out, at + 1)
        out[at] = special.middle
        at += 1
        if is_spm:
            at = _put(ids, begin, first, out, at)
        at = _put(ids, first, second, out, at)
        if has_end:
            out[at] = special.end
            at += 1
    return suffix_first


def move_middles(
    ids: npt.NDArray[Any], parts: Parts, moved: Bools, *, special: FimIds, spec: Gpt, seed: int
) -> tuple[Int32s, Parts, int]:
    """Moves the middles of some parts to their ends.

    Args:
      ids: `[num_tokens]`: the tokens that parts are spans of.
      parts: each of which gets FIM_TOKENS tokens more where it is
      moved: `[num_parts] bool`.
      special: the ids of special tokens.
      spec: the share of each order.
      seed: of this purpose, from `hashing.seed_for`.

    Returns:
      `[num_tokens] int32`: new tokens, the parts as spans of them, and how many have their suffix
      first.
    """
    lengths = parts.lengths + np.where(moved, FIM_TOKENS, 0)
    out, begins = np.empty(int(lengths.sum()), np.int32), np.empty(len(parts), np.int64)
    suffix_first = _move(
        ids, parts.starts, parts.lengths, parts.keys, moved, special, np.uint64(seed),
        spec.fim_spm_rate, out, begins,
    )  # fmt: skip
    return out, Parts(begins, lengths, parts.keys, parts.chunks, parts.wholes), int(suffix_first)
