"""Sentence pairs for next-sentence prediction, as google-research/bert's
create_instances_from_document.

Segments of a piece are gathered up to a target length, cut at a random sentence into a first and a
second part; half of the second parts give way to text of another document, and what they held is
used again. Instances are first planned, as numbers, for all pieces of a block; only then are tokens
copied, in the order in which records are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records.errors import UsageError
from recordmill.records.hashing import U64
from recordmill.records.jit import kernel
from recordmill.records.randomness import Generator, mix_one, next_below, next_unit, start
from recordmill.transforms.lines import Int64s
from recordmill.transforms.pieces import Pieces
from recordmill.transforms.tokenization import Ids

MAX_SEQ_LENGTH = 1 << 20
_PARTNER_TRIES = 10  # as in BERT


def check_max_seq_length(length: int) -> None:
    """Checks the length of an example.

    Raises:
      UsageError: it holds no text, or no machine holds a batch of such examples.
    """
    if not 8 <= length <= MAX_SEQ_LENGTH:
        raise UsageError(f"--max_seq_length must be in [8, {MAX_SEQ_LENGTH}], got {length}")


@dataclass(frozen=True, slots=True)
class PairSpec:
    """How to pair.

    Attributes:
      max_seq_length: of an example, with [CLS] and two [SEP].
      short_seq_prob: the share of pieces whose target length is drawn below the maximum, in [0, 1].
    """

    max_seq_length: int = 128
    short_seq_prob: float = 0.1

    def __post_init__(self) -> None:
        check_max_seq_length(self.max_seq_length)
        if not 0 <= self.short_seq_prob <= 1:
            raise UsageError(f"--short_seq_prob must be in [0, 1], got {self.short_seq_prob}")

    @property
    def segment_tokens(self) -> int:
        """The most tokens of both segments together."""
        return self.max_seq_length - 3


@dataclass(frozen=True, slots=True)
class Pairs:
    """Planned instances: each segment is a span of tokens.

    Attributes:
      a_starts, a_lengths, b_starts, b_lengths: `[num_pairs]`, in the tokens of the pieces.
      is_random: `[num_pairs] bool`: the second segment is of another document.
      keys: `[num_pairs] uint64`: order and masks follow from it.
    """

    a_starts: Int64s
    a_lengths: Int64s
    b_starts: Int64s
    b_lengths: Int64s
    is_random: npt.NDArray[np.bool_]
    keys: U64

    def __len__(self) -> int:
        return len(self.keys)


@kernel
def _find_partner(rng: Generator, pieces: Any, piece: int) -> int:
    """Draws a piece of another document; -1 where there seems to be none."""
    documents = pieces[1]
    count = documents.shape[0]
    for _ in range(_PARTNER_TRIES):
        other = next_below(rng, count)
        if documents[other] != documents[piece]:
            return other
    first = next_below(rng, count)
    for k in range(count):
        other = (first + k) % count
        if documents[other] != documents[piece]:
            return other
    return -1


@kernel
def _trim(rng: Generator, spans: Int64s, most: int) -> None:
    """Takes tokens off the longer segment, in front or behind by coin, until both fit."""
    while spans[1] + spans[3] > most:
        longer = 0 if spans[1] > spans[3] else 2
        if next_unit(rng) < 0.5:
            spans[longer] += 1
        spans[longer + 1] -= 1


@kernel
def _plan_piece(
    pieces: Any, piece: int, copy: int, spec: Any, seed: np.uint64, rng: Generator, out: Any,
    count: int, dry: bool,
) -> int:  # fmt: skip
    """Plans the instances of one copy of a piece; only counts them if `dry`."""
    hashes, _, token_starts, _, splits, lengths = pieces
    most, short_seq_prob = spec
    a_starts, a_lengths, b_starts, b_lengths, is_random, keys = out
    start(rng, seed, hashes[piece], copy)
    partner_rng = np.empty(1, np.uint64)
    target = most
    if next_unit(rng) < short_seq_prob:
        target = 2 + next_below(rng, most - 1)
    spans = np.empty(4, np.int64)
    first = splits[piece]
    end = splits[piece + 1]
    sentence = first
    token = token_starts[piece]
    while sentence < end:
        begin, begin_token = sentence, token
        gathered = 0
        while sentence < end and gathered < target:
            gathered += lengths[sentence]
            sentence += 1
        # What follows draws the same numbers whether dry or not: partners have draws of their own.
        sentences = sentence - begin
        a_sentences = 1
        if sentences >= 2:
            a_sentences = 1 + next_below(rng, sentences - 1)
        a_tokens = 0
        for i in range(begin, begin + a_sentences):
            a_tokens += lengths[i]
        wants_random = sentences == 1 or next_unit(rng) < 0.5
        key = mix_one(
            hashes[piece] ^ mix_one(np.uint64(count) + (np.uint64(copy) << np.uint64(32)))
        )
        if wants_random:
            sentence = begin + a_sentences
            token = begin_token + a_tokens
        else:
            token = begin_token + gathered
        if not dry:
            spans[0], spans[1] = begin_token, a_tokens
            spans[2], spans[3] = begin_token + a_tokens, gathered - a_tokens
            random = False
            start(partner_rng, seed, key, 1)
            if wants_random:
                partner = _find_partner(partner_rng, pieces, piece)
                if partner >= 0:
                    random = True
                    there = splits[partner + 1] - splits[partner]
                    skip = next_below(partner_rng, there)
                    at = token_starts[partner]
                    for i in range(splits[partner], splits[partner] + skip):
                        at += lengths[i]
                    wanted = target - a_tokens
                    b_tokens = 0
                    i = splits[partner] + skip
                    while i < splits[partner + 1] and (b_tokens == 0 or b_tokens < wanted):
                        b_tokens += lengths[i]
                        i += 1
                    spans[2], spans[3] = at, b_tokens
            _trim(partner_rng, spans, most)
            a_starts[count], a_lengths[count] = spans[0], spans[1]
            b_starts[count], b_lengths[count] = spans[2], spans[3]
            is_random[count] = random
            keys[count] = key
        count += 1
    return count


@kernel
def _plan(
    pieces: Any, chosen: Int64s, copies: Int64s, spec: Any, seed: np.uint64, out: Any,
    counts: Int64s, dry: bool,
) -> None:  # fmt: skip
    rng = np.empty(1, np.uint64)
    total = 0
    for k in range(chosen.shape[0]):
        before = total
        # Keys count from the piece's own first instance, so they do not depend on other pieces.
        part = out
        if not dry:
            a_starts, a_lengths, b_starts, b_lengths, is_random, keys = out
            part = (
                a_starts[before:], a_lengths[before:], b_starts[before:], b_lengths[before:],
                is_random[before:], keys[before:],
            )  # fmt: skip
        counts[k] = _plan_piece(pieces, chosen[k], copies[k], spec, seed, rng, part, 0, dry)
        total += counts[k]


def _arrays(size: int) -> tuple[Any, ...]:
    integers = [np.empty(size, np.int64) for _ in range(4)]
    return (*integers, np.empty(size, np.bool_), np.empty(size, np.uint64))


def _columns(pieces: Pieces) -> tuple[Any, ...]:
    return (
        pieces.hashes, pieces.documents, pieces.token_starts, pieces.token_counts,
        pieces.sentence_splits, pieces.sentence_lengths,
    )  # fmt: skip


def count_pairs(pieces: Pieces, copy: int, *, spec: PairSpec, seed: int) -> Int64s:
    """Returns `[num_pieces] int64`: the number of instances that `plan_pairs` will give."""
    counts = np.empty(len(pieces), np.int64)
    chosen = np.arange(len(pieces))
    copies = np.full(len(pieces), copy, np.int64)
    limits = (spec.segment_tokens, spec.short_seq_prob)
    _plan(_columns(pieces), chosen, copies, limits, np.uint64(seed), _arrays(0), counts, True)
    return counts


def plan_pairs(
    pieces: Pieces, chosen: Int64s, copies: Int64s, *, spec: PairSpec, seed: int
) -> Pairs:
    """Plans the instances of some pieces, with second segments from all of them.

    Args:
      pieces: a random sample of the corpus: partners are drawn from it.
      chosen: `[n] int64`: the pieces to make instances of, and
      copies: `[n] int64`: which copy of each.
      spec: how to pair.
      seed: of this purpose, from `hashing.seed_for`.

    Returns:
      Where no other document can be found a true continuation stands in for a random segment; a
      piece of one sentence then has an empty second segment.
    """
    limits = (spec.segment_tokens, spec.short_seq_prob)
    columns = _columns(pieces)
    counts = np.empty(len(chosen), np.int64)
    _plan(columns, chosen, copies, limits, np.uint64(seed), _arrays(0), counts, True)
    out = _arrays(int(counts.sum()))
    _plan(columns, chosen, copies, limits, np.uint64(seed), out, counts, False)
    return Pairs(*out)


@kernel
def _fill(
    ids: Ids, pairs: Any, order: Int64s, cls_id: int, sep_id: int, out: Any, segments: Any,
    lengths: Ids,
) -> None:  # fmt: skip
    a_starts, a_lengths, b_starts, b_lengths = pairs
    for row in range(order.shape[0]):
        i = order[row]
        out[row, 0] = cls_id
        at = 1
        for j in range(a_starts[i], a_starts[i] + a_lengths[i]):
            out[row, at] = ids[j]
            at += 1
        out[row, at] = sep_id
        at += 1
        first_of_b = at
        for j in range(b_starts[i], b_starts[i] + b_lengths[i]):
            out[row, at] = ids[j]
            at += 1
        out[row, at] = sep_id
        at += 1
        lengths[row] = at
        segments[row, first_of_b:at] = 1


def fill_pairs(
    pieces: Pieces, pairs: Pairs, chosen: Int64s, *, spec: PairSpec, cls_id: int, sep_id: int
) -> tuple[Ids, Ids, Ids]:
    """Copies the tokens of chosen pairs.

    Returns:
      ids and segment ids, `[num_chosen, max_seq_length] int32`, and lengths, `[num_chosen] int32`.
    """
    ids = np.zeros((len(chosen), spec.max_seq_length), np.int32)
    segments = np.zeros_like(ids)
    lengths = np.empty(len(chosen), np.int32)
    spans = (pairs.a_starts, pairs.a_lengths, pairs.b_starts, pairs.b_lengths)
    _fill(pieces.ids, spans, chosen, cls_id, sep_id, ids, segments, lengths)
    return ids, segments, lengths
