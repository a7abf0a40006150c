"""Sentence pairs for next-sentence prediction, as google-research/bert's
create_instances_from_document.

Segments of a chunk are gathered up to a target length, cut at a random sentence into a first and a
second part; half of the second parts give way to text of another document, and what they held is
used again. Instances are first planned, as numbers, for all chunks of a block; only then are tokens
copied, in the order in which records are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recordmill.records.arrays import Bools, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.randomness import Generator, next_below, next_unit, start
from recordmill.records.hashing import U64
from recordmill.transforms.subwords.tokenizer import Ids
from recordmill.transforms.text.chunks import ChunkColumns, Chunks, instance_key
from recordmill.transforms.text.text_spec import Bert

_SECOND_SEGMENTS = ("next", "order", "none")  # what the label of a pair says
_NEXT, _ORDER, _ = range(len(_SECOND_SEGMENTS))
_PARTNER_TRIES = 10  # as in BERT


def segment_tokens(spec: Bert) -> int:
    """Returns the most tokens of both segments together, without [CLS] and two [SEP]."""
    return spec.max_seq_length - 3


class PairColumns(NamedTuple):
    """The arrays of `Pairs`, for kernels."""

    a_starts: Int64s
    a_lengths: Int64s
    b_starts: Int64s
    b_lengths: Int64s
    labels: Bools
    keys: U64

    @classmethod
    def empty(cls, size: int) -> PairColumns:
        """Returns arrays for `size` pairs, to be filled."""
        a_starts, a_lengths, b_starts, b_lengths = np.empty((4, size), np.int64)
        labels, keys = np.empty(size, np.bool_), np.empty(size, np.uint64)
        return cls(a_starts, a_lengths, b_starts, b_lengths, labels, keys)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Planned instances: each segment is a span of tokens.

    Attributes:
      a_starts, a_lengths, b_starts, b_lengths: `[num_pairs] int64`, in the tokens of the chunks.
      labels: `[num_pairs] bool`: the second segment is of another document, or they are swapped.
      keys: `[num_pairs] uint64`: order and masks follow from it.
    """

    a_starts: Int64s
    a_lengths: Int64s
    b_starts: Int64s
    b_lengths: Int64s
    labels: Bools
    keys: U64

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def columns(self) -> PairColumns:
        """The arrays, for kernels."""
        return PairColumns(
            self.a_starts, self.a_lengths, self.b_starts, self.b_lengths, self.labels, self.keys
        )


class _PairOptions(NamedTuple):
    """What kernels need of the options, and the seed."""

    segment_tokens: int
    short_seq_prob: float
    seed: np.uint64
    second: int  # segment: its place in _SECOND_SEGMENTS


class _Draft(NamedTuple):
    """The part of an instance that depends on its chunk alone.

    `a_tokens` tokens are the first segment. The `b_tokens` behind them are the second one, unless
    it `wants_random`. The next instance begins `used_sentences` and `used_tokens` further on.
    """

    a_tokens: int
    b_tokens: int
    wants_random: bool
    used_sentences: int
    used_tokens: int


class _Spans(NamedTuple):
    """Both segments of an instance as spans of tokens."""

    a_start: int
    a_tokens: int
    b_start: int
    b_tokens: int


# Functions that run once an instance get the few arrays that they read, and loops read arrays from
# local names: to take an array out of a named tuple counts references, which a loop would feel.


@subroutine
def _draw_target(rng: Generator, chunk_hash: np.uint64, copy: int, options: _PairOptions) -> int:
    """Starts the draws for one copy of a chunk; returns the tokens to gather for an instance."""
    start(rng, options.seed, chunk_hash, copy)
    if next_unit(rng) < options.short_seq_prob:
        return 2 + next_below(rng, options.segment_tokens - 1)
    return options.segment_tokens


@subroutine
def _draw_instance(
    rng: Generator, lengths: Ids, first: int, end: int, target: int, second: int
) -> _Draft:
    """Gathers sentences of `[first, end)` up to `target` tokens, and cuts them in two."""
    sentence = first
    gathered = 0
    while sentence < end and gathered < target:
        gathered += lengths[sentence]
        sentence += 1
    count = sentence - first
    a_sentences = 1
    if count >= 2:
        a_sentences = 1 + next_below(rng, count - 1)
    a_tokens = 0
    for i in range(first, first + a_sentences):
        a_tokens += lengths[i]
    if second != _NEXT:
        if count == 1 and gathered > 1:  # a sentence alone is cut, so that it has an order
            a_tokens = 1 + next_below(rng, gathered - 1)
        return _Draft(a_tokens, gathered - a_tokens, False, count, gathered)
    if count == 1 or next_unit(rng) < 0.5:
        # What the random segment displaces is used again.
        return _Draft(a_tokens, gathered - a_tokens, True, a_sentences, a_tokens)
    return _Draft(a_tokens, gathered - a_tokens, False, count, gathered)


@subroutine
def _find_partner(rng: Generator, documents: U64, chunk: int) -> int:
    """Draws a chunk of another document; -1 if some tries give none."""
    count = documents.shape[0]
    for _ in range(_PARTNER_TRIES):
        other = next_below(rng, count)
        if documents[other] != documents[chunk]:
            return other
    first = next_below(rng, count)
    for k in range(count):
        other = (first + k) % count
        if documents[other] != documents[chunk]:
            return other
    return -1


@subroutine
def _draw_segment(
    rng: Generator, lengths: Ids, first: int, end: int, wanted: int
) -> tuple[int, int]:
    """Draws a sentence of `[first, end)`, from which on a segment takes at least `wanted` tokens.

    Returns:
      The tokens from `first` to the segment, and those of the segment.
    """
    sentence = first + next_below(rng, end - first)
    skipped = 0
    for i in range(first, sentence):
        skipped += lengths[i]
    tokens = 0
    while sentence < end and (tokens == 0 or tokens < wanted):
        tokens += lengths[sentence]
        sentence += 1
    return skipped, tokens


@subroutine
def _trim(rng: Generator, spans: _Spans, most: int) -> _Spans:
    """Takes tokens off the longer segment, in front or behind by coin, until both fit."""
    a_start, a_tokens, b_start, b_tokens = spans
    while a_tokens + b_tokens > most:
        in_front = 1 if next_unit(rng) < 0.5 else 0
        if a_tokens > b_tokens:
            a_start += in_front
            a_tokens -= 1
        else:
            b_start += in_front
            b_tokens -= 1
    return _Spans(a_start, a_tokens, b_start, b_tokens)


@kernel
def _count_pairs(
    chunks: ChunkColumns, chosen: Int64s, copies: Int64s, options: _PairOptions, counts: Int64s
) -> None:
    hashes, _, _, _, splits, lengths = chunks
    rng = np.empty(1, np.uint64)
    for k in range(chosen.shape[0]):
        chunk = chosen[k]
        target = _draw_target(rng, hashes[chunk], copies[k], options)
        sentence, end = splits[chunk], splits[chunk + 1]
        count = 0
        while sentence < end:
            sentence += _draw_instance(
                rng, lengths, sentence, end, target, options.second
            ).used_sentences
            count += 1
        counts[k] = count


@kernel
def _plan_pairs(
    chunks: ChunkColumns, chosen: Int64s, copies: Int64s, options: _PairOptions, pairs: PairColumns
) -> None:
    hashes, documents, token_starts, _, splits, lengths = chunks
    a_starts, a_lengths, b_starts, b_lengths, labels, keys = pairs
    # Second segments have draws of their own, so that `_count_pairs` does without them.
    rng, second_rng = np.empty(1, np.uint64), np.empty(1, np.uint64)
    row = 0
    for k in range(chosen.shape[0]):
        chunk, copy = chosen[k], copies[k]
        target = _draw_target(rng, hashes[chunk], copy, options)
        sentence, end, token = splits[chunk], splits[chunk + 1], token_starts[chunk]
        number = 0
        while sentence < end:
            draft = _draw_instance(rng, lengths, sentence, end, target, options.second)
            # Keys count within the chunk, so they do not depend on other chunks.
            key = instance_key(hashes[chunk], copy, number)
            start(second_rng, options.seed, key, 1)
            partner = -1
            b_start, b_tokens = token + draft.a_tokens, draft.b_tokens
            if draft.wants_random:
                partner = _find_partner(second_rng, documents, chunk)
            if partner >= 0:
                skipped, b_tokens = _draw_segment(
                    second_rng, lengths, splits[partner], splits[partner + 1],
                    target - draft.a_tokens,
                )  # fmt: skip
                b_start = token_starts[partner] + skipped
            label = partner >= 0
            drawn = _Spans(token, draft.a_tokens, b_start, b_tokens)
            if options.second == _ORDER and b_tokens > 0 and next_unit(second_rng) < 0.5:
                label = True
                drawn = _Spans(b_start, b_tokens, token, draft.a_tokens)
            spans = _trim(second_rng, drawn, options.segment_tokens)
            a_starts[row], a_lengths[row] = spans.a_start, spans.a_tokens
            b_starts[row], b_lengths[row] = spans.b_start, spans.b_tokens
            labels[row], keys[row] = label, key
            sentence += draft.used_sentences
            token += draft.used_tokens
            number += 1
            row += 1


def _options(spec: Bert, seed: int) -> _PairOptions:
    return _PairOptions(
        segment_tokens(spec), spec.short_seq_prob, np.uint64(seed),
        _SECOND_SEGMENTS.index(spec.second_segment),
    )  # fmt: skip


def _count(chunks: Chunks, chosen: Int64s, copies: Int64s, options: _PairOptions) -> Int64s:
    counts = np.empty(len(chosen), np.int64)
    _count_pairs(chunks.columns, chosen, copies, options, counts)
    return counts


def count_pairs(chunks: Chunks, copy: int, *, spec: Bert, seed: int) -> Int64s:
    """Returns `[num_chunks] int64`: the number of instances that `plan_pairs` will give."""
    copies = np.full(len(chunks), copy, np.int64)
    return _count(chunks, np.arange(len(chunks)), copies, _options(spec, seed))


def plan_pairs(chunks: Chunks, chosen: Int64s, copies: Int64s, *, spec: Bert, seed: int) -> Pairs:
    """Plans the instances of some chunks, with second segments from all of them.

    Args:
      chunks: a random sample of the corpus: partners are drawn from it.
      chosen: `[n] int64`: the chunks to make instances of, and
      copies: `[n] int64`: which copy of each.
      spec: how to pair.
      seed: of this purpose, from `hashing.seed_for`.

    Returns:
      Where no other document can be found, the second segment stays a true continuation; a chunk of
      one sentence then has an empty second segment.
    """
    options = _options(spec, seed)
    pairs = PairColumns.empty(int(_count(chunks, chosen, copies, options).sum()))
    _plan_pairs(chunks.columns, chosen, copies, options, pairs)
    return Pairs(*pairs)


@kernel
def _fill(
    ids: Ids, pairs: PairColumns, order: Int64s, cls_id: int, sep_id: int, out: Ids,
    segments: Ids, lengths: Ids,
) -> None:  # fmt: skip
    a_starts, a_lengths, b_starts, b_lengths, _, _ = pairs
    for row in range(order.shape[0]):
        i = order[row]
        out[row, 0] = cls_id
        column = 1
        for j in range(a_starts[i], a_starts[i] + a_lengths[i]):
            out[row, column] = ids[j]
            column += 1
        out[row, column] = sep_id
        column += 1
        first_of_b = column
        for j in range(b_starts[i], b_starts[i] + b_lengths[i]):
            out[row, column] = ids[j]
            column += 1
        out[row, column] = sep_id
        column += 1
        lengths[row] = column
        segments[row, first_of_b:column] = 1


def fill_pairs(
    chunks: Chunks, pairs: Pairs, chosen: Int64s, *, spec: Bert, cls_id: int, sep_id: int
) -> tuple[Ids, Ids, Ids]:
    """Copies the tokens of chosen pairs.

    Args:
      chunks: those that the pairs were planned from.
      pairs: from `plan_pairs`.
      chosen: `[num_chosen] int64`, into `pairs`: row i of the result is pair `chosen[i]`.
      spec: how they were paired.
      cls_id, sep_id: the ids of [CLS] and [SEP].

    Returns:
      ids and segment ids, `[num_chosen, max_seq_length] int32`, and lengths, `[num_chosen] int32`.
    """
    ids = np.zeros((len(chosen), spec.max_seq_length), np.int32)
    segments = np.zeros_like(ids)
    lengths = np.empty(len(chosen), np.int32)
    _fill(chunks.ids, pairs.columns, chosen, cls_id, sep_id, ids, segments, lengths)
    return ids, segments, lengths
