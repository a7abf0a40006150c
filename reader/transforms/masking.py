"""Masks made while reading: another mask for each epoch, by the rules of the static masks.

The rules are those of `transforms/text/masking.py`: google-research/bert's
create_masked_lm_predictions (Devlin et al. 2019, arXiv:1810.04805) and, for n-grams, TensorFlow
Model Garden's _masking_ngrams. There they are a loop over a record's words; here each step is taken
for all records of a batch at once, so that no Python runs for a record or a token.

What is chosen are *spans* of a row, whose tokens are masked together: words or n-grams of words.
Their tokens then become the slots of masked_lm_positions.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np

from recordmill.reader import draws
from recordmill.reader.features import Features, Transform, in_graph
from recordmill.reader.token_rows import (
    MAX_ROW_TOKENS,
    TokenRowBuilder,
    TokenRows,
    check_unmasked,
    read_vocabulary,
)
from recordmill.records.errors import UsageError
from recordmill.records.spec import Spec, option, takes

if TYPE_CHECKING:
    import tensorflow as tf

_MAX_NGRAM_SIZE = 16
_STRIDE = MAX_ROW_TOKENS + 1  # two positions, or a position and a size, are packed into an int32


class MaskOptions(Spec, frozen=True, kw_only=True):
    """How to mask: the arguments of `mask_tokens`."""

    vocab_file: Annotated[str | os.PathLike[str], option(
        "The dataset's vocabulary. Random replacements are drawn from all of it."
    )]  # fmt: skip
    max_seq_length: Annotated[int, option(
        "The length of the rows; a longer record is an error.", ge=2, le=MAX_ROW_TOKENS
    )]  # fmt: skip
    max_predictions_per_seq: Annotated[int, option("The most predictions in a row.", ge=1)]
    masked_lm_prob: Annotated[
        float, option("The share of a row's tokens (special ones counted) to predict.", gt=0, lt=1)
    ] = 0.15
    whole_word: Annotated[bool, option('Mask all pieces of a word ("##x"), or none.')] = False
    max_ngram_size: Annotated[int | None, option(
        "Mask up to that many neighbouring words (tokens) at once, n with a weight of 1 / n.", ge=1,
        le=_MAX_NGRAM_SIZE
    )] = None  # fmt: skip
    replacement: Annotated[Literal["per_token", "per_word"], option(
        'Choose between [MASK] (80 %), the token itself and a random one (10 % each) "per_token", '
        'as BERT does, or "per_word", once for a word or n-gram, as Model Garden does.'
    )] = "per_token"  # fmt: skip
    never_masked: Annotated[tuple[str, ...], option(
        "Tokens that are never chosen."
    )] = ("[CLS]", "[SEP]")  # fmt: skip
    segment_ids: Annotated[bool, option("Adds 0 up to the first [SEP], 1 behind it.")] = False
    feature: Annotated[str | None, option(
        'That holds the tokens: "tokens", "input_ids" or "input_word_ids", unless given.'
    )] = None  # fmt: skip
    seed: Annotated[int, option("The seed of the masks.")] = 0

    def check(self) -> None:
        """Checks that a row has room for what is not predicted."""
        if self.max_predictions_per_seq >= self.max_seq_length:
            raise UsageError(
                f"--max_predictions_per_seq must be below --max_seq_length={self.max_seq_length}, "
                f"got {self.max_predictions_per_seq}"
            )


@takes(MaskOptions)
def mask_tokens(**options: Any) -> Transform:
    """Returns a transform that masks tokens, for `load(…, transform=…)`.

    It takes records of word pieces (`recordmill text --task=mlm_tokens`) and of unmasked ids.
    In their place it gives

        input_ids, input_mask[, segment_ids]    [batch, max_seq_length] int32
        masked_lm_positions, masked_lm_ids      [batch, max_predictions_per_seq] int32, ascending
        masked_lm_weights                       the same shape, float32: 1.0 on predictions

    and passes other features on. The mask of a record depends on seed, epoch and the record alone.
    More than 30,000 records/s of length 128 on two cores (`benchmarks/reader.py`).

    Args:
      options: the keyword arguments listed below.

    Raises:
      UsageError: a wrong value, or a vocabulary without the tokens that masking needs.
      TypeError: an argument that there is not, or one that is needed is not given.
    """
    return in_graph(_Masking(MaskOptions(**options)))


class _Masking:
    """The transform that `mask_tokens` returns."""

    def __init__(self, spec: MaskOptions) -> None:
        vocabulary = read_vocabulary(spec.vocab_file)
        self._spec = spec
        self._rows_of = TokenRowBuilder(
            spec.max_seq_length, vocabulary=vocabulary, pad_id=vocabulary.id("[PAD]"),
            feature=spec.feature,
        )  # fmt: skip
        self._vocab_size = len(vocabulary)
        self._mask_id, self._sep_id = vocabulary.id("[MASK]"), vocabulary.id("[SEP]")
        # Of each token of the vocabulary: whether it is never masked, whether it continues a word.
        self._never_masked = np.zeros(len(vocabulary), np.bool_)
        self._never_masked[[vocabulary.id(token) for token in spec.never_masked]] = True
        self._continues = np.array(
            [token.startswith("##") for token in vocabulary.tokens], np.bool_
        )

    def __call__(self, features: Features, keys: tf.Tensor) -> Features:
        import tensorflow as tf

        check_unmasked(features, "mask_tokens")
        rows, rest = self._rows_of(features)
        positions, span_begins = self._choose(rows, keys)
        masked = _replace(
            rows, positions, span_begins if self._spec.replacement == "per_word" else positions,
            draws.start(keys, seed=self._spec.seed, purpose="mask kind"),
            mask_id=self._mask_id, vocab_size=self._vocab_size,
        )  # fmt: skip
        if self._spec.segment_ids:
            separators = tf.cast(tf.equal(rows.ids, self._sep_id), tf.int32)
            is_second = tf.cumsum(separators, axis=1, exclusive=True) > 0
            masked["segment_ids"] = tf.cast(is_second & rows.mask, tf.int32)
        batch = keys.shape[0]
        return rest | {
            name: tf.ensure_shape(value, [batch, value.shape[1]]) for name, value in masked.items()
        }

    def _choose(self, rows: TokenRows, keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the positions to predict, and the first position of the span of each.

        `[batch, max_predictions_per_seq] int32` each, -1 where there are fewer.
        """
        import tensorflow as tf

        spec = self._spec
        candidates = rows.mask & ~tf.gather(self._never_masked, rows.ids)
        state = draws.start(keys, seed=spec.seed, purpose="mask order")
        wanted = _wanted(rows.lengths, spec)
        by_ngram = (spec.max_ngram_size or 1) > 1
        if not by_ngram and not spec.whole_word:
            positions = _choose_tokens(candidates, wanted, state, spec)
            return positions, positions
        continues = tf.gather(self._continues, rows.ids) & spec.whole_word
        words = find_words(candidates, continues)
        choose = choose_ngrams if by_ngram else choose_words
        return _slots(choose(words, wanted, state, spec), spec)


def _wanted(lengths: tf.Tensor, spec: MaskOptions) -> tf.Tensor:
    """Returns `[batch] int32`: how many tokens are to be predicted."""
    import tensorflow as tf

    share = tf.round(tf.cast(lengths, tf.float64) * spec.masked_lm_prob)
    return tf.clip_by_value(tf.cast(share, tf.int32), 1, spec.max_predictions_per_seq)


def _choose_tokens(
    candidates: tf.Tensor, wanted: tf.Tensor, state: tf.Tensor, spec: MaskOptions
) -> tf.Tensor:
    """Returns `[batch, max_predictions_per_seq] int32`: positions, -1 where there are fewer."""
    import tensorflow as tf

    columns = tf.range(spec.max_seq_length, dtype=tf.int64)
    keys = draws.shuffle_keys(state, columns, columns)
    first = tf.math.top_k(tf.where(candidates, keys, -1), spec.max_predictions_per_seq).values
    used = (tf.range(spec.max_predictions_per_seq) < wanted[:, None]) & (first >= 0)
    return tf.where(used, draws.low_bits(first), -1)


def _slots(spans: Spans, spec: MaskOptions) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the positions of all tokens of spans, and the first position of the span of each.

    `[batch, max_predictions_per_seq] int32` each, -1 where there are fewer.
    """
    import tensorflow as tf

    slots = tf.range(spec.max_predictions_per_seq)
    # Slot s belongs to the first span at which the sizes so far add up to more than s.
    ends = tf.cumsum(spans.sizes, axis=1)
    count = tf.reduce_sum(spans.sizes, axis=1)[:, None]
    every_slot = tf.broadcast_to(slots, [tf.shape(ends)[0], spec.max_predictions_per_seq])
    span = tf.searchsorted(ends, every_slot, side="right")
    span = tf.minimum(span, tf.shape(ends)[1] - 1)
    begins = tf.gather(spans.begins, span, batch_dims=1)
    first_slot = tf.gather(ends - spans.sizes, span, batch_dims=1)
    used = slots < count
    return tf.where(used, begins + slots - first_slot, -1), tf.where(used, begins, -1)


def _replace(
    rows: TokenRows,
    positions: tf.Tensor,
    deciding: tf.Tensor,
    state: tf.Tensor,
    *,
    mask_id: int,
    vocab_size: int,
) -> Features:
    """Returns the masked rows and what to predict.

    Args:
      rows: before masking.
      positions: `[batch, max_predictions_per_seq] int32`, in any order, -1 where there are fewer.
      deciding: the position whose draw decides what becomes of each.
      state: of the draws.
      mask_id: of [MASK].
      vocab_size: random tokens are drawn from `[0, vocab_size)`.
    """
    import tensorflow as tf

    packed = tf.where(positions < 0, tf.int32.max, positions * _STRIDE + deciding)
    packed = tf.sort(packed, axis=1)
    used = packed < tf.int32.max
    positions = tf.where(used, packed // _STRIDE, 0)
    deciding = tf.where(used, packed % _STRIDE, 0)
    labels = tf.gather(rows.ids, positions, batch_dims=1)
    kind = draws.unit(state, 2 * deciding)
    random = draws.below(state, 2 * positions + 1, vocab_size)
    new = tf.where(kind < 0.8, mask_id, tf.where(kind < 0.9, labels, random))
    first = tf.range(tf.size(rows.ids), delta=rows.ids.shape[1])
    flat = positions + first[:, None]
    change = tf.where(used, new - labels, 0)
    ids = tf.tensor_scatter_nd_add(
        tf.reshape(rows.ids, [-1]), tf.reshape(flat, [-1, 1]), tf.reshape(change, [-1])
    )
    return {
        "input_ids": tf.reshape(ids, tf.shape(rows.ids)),
        "input_mask": tf.cast(rows.mask, tf.int32),
        "masked_lm_positions": positions,
        "masked_lm_ids": tf.where(used, labels, 0),
        "masked_lm_weights": tf.cast(used, tf.float32),
    }


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of each row, in any order; `[batch, n] int32` each. A size of 0 is no span.

    Attributes:
      begins: the position of the first token.
      sizes: in tokens.
    """

    begins: tf.Tensor
    sizes: tf.Tensor


def find_words(candidates: tf.Tensor, continues: tf.Tensor) -> Spans:
    """Returns the words of each row in order: spans of candidates.

    Args:
      candidates: `[batch, max_seq_length] bool`: tokens that may be masked.
      continues: the same shape: tokens that belong to the word of the token before them.
    """
    import tensorflow as tf

    # A column behind each row ends the last word there, so that rows can be treated as one.
    candidates = tf.pad(candidates, [[0, 0], [0, 1]])
    after_candidate = tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
    starts = candidates & ~(tf.pad(continues, [[0, 0], [0, 1]]) & after_candidate)
    # [num_edges]: where a word starts, or a token is that may not be masked, in all rows as one.
    # From one edge to the next it is one word, or one such token.
    edges = tf.where(tf.reshape(starts | ~candidates, [-1]))[:, 0]
    sizes = edges[1:] - edges[:-1]
    is_word = tf.gather(tf.reshape(starts, [-1]), edges[:-1])
    begins = tf.boolean_mask(edges[:-1], is_word)
    batch, width = tf.unstack(tf.shape(candidates, out_type=tf.int64))
    words = begins % width * _STRIDE + tf.boolean_mask(sizes, is_word)
    rows = tf.RaggedTensor.from_value_rowids(words, begins // width, nrows=batch, validate=False)
    # One empty column more, so that a batch without words is no special case.
    return _unpack(tf.pad(rows.to_tensor(), [[0, 0], [0, 1]]))


def _unpack(words: tf.Tensor) -> Spans:
    """Returns the spans of `[batch, n]` packed values: begin * _STRIDE + size."""
    import tensorflow as tf

    packed = tf.cast(words, tf.int32)
    return Spans(packed // _STRIDE, packed % _STRIDE)


def choose_words(words: Spans, wanted: tf.Tensor, state: tf.Tensor, _: MaskOptions) -> Spans:
    """Returns words chosen as BERT does: walk the shuffled words and take those that still fit.

    Args:
      words: from `find_words`.
      wanted: `[batch] int32`, the most tokens to choose in each row.
      state: of the draws.
    """
    import tensorflow as tf

    packed = tf.cast(words.begins * _STRIDE + words.sizes, tf.int64)
    keys = draws.shuffle_keys(state, words.begins, packed)
    keys = tf.sort(tf.where(words.sizes > 0, keys, -1), axis=1, direction="DESCENDING")
    shuffled = _unpack(tf.where(keys < 0, 0, draws.low_bits(keys)))
    taken = _take_fitting(shuffled.sizes, wanted)
    return Spans(shuffled.begins, tf.where(taken, shuffled.sizes, 0))


def _take_fitting(sizes: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Returns which sizes a walk from the left takes, skipping those for which no room is left.

    Each turn takes all up to the first that does not fit, and drops all that can fit no more: with
    words, two to four turns instead of a step for each word.

    Args:
      sizes: `[batch, n] int32`; 0 is never taken.
      wanted: `[batch] int32`: the most that the sizes taken may add up to.

    Returns:
      `[batch, n] bool`.
    """
    import tensorflow as tf

    def turn(waiting: Any, taken: Any, room: Any) -> tuple[Any, Any, Any]:
        waiting = waiting & (sizes <= room[:, None])
        total = tf.cumsum(tf.where(waiting, sizes, 0), axis=1)
        fits = waiting & (total <= room[:, None])
        room -= tf.reduce_sum(tf.where(fits, sizes, 0), axis=1)
        return waiting & ~fits, taken | fits, room

    waiting = sizes > 0
    _, taken, _ = tf.while_loop(
        lambda waiting, *_: tf.reduce_any(waiting),
        turn,
        (waiting, tf.zeros_like(waiting), wanted),
    )
    return taken


def choose_ngrams(words: Spans, wanted: tf.Tensor, state: tf.Tensor, spec: MaskOptions) -> Spans:
    """Returns n-grams chosen as Model Garden does: draw a size, then the next n-gram of that size.

    A size n has weight 1 / n. A step of the loop is one draw for every row of the batch.

    Args:
      words: from `find_words`.
      wanted: `[batch] int32`, the most tokens to choose in each row.
      state: of the draws.
      spec: max_ngram_size and max_predictions_per_seq.
    """
    import tensorflow as tf

    loop = _NgramLoop(words, wanted, state, spec)
    # Tuples travel through a loop of TensorFlow.
    final = tf.while_loop(
        lambda *chosen: loop.goes_on(_Chosen(*chosen)),
        lambda *chosen: tuple(loop.step(_Chosen(*chosen))),
        tuple(loop.start()),
    )
    result = _Chosen(*final)
    return Spans(result.begins, result.sizes)


class _Chosen(NamedTuple):
    """How far the choice of n-grams has come, in each row.

    Attributes:
      counter: `[] int32`, of the next draw.
      masked: `[batch] int32`: tokens chosen.
      spans: `[batch] int32`: n-grams chosen, which is the next free column of begins and sizes.
      left: `[batch, max_ngram_size] int32`: n-grams of each size that may still be drawn.
      covered: `[batch, num_words] bool`: words chosen.
      begins, sizes: `[batch, max_predictions_per_seq] int32`: of the n-grams chosen, in tokens.
    """

    counter: Any
    masked: Any
    spans: Any
    left: Any
    covered: Any
    begins: Any
    sizes: Any


class _NgramLoop:
    """Chooses n-grams, one draw for each row of the batch at a time."""

    def __init__(
        self, words: Spans, wanted: tf.Tensor, state: tf.Tensor, spec: MaskOptions
    ) -> None:
        import tensorflow as tf

        self._words = words
        self._ends = words.begins + words.sizes
        self._wanted = wanted
        self._state = state
        self._max_size = spec.max_ngram_size or 1
        self._max_spans = spec.max_predictions_per_seq
        self._batch, self._num_words = tf.unstack(tf.shape(words.begins))
        self._shuffled, self._counts = _shuffled_ngrams(words, state, self._max_size)
        cumulative = np.cumsum([1 / n for n in range(1, self._max_size + 1)])
        self._size_bounds = tf.constant(cumulative[:-1] / cumulative[-1], tf.float32)

    def start(self) -> _Chosen:
        """Returns the choice of nothing."""
        import tensorflow as tf

        none = tf.zeros([self._batch], tf.int32)
        no_spans = tf.zeros([self._batch, self._max_spans], tf.int32)
        return _Chosen(
            # The draws for the order of n-grams use counters below, those for sizes beyond them.
            counter=tf.constant(_MAX_NGRAM_SIZE * _STRIDE),
            masked=none,
            spans=none,
            left=self._counts,
            covered=tf.zeros([self._batch, self._num_words], tf.bool),
            begins=no_spans,
            sizes=no_spans,
        )

    def goes_on(self, chosen: _Chosen) -> tf.Tensor:
        """Returns whether a row wants more and has n-grams left."""
        import tensorflow as tf

        has_ngrams = tf.reduce_any(chosen.left > 0, axis=1)
        return tf.reduce_any((chosen.masked < self._wanted) & has_ngrams)

    def step(self, chosen: _Chosen) -> _Chosen:
        """Draws a size for each row, and takes the next n-gram of that size where it fits."""
        import tensorflow as tf

        draw = draws.unit(self._state, chosen.counter[None])
        n = tf.reduce_sum(tf.cast(draw >= self._size_bounds, tf.int32), axis=1)  # size - 1
        active = chosen.masked < self._wanted
        # No n-gram of this size can fit any more: each word is a token or more.
        too_large = active & (chosen.masked + n + 1 > self._wanted)
        remaining = tf.gather(chosen.left, n, batch_dims=1)
        is_drawn = active & ~too_large & (remaining > 0)
        last = tf.maximum(remaining - 1, 0)
        first_word = tf.where(is_drawn, self._ngram(n, last), 0)
        words = tf.range(self._num_words)
        ngram = (words >= first_word[:, None]) & (words <= (first_word + n)[:, None])
        begin = tf.gather(self._words.begins, first_word, batch_dims=1)
        last_word = tf.minimum(first_word + n, self._num_words - 1)
        size = tf.gather(self._ends, last_word, batch_dims=1) - begin
        is_free = ~tf.reduce_any(ngram & chosen.covered, axis=1)
        is_taken = is_drawn & (chosen.masked + size <= self._wanted) & is_free
        column = is_taken[:, None] & (tf.range(self._max_spans) == chosen.spans[:, None])
        used_up = (is_drawn | too_large)[:, None] & (tf.range(self._max_size) == n[:, None])
        return _Chosen(
            counter=chosen.counter + 1,
            masked=chosen.masked + tf.where(is_taken, size, 0),
            spans=chosen.spans + tf.cast(is_taken, tf.int32),
            left=tf.where(used_up, tf.where(too_large, 0, last)[:, None], chosen.left),
            covered=chosen.covered | (ngram & is_taken[:, None]),
            begins=tf.where(column, begin[:, None], chosen.begins),
            sizes=tf.where(column, size[:, None], chosen.sizes),
        )

    def _ngram(self, n: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        """Returns `[batch] int32`: the first word of shuffled n-gram `index` of size n + 1."""
        import tensorflow as tf

        table = tf.range(self._batch) * self._max_size + n
        return tf.gather(self._shuffled, table * self._num_words + index)


def _shuffled_ngrams(words: Spans, state: tf.Tensor, max_size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first words of n-grams, shuffled, for each row and size.

    `[batch * max_size * num_words] int32`, and `[batch, max_size] int32`: how many there are.
    """
    import tensorflow as tf

    num_words = tf.shape(words.begins, out_type=tf.int64)[1]
    columns = tf.range(num_words)
    ends = words.begins + words.sizes
    follows = (words.begins[:, 1:] == ends[:, :-1]) & (words.sizes[:, 1:] > 0)
    follows = tf.pad(follows, [[0, 0], [0, max_size]])
    # is_ngram[row, word]: a word, and n words that follow it without a gap, are an n-gram.
    is_ngram, orders, counts = words.sizes > 0, [], []
    for n in range(max_size):
        if n:
            is_ngram = is_ngram & follows[:, n - 1 : n - 1 + num_words]
        keys = draws.shuffle_keys(state, words.begins + n * _STRIDE, columns)
        keys = tf.sort(tf.where(is_ngram, keys, -1), axis=1, direction="DESCENDING")
        orders.append(draws.low_bits(keys))
        counts.append(tf.reduce_sum(tf.cast(is_ngram, tf.int32), axis=1))
    return tf.reshape(tf.stack(orders, axis=1), [-1]), tf.stack(counts, axis=1)
