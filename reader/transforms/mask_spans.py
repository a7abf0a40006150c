"""Which words of a batch are masked: the steps of BERT's and Model Garden's loops, taken for all
records at once.

What is chosen are *spans* of a row, whose tokens are masked together: words or n-grams of words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recordmill.reader import draws
from recordmill.reader.token_rows import MAX_ROW_TOKENS
from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf

_MAX_NGRAM_SIZE = 16
STRIDE = MAX_ROW_TOKENS + 1  # two positions, or a position and a size, are packed into an int32


@dataclass(frozen=True, slots=True)
class MaskOptions:
    """How to mask: the arguments of `mask_tokens`, which says what each does.

    Raises:
      UsageError: a value that no row could be masked with.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    masked_lm_prob: float
    whole_word: bool
    max_ngram_size: int
    per_word: bool

    def __post_init__(self) -> None:
        if not 0 < self.masked_lm_prob < 1:
            raise UsageError(f"masked_lm_prob must be in (0, 1), got {self.masked_lm_prob}")
        if not 1 <= self.max_predictions_per_seq < self.max_seq_length:
            raise UsageError(
                f"max_predictions_per_seq must be in [1, max_seq_length={self.max_seq_length}), "
                f"got {self.max_predictions_per_seq}"
            )
        if not 1 <= self.max_ngram_size <= _MAX_NGRAM_SIZE:
            raise UsageError(
                f"max_ngram_size must be in [1, {_MAX_NGRAM_SIZE}], got {self.max_ngram_size}"
            )


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
    words = begins % width * STRIDE + tf.boolean_mask(sizes, is_word)
    rows = tf.RaggedTensor.from_value_rowids(words, begins // width, nrows=batch, validate=False)
    # One empty column more, so that a batch without words is no special case.
    return _unpack(tf.pad(rows.to_tensor(), [[0, 0], [0, 1]]))


def _unpack(words: tf.Tensor) -> Spans:
    """Returns the spans of `[batch, n]` packed values: begin * STRIDE + size."""
    import tensorflow as tf

    packed = tf.cast(words, tf.int32)
    return Spans(packed // STRIDE, packed % STRIDE)


def choose_words(words: Spans, wanted: tf.Tensor, state: tf.Tensor, _: MaskOptions) -> Spans:
    """Returns words chosen as BERT does: walk the shuffled words and take those that still fit.

    Args:
      words: from `find_words`.
      wanted: `[batch] int32`, the most tokens to choose in each row.
      state: of the draws.
    """
    import tensorflow as tf

    packed = tf.cast(words.begins * STRIDE + words.sizes, tf.int64)
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
        self._max_size = spec.max_ngram_size
        self._max_spans = spec.max_predictions_per_seq
        self._batch, self._num_words = tf.unstack(tf.shape(words.begins))
        self._shuffled, self._counts = _shuffled_ngrams(words, state, spec.max_ngram_size)
        cumulative = np.cumsum([1 / n for n in range(1, spec.max_ngram_size + 1)])
        self._size_bounds = tf.constant(cumulative[:-1] / cumulative[-1], tf.float32)

    def start(self) -> _Chosen:
        """Returns the choice of nothing."""
        import tensorflow as tf

        none = tf.zeros([self._batch], tf.int32)
        no_spans = tf.zeros([self._batch, self._max_spans], tf.int32)
        return _Chosen(
            # The draws for the order of n-grams use counters below, those for sizes beyond them.
            counter=tf.constant(_MAX_NGRAM_SIZE * STRIDE),
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
        keys = draws.shuffle_keys(state, words.begins + n * STRIDE, columns)
        keys = tf.sort(tf.where(is_ngram, keys, -1), axis=1, direction="DESCENDING")
        orders.append(draws.low_bits(keys))
        counts.append(tf.reduce_sum(tf.cast(is_ngram, tf.int32), axis=1))
    return tf.reshape(tf.stack(orders, axis=1), [-1]), tf.stack(counts, axis=1)
