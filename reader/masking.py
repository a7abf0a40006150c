"""Masks made while reading: another mask for each epoch, by the rules of the static masks.

The rules are those of `transforms/masking.py`: google-research/bert's create_masked_lm_predictions
(Devlin et al. 2019, arXiv:1810.04805) and, for n-grams, TensorFlow Model Garden's _masking_ngrams.
There they are a loop over a record's words; here each step is taken for all records of a batch at
once, so that no Python runs for a record or a token.

All three ways end in a table of *groups*, spans of a row that are masked together, which is then
laid out as the slots of masked_lm_positions.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recordmill.reader import draws
from recordmill.reader.token_rows import (
    MAX_ROW_TOKENS,
    Features,
    RowMaker,
    TokenRows,
    Transform,
    in_graph,
    read_vocabulary,
)
from recordmill.records.errors import UsageError, one_of

if TYPE_CHECKING:
    import tensorflow as tf

_MAX_NGRAM_SIZE = 16
_STRIDE = MAX_ROW_TOKENS + 1  # two positions, or a position and a size, are packed into an int32


@dataclass(frozen=True, slots=True)
class _MaskSpec:
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
class _Groups:
    """Spans, in any order; `[batch, n] int32` each. A size of 0 is no span."""

    begins: tf.Tensor
    sizes: tf.Tensor


def mask_tokens(
    *,
    vocab_file: str | os.PathLike[str],
    max_seq_length: int,
    max_predictions_per_seq: int,
    masked_lm_prob: float = 0.15,
    whole_word: bool = False,
    max_ngram_size: int | None = None,
    replacement: str = "per_token",
    never_masked: tuple[str, ...] = ("[CLS]", "[SEP]"),
    segment_ids: bool = False,
    feature: str | None = None,
    seed: int = 0,
) -> Transform:
    """Returns a transform that masks tokens, for `load(…, transform=…)`.

    It takes records of word pieces (`recordmill text --task=mlm_tokens`) and of unmasked ids.
    In their place it gives

        input_ids, input_mask[, segment_ids]    [batch, max_seq_length] int32
        masked_lm_positions, masked_lm_ids      [batch, max_predictions_per_seq] int32, ascending
        masked_lm_weights                       the same shape, float32: 1.0 on predictions

    and passes other features on. The mask of a record depends on seed, epoch and the record alone.
    More than 30,000 records/s of length 128 on two cores (`benchmarks/reader.py`).

    Args:
      vocab_file: the dataset's vocabulary. Random replacements are drawn from all of it.
      max_seq_length: of the rows; a longer record is an error.
      max_predictions_per_seq: the most predictions in a row.
      masked_lm_prob: the share of a row's tokens (special ones counted) to predict.
      whole_word: mask all pieces of a word ("##x"), or none.
      max_ngram_size: mask up to that many neighbouring words (tokens) at once, n with a weight of
        1 / n.
      replacement: choose between [MASK] (80 %), the token itself and a random one (10 % each)
        "per_token", as BERT does, or "per_word", once for a word or n-gram, as Model Garden does.
      never_masked: tokens that are never chosen.
      segment_ids: adds 0 up to the first [SEP], 1 behind it.
      feature: that holds the tokens: "tokens", "input_ids" or "input_word_ids", unless given.
      seed: of the masks.

    Raises:
      UsageError: a wrong value, or a vocabulary without the tokens that masking needs.
    """
    vocabulary = read_vocabulary(vocab_file)
    one_of("replacement", replacement, ("per_token", "per_word"))
    spec = _MaskSpec(
        max_seq_length, max_predictions_per_seq, masked_lm_prob, whole_word,
        1 if max_ngram_size is None else max_ngram_size, replacement == "per_word",
    )  # fmt: skip
    rows_of = RowMaker(
        max_seq_length, vocabulary=vocabulary, pad_id=vocabulary.id("[PAD]"), feature=feature
    )
    never = np.zeros(len(vocabulary), np.bool_)
    never[[vocabulary.id(token) for token in never_masked]] = True
    continues = np.array([token.startswith("##") for token in vocabulary.tokens], np.bool_)
    mask_id, sep_id = vocabulary.id("[MASK]"), vocabulary.id("[SEP]")

    def transform(features: Features, keys: tf.Tensor) -> Features:
        import tensorflow as tf

        if "masked_lm_positions" in features:
            raise UsageError(
                "mask_tokens needs unmasked records, and these have masked_lm_positions: write "
                "them with --task=mlm_tokens, or read them without mask_tokens"
            )
        rows, rest = rows_of(features)
        candidates = rows.mask & ~tf.gather(never, rows.ids)
        state = draws.start(keys, seed=seed, purpose="mask order")
        wanted = _wanted(rows.lengths, spec)
        if spec.max_ngram_size > 1 or whole_word:
            words = _find_words(candidates, tf.gather(continues, rows.ids) & whole_word)
            choose = _choose_ngrams if spec.max_ngram_size > 1 else _choose_words
            positions, anchors = _slots(choose(words, wanted, state, spec), spec)
        else:
            positions = _choose_tokens(candidates, wanted, state, spec)
            anchors = positions
        masked = _replace(
            rows, positions, anchors if spec.per_word else positions,
            draws.start(keys, seed=seed, purpose="mask kind"),
            mask_id=mask_id, vocab_size=len(vocabulary),
        )  # fmt: skip
        if segment_ids:
            separators = tf.cast(tf.equal(rows.ids, sep_id), tf.int32)
            second = tf.cumsum(separators, axis=1, exclusive=True) > 0
            masked["segment_ids"] = tf.cast(second & rows.mask, tf.int32)
        fixed = {
            name: tf.ensure_shape(value, [keys.shape[0], value.shape[1]])
            for name, value in masked.items()
        }
        return {**rest, **fixed}

    return in_graph(transform)


def _wanted(lengths: tf.Tensor, spec: _MaskSpec) -> tf.Tensor:
    """Returns `[batch] int32`: how many tokens are to be predicted."""
    import tensorflow as tf

    share = tf.round(tf.cast(lengths, tf.float64) * spec.masked_lm_prob)
    return tf.clip_by_value(tf.cast(share, tf.int32), 1, spec.max_predictions_per_seq)


def _choose_tokens(
    candidates: tf.Tensor, wanted: tf.Tensor, state: tf.Tensor, spec: _MaskSpec
) -> tf.Tensor:
    """Returns `[batch, max_predictions_per_seq] int32`: positions, -1 where there are fewer."""
    import tensorflow as tf

    places = tf.range(spec.max_seq_length, dtype=tf.int64)
    keys = draws.shuffle_keys(state, places, places)
    first = tf.math.top_k(tf.where(candidates, keys, -1), spec.max_predictions_per_seq).values
    used = (tf.range(spec.max_predictions_per_seq) < wanted[:, None]) & (first >= 0)
    return tf.where(used, draws.low_bits(first), -1)


def _find_words(candidates: tf.Tensor, continues: tf.Tensor) -> _Groups:
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
    words = at % width * _STRIDE + tf.boolean_mask(sizes, is_word)
    rows = tf.RaggedTensor.from_value_rowids(
        words, at // width, nrows=tf.shape(candidates, out_type=tf.int64)[0], validate=False
    )
    # One empty column more, so that a batch without words is no special case.
    return _unpack(tf.pad(rows.to_tensor(), [[0, 0], [0, 1]]))


def _unpack(words: tf.Tensor) -> _Groups:
    import tensorflow as tf

    packed = tf.cast(words, tf.int32)
    return _Groups(packed // _STRIDE, packed % _STRIDE)


def _choose_words(words: _Groups, wanted: tf.Tensor, state: tf.Tensor, _: _MaskSpec) -> _Groups:
    """BERT: walk the shuffled words and take those that still fit."""
    import tensorflow as tf

    packed = tf.cast(words.begins * _STRIDE + words.sizes, tf.int64)
    keys = draws.shuffle_keys(state, words.begins, packed)
    keys = tf.sort(tf.where(words.sizes > 0, keys, -1), axis=1, direction="DESCENDING")
    shuffled = _unpack(tf.where(keys < 0, 0, draws.low_bits(keys)))
    taken = _take_fitting(shuffled.sizes, wanted)
    return _Groups(shuffled.begins, tf.where(taken, shuffled.sizes, 0))


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


def _choose_ngrams(words: _Groups, wanted: tf.Tensor, state: tf.Tensor, spec: _MaskSpec) -> _Groups:
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
    first_draw = tf.constant(_MAX_NGRAM_SIZE * _STRIDE)
    found = tf.while_loop(
        goes_on, step, (first_draw, nothing, nothing, counts, covered, empty, empty)
    )
    return _Groups(found[-2], found[-1])


def _shuffled_ngrams(words: _Groups, state: tf.Tensor, most: int) -> tuple[tf.Tensor, tf.Tensor]:
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
        keys = draws.shuffle_keys(state, words.begins + n * _STRIDE, columns)
        keys = tf.sort(tf.where(together, keys, -1), axis=1, direction="DESCENDING")
        orders.append(draws.low_bits(keys))
        counts.append(tf.reduce_sum(tf.cast(together, tf.int32), axis=1))
    return tf.reshape(tf.stack(orders, axis=1), [-1]), tf.stack(counts, axis=1)


def _slots(groups: _Groups, spec: _MaskSpec) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns positions and the first positions of their groups.

    `[batch, max_predictions_per_seq] int32` each, -1 where there are fewer.
    """
    import tensorflow as tf

    slots = tf.range(spec.max_predictions_per_seq)
    total = tf.cumsum(groups.sizes, axis=1)
    count = tf.reduce_sum(groups.sizes, axis=1)[:, None]
    wanted = tf.broadcast_to(slots, [tf.shape(total)[0], spec.max_predictions_per_seq])
    group = tf.searchsorted(total, wanted, side="right")
    group = tf.minimum(group, tf.shape(total)[1] - 1)
    begins = tf.gather(groups.begins, group, batch_dims=1)
    before = tf.gather(total - groups.sizes, group, batch_dims=1)
    used = slots < count
    return tf.where(used, begins + slots - before, -1), tf.where(used, begins, -1)


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
