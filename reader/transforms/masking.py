"""Masks made while reading: another mask for each epoch, by the rules of the static masks.

The rules are those of `transforms/masking.py`: google-research/bert's create_masked_lm_predictions
(Devlin et al. 2019, arXiv:1810.04805) and, for n-grams, TensorFlow Model Garden's _masking_ngrams.
There they are a loop over a record's words; here each step is taken for all records of a batch at
once, so that no Python runs for a record or a token.

Words and n-grams (`mask_spans.py`) end in a table of spans, whose tokens then become the slots of
masked_lm_positions.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from recordmill.reader import draws
from recordmill.reader.features import Features, Transform, in_graph
from recordmill.reader.token_rows import (
    TokenRowBuilder,
    TokenRows,
    TokenVocabulary,
    check_unmasked,
    read_vocabulary,
)
from recordmill.reader.transforms.mask_spans import (
    STRIDE,
    MaskOptions,
    Spans,
    choose_ngrams,
    choose_words,
    find_words,
)
from recordmill.records.errors import one_of

if TYPE_CHECKING:
    import tensorflow as tf


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
    spec = MaskOptions(
        max_seq_length, max_predictions_per_seq, masked_lm_prob, whole_word,
        1 if max_ngram_size is None else max_ngram_size, replacement == "per_word",
    )  # fmt: skip
    rows_of = TokenRowBuilder(
        max_seq_length, vocabulary=vocabulary, pad_id=vocabulary.id("[PAD]"), feature=feature
    )
    return in_graph(
        _Masking(
            spec, rows_of, vocabulary, never_masked=never_masked, segment_ids=segment_ids, seed=seed
        )
    )


class _Masking:
    """The transform that `mask_tokens` returns."""

    def __init__(
        self,
        spec: MaskOptions,
        rows_of: TokenRowBuilder,
        vocabulary: TokenVocabulary,
        *,
        never_masked: tuple[str, ...],
        segment_ids: bool,
        seed: int,
    ) -> None:
        self._spec = spec
        self._rows_of = rows_of
        self._segment_ids = segment_ids
        self._seed = seed
        self._vocab_size = len(vocabulary)
        self._mask_id, self._sep_id = vocabulary.id("[MASK]"), vocabulary.id("[SEP]")
        # Of each token of the vocabulary: whether it is never masked, whether it continues a word.
        self._never_masked = np.zeros(len(vocabulary), np.bool_)
        self._never_masked[[vocabulary.id(token) for token in never_masked]] = True
        self._continues = np.array(
            [token.startswith("##") for token in vocabulary.tokens], np.bool_
        )

    def __call__(self, features: Features, keys: tf.Tensor) -> Features:
        import tensorflow as tf

        check_unmasked(features, "mask_tokens")
        rows, rest = self._rows_of(features)
        positions, span_begins = self._choose(rows, keys)
        masked = _replace(
            rows, positions, span_begins if self._spec.per_word else positions,
            draws.start(keys, seed=self._seed, purpose="mask kind"),
            mask_id=self._mask_id, vocab_size=self._vocab_size,
        )  # fmt: skip
        if self._segment_ids:
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
        state = draws.start(keys, seed=self._seed, purpose="mask order")
        wanted = _wanted(rows.lengths, spec)
        if spec.max_ngram_size == 1 and not spec.whole_word:
            positions = _choose_tokens(candidates, wanted, state, spec)
            return positions, positions
        continues = tf.gather(self._continues, rows.ids) & spec.whole_word
        words = find_words(candidates, continues)
        choose = choose_ngrams if spec.max_ngram_size > 1 else choose_words
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

    packed = tf.where(positions < 0, tf.int32.max, positions * STRIDE + deciding)
    packed = tf.sort(packed, axis=1)
    used = packed < tf.int32.max
    positions = tf.where(used, packed // STRIDE, 0)
    deciding = tf.where(used, packed % STRIDE, 0)
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
