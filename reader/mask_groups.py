"""Which words of a batch are masked: the steps of BERT's and Model Garden's loops, taken for all
records at once.

What is chosen are *groups*, spans of a row that are masked together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recordmill.reader import draws
from recordmill.reader.token_rows import MAX_ROW_TOKENS
from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf

_MAX_NGRAM_SIZE = 16
STRIDE = MAX_ROW_TOKENS + 1  # two positions, or a position and a size, are packed into an int32


@dataclass(frozen=True, slots=True)
class MaskSpec:
    """How to mask; see `mask_tokens`."""

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
class Groups:
    """Spans, in any order; `[batch, n] int32` each. A size of 0 is no span."""

    begins: tf.Tensor
    sizes: tf.Tensor


def find_words(candidates: tf.Tensor, continues: tf.Tensor) -> Groups:
    """Returns the words of each row in order: spans of candidates."""
    import tensorflow as tf

    # A column behind each row ends the last word there, so that rows can be treated as one.
    candidates = tf.pad(candidates, [[0, 0], [0, 1]])
    before = tf.pad(candidates[:, :-1], [[0, 0], [1, 0]])
    starts = candidates & ~(tf.pad(continues, [[0, 0], [0, 1]]) & before)
    edges = tf.where(tf.reshape(starts | ~candidates, [-1]))[:, 0]
    sizes = edges[1:] - edges[:-1]
    is_word = tf.gather(tf.reshape(starts, [-1]), edges[:-1])
    at = tf.boolean_mask(edges[:-1], is_word)
    width = tf.shape(candidates, out_type=tf.int64)[1]
    words = at % width * STRIDE + tf.boolean_mask(sizes, is_word)
    rows = tf.RaggedTensor.from_value_rowids(
        words, at // width, nrows=tf.shape(candidates, out_type=tf.int64)[0], validate=False
    )
    # One empty column more, so that a batch without words is no special case.
    return _unpack(tf.pad(rows.to_tensor(), [[0, 0], [0, 1]]))


def _unpack(words: tf.Tensor) -> Groups:
    import tensorflow as tf

    packed = tf.cast(words, tf.int32)
    return Groups(packed // STRIDE, packed % STRIDE)


def choose_words(words: Groups, wanted: tf.Tensor, state: tf.Tensor, _: MaskSpec) -> Groups:
    """BERT: walk the shuffled words and take those that still fit."""
    import tensorflow as tf

    packed = tf.cast(words.begins * STRIDE + words.sizes, tf.int64)
    keys = draws.shuffle_keys(state, words.begins, packed)
    keys = tf.sort(tf.where(words.sizes > 0, keys, -1), axis=1, direction="DESCENDING")
    shuffled = _unpack(tf.where(keys < 0, 0, draws.low_bits(keys)))
    taken = _take_fitting(shuffled.sizes, wanted)
    return Groups(shuffled.begins, tf.where(taken, shuffled.sizes, 0))


def _take_fitting(sizes: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Returns which of `[batch, n] int32` sizes a walk from the left takes, skipping what would
    make the sum larger than `wanted`.

    Each turn takes all up to the first that does not fit, and drops all that can fit no more: with
    words, two to four turns instead of a step a word.
    """
    import tensorflow as tf

    def turn(waiting: Any, taken: Any, left: Any) -> tuple[Any, Any, Any]:
        waiting = waiting & (sizes <= left[:, None])
        total = tf.cumsum(tf.where(waiting, sizes, 0), axis=1)
        fits = waiting & (total <= left[:, None])
        left -= tf.reduce_sum(tf.where(fits, sizes, 0), axis=1)
        return waiting & ~fits, taken | fits, left

    waiting = sizes > 0
    _, taken, _ = tf.while_loop(
        lambda waiting, *_: tf.reduce_any(waiting),
        turn,
        (waiting, tf.zeros_like(waiting), wanted),
    )
    return taken


def choose_ngrams(words: Groups, wanted: tf.Tensor, state: tf.Tensor, spec: MaskSpec) -> Groups:
    """Model Garden: draw a size with weight 1 / n, then the next n-gram of that size.

    A step of the loop is one draw for every row of the batch.
    """
    import tensorflow as tf

    most = spec.max_ngram_size
    ends = words.begins + words.sizes
    batch, width = tf.unstack(tf.shape(words.begins))
    orders, counts = _shuffled_ngrams(words, state, most)
    cumulative = np.cumsum([1 / n for n in range(1, most + 1)])
    bounds = tf.constant(cumulative[:-1] / cumulative[-1], tf.float32)
    rows, columns, slots = tf.range(batch), tf.range(width), tf.range(spec.max_predictions_per_seq)
    sizes_of_ngrams = tf.range(most)

    def at(table: Any, index: Any) -> Any:
        return tf.gather(table, index, batch_dims=1)

    def goes_on(_: Any, masked: Any, __: Any, left: Any, *___: Any) -> Any:
        return tf.reduce_any((masked < wanted) & tf.reduce_any(left > 0, axis=1))

    def step(
        count: Any, masked: Any, taken: Any, left: Any, covered: Any, begins: Any, sizes: Any
    ) -> tuple[Any, ...]:
        draw = draws.unit(state, count[None])
        n = tf.reduce_sum(tf.cast(draw >= bounds, tf.int32), axis=1)  # one less than the size
        active = masked < wanted
        too_large = active & (masked + n + 1 > wanted)
        remaining = at(left, n)
        drawn = active & ~too_large & (remaining > 0)
        last = tf.maximum(remaining - 1, 0)
        first = tf.where(drawn, tf.gather(orders, (rows * most + n) * width + last), 0)
        here = (columns >= first[:, None]) & (columns <= (first + n)[:, None])
        begin = at(words.begins, first)
        size = at(ends, tf.minimum(first + n, width - 1)) - begin
        free = ~tf.reduce_any(here & covered, axis=1)
        takes = drawn & (masked + size <= wanted) & free
        slot = takes[:, None] & (slots == taken[:, None])
        one = (sizes_of_ngrams == n[:, None]) & (drawn | too_large)[:, None]
        return (
            count + 1,
            masked + tf.where(takes, size, 0),
            taken + tf.cast(takes, tf.int32),
            tf.where(one, tf.where(too_large, 0, last)[:, None], left),
            covered | (here & takes[:, None]),
            tf.where(slot, begin[:, None], begins),
            tf.where(slot, size[:, None], sizes),
        )

    nothing = tf.zeros([batch], tf.int32)
    slot_shape = [batch, spec.max_predictions_per_seq]
    empty = tf.zeros(slot_shape, tf.int32)
    covered = tf.zeros([batch, width], tf.bool)
    # The draws for the order of n-grams use counters below, those for sizes beyond them.
    first_draw = tf.constant(_MAX_NGRAM_SIZE * STRIDE)
    found = tf.while_loop(
        goes_on, step, (first_draw, nothing, nothing, counts, covered, empty, empty)
    )
    return Groups(found[-2], found[-1])


def _shuffled_ngrams(words: Groups, state: tf.Tensor, most: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first words of n-grams, shuffled, for each row and n.

    `[batch * most * width] int32`, and `[batch, most] int32`: how many there are.
    """
    import tensorflow as tf

    width = tf.shape(words.begins, out_type=tf.int64)[1]
    columns = tf.range(width)
    ends = words.begins + words.sizes
    follows = (words.begins[:, 1:] == ends[:, :-1]) & (words.sizes[:, 1:] > 0)
    follows = tf.pad(follows, [[0, 0], [0, most]])
    together, orders, counts = words.sizes > 0, [], []
    for n in range(most):
        if n:
            together = together & follows[:, n - 1 : n - 1 + width]
        keys = draws.shuffle_keys(state, words.begins + n * STRIDE, columns)
        keys = tf.sort(tf.where(together, keys, -1), axis=1, direction="DESCENDING")
        orders.append(draws.low_bits(keys))
        counts.append(tf.reduce_sum(tf.cast(together, tf.int32), axis=1))
    return tf.reshape(tf.stack(orders, axis=1), [-1]), tf.stack(counts, axis=1)
