"""T5's span corruption of unmasked records, made in the graph."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recordmill.reader import draws
from recordmill.reader.features import Features, Transform, in_graph
from recordmill.reader.token_rows import (
    NAMES,
    Names,
    TokenRowBuilder,
    TokenRows,
    TokenVocabulary,
    check_unmasked,
    read_vocabulary_if_given,
)
from recordmill.records.errors import UsageError, one_of
from recordmill.records.noise import NoiseCounts

if TYPE_CHECKING:
    import tensorflow as tf


def corrupt_spans(
    *, vocab_size: int, max_seq_length: int, noise_density: float = 0.15,
    mean_noise_span_length: float = 3.0, eos_id: int = 1, pad_id: int = 0,
    feature: str | None = None, vocab_file: str | os.PathLike[str] | None = None, seed: int = 0,
    names: Names = "seqio", encoder_length: int | None = None, decoder_length: int | None = None,
    encoder_eos: bool | None = None, decoder_start_id: int | None = None,
    decoder_pad_id: int | None = None, label_pad_id: int | None = None,
    remove: Sequence[int | str] | None = None,
) -> Transform:  # fmt: skip
    """Returns a transform that makes T5's span corruption (Raffel et al. 2020, arXiv:1910.10683).

    As T5's random_spans_noise_mask: the noise is exactly round(length x density) tokens, in
    exactly round(noise / span length) spans, cut at random offsets; a span becomes a sentinel in
    the input, and the target is the sentinels, each with its span. The spans differ in each epoch;
    they depend on seed, epoch and record alone. S and T are the least lengths that hold any record
    (`corrupted_lengths`) or the given ones. It gives, int32: encoder_input_ids, encoder_input_mask
    `[batch, S]`, decoder_input_ids, decoder_input_mask, labels `[batch, T]`, masks 1 on tokens.
    As Cerebras' T5DynamicDataProcessor the masks are encoder_mask, decoder_mask, 1 on padding, with
    encoder_input_length, decoder_input_length `[batch]` and loss_scale `[batch, T]` float32.

    Args:
      vocab_size: sentinels descend from `vocab_size - 1`.
      max_seq_length: the most tokens of a record before corruption; a longer one is an error.
      noise_density: the share of tokens to predict, in (0, 1).
      mean_noise_span_length: in tokens, 1 or more.
      eos_id, pad_id: behind the target, and behind the input with `encoder_eos`; behind that.
      feature: that holds the ids, where it is not "input_ids".
      vocab_file: of records that are word pieces, as `--task=mlm_tokens` writes them.
      seed: of the spans.
      names: "seqio" or "cerebras".
      encoder_length, decoder_length: S and T, where they must be longer than the least.
      encoder_eos: `eos_id` behind the input; by default for "seqio" alone.
      decoder_start_id: such as `<s>`; by default `decoder_pad_id`.
      decoder_pad_id, label_pad_id: of decoder_input_ids and labels; by default `pad_id`.
      remove: ids, or tokens of `vocab_file`, that are taken out of records first; by default
        [CLS] and [SEP] for "cerebras" with a `vocab_file`, and else none.

    Raises:
      UsageError: a wrong value, or records that are masked already.
    """
    one_of("names", names, NAMES)
    counts = NoiseCounts(noise_density, mean_noise_span_length)
    _check_sentinels(vocab_size, counts.most_spans(max_seq_length))
    vocabulary = read_vocabulary_if_given(vocab_file)
    if remove is None:
        remove = ("[CLS]", "[SEP]") if vocabulary and names == "cerebras" else ()
    rows_of = TokenRowBuilder(max_seq_length, vocabulary=vocabulary, pad_id=pad_id, feature=feature)
    with_eos = names == "seqio" if encoder_eos is None else encoder_eos
    least = counts.corrupted_lengths(max_seq_length)
    decoder_pad = _or(decoder_pad_id, pad_id)
    form = _SpanForm(
        names, _chosen_length("encoder_length", encoder_length, least[0] - (not with_eos)),
        _chosen_length("decoder_length", decoder_length, least[1]), vocab_size - 1, eos_id,
        with_eos, _or(decoder_start_id, decoder_pad), pad_id, decoder_pad,
        _or(label_pad_id, pad_id), tuple(_token_id(token, vocabulary) for token in remove),
    )  # fmt: skip
    return in_graph(_SpanCorruption(rows_of, counts, form, seed=seed))


def _or(given: int | None, default: int) -> int:
    return default if given is None else given


def _check_sentinels(vocab_size: int, most_spans: int) -> None:
    if vocab_size <= most_spans:
        raise UsageError(f"vocab_size must be above {most_spans} sentinels, got {vocab_size}")


def _chosen_length(name: str, chosen: int | None, least: int) -> int:
    if chosen is not None and chosen < least:
        raise UsageError(
            f"{name} must be {least} or more, which records of max_seq_length can need, got "
            f"{chosen}; give a longer one or a smaller max_seq_length"
        )
    return least if chosen is None else chosen


def _token_id(token: int | str, vocabulary: TokenVocabulary | None) -> int:
    if isinstance(token, int):
        return token
    if vocabulary is None:
        raise UsageError(f"remove={token!r} needs a vocabulary: give vocab_file=…, or its id")
    return vocabulary.id(token)


@dataclass(frozen=True, slots=True)
class _SpanForm:
    """What comes out of span corruption; see `corrupt_spans`."""

    names: Names
    encoder_length: int
    decoder_length: int
    first_sentinel: int
    eos_id: int
    encoder_eos: bool
    decoder_start_id: int
    pad_id: int
    decoder_pad_id: int
    label_pad_id: int
    removed: tuple[int, ...]


class _SpanCorruption:
    """The transform that `corrupt_spans` returns."""

    def __init__(
        self, rows_of: TokenRowBuilder, counts: NoiseCounts, form: _SpanForm, *, seed: int
    ) -> None:
        self._rows_of = rows_of
        self._form = form
        self._seed = seed
        length = rows_of.max_seq_length
        self._noise_tokens, self._noise_spans = counts.up_to(length)
        self._most_spans = counts.most_spans(length)

    def __call__(self, features: Features, keys: tf.Tensor) -> Features:
        import tensorflow as tf

        check_unmasked(features, "corrupt_spans")
        form = self._form
        rows, rest = self._rows_of(features)
        if form.removed:
            rows = self._rows_of.without(rows, form.removed)
        noise_tokens, noise_spans = (
            tf.gather(tf.constant(table, tf.int32), rows.lengths)
            for table in (self._noise_tokens, self._noise_spans)
        )
        state = draws.start(keys, seed=self._seed, purpose="spans")
        is_noise, number, begins_span = _noise_mask(
            rows, noise_tokens, noise_spans, most_spans=self._most_spans, state=state
        )
        # In the input a sentinel stands for a span of noise, in the target for what is between.
        sentinels = form.first_sentinel - number
        shown = tf.where(begins_span & is_noise, sentinels, rows.ids)
        asked = tf.where(begins_span & ~is_noise, sentinels, rows.ids)
        inputs = self._join(
            shown, rows.mask & (~is_noise | begins_span), form.encoder_length,
            eos=form.encoder_eos, pad_id=form.pad_id,
        )  # fmt: skip
        labels = self._join(
            asked, rows.mask & (is_noise | begins_span), form.decoder_length,
            eos=True, pad_id=form.label_pad_id,
        )  # fmt: skip
        made = self._output(inputs, labels)
        batch = keys.shape[0]  # known to the graph, and lost by the ragged operations above
        return rest | {
            name: tf.ensure_shape(value, [batch, *value.shape[1:]]) for name, value in made.items()
        }

    def _join(
        self, ids: tf.Tensor, kept: tf.Tensor, length: int, *, eos: bool, pad_id: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `[batch, length] int32`: the kept ids, then the end if asked; and their mask."""
        import tensorflow as tf

        rows = tf.ragged.boolean_mask(ids, kept)
        count = tf.cast(rows.row_lengths(), tf.int32)[:, None]
        columns = tf.range(length)
        padded = rows.to_tensor(pad_id, shape=[None, length])
        if eos:
            padded = tf.where(columns == count, self._form.eos_id, padded)
        return padded, columns < count + int(eos)

    def _output(
        self, inputs: tuple[tf.Tensor, tf.Tensor], labels: tuple[tf.Tensor, tf.Tensor]
    ) -> Features:
        """Returns the features by the names that were asked for."""
        import tensorflow as tf

        form = self._form
        shifted = tf.pad(labels[0][:, :-1], [[0, 0], [1, 0]], constant_values=form.decoder_start_id)
        if form.names == "seqio" and form.decoder_pad_id == form.label_pad_id:
            return {
                "encoder_input_ids": inputs[0],
                "encoder_input_mask": tf.cast(inputs[1], tf.int32),
                "decoder_input_ids": shifted,
                "decoder_input_mask": tf.cast(labels[1], tf.int32),
                "labels": labels[0],
            }
        made = {
            "encoder_input_ids": inputs[0],
            "decoder_input_ids": tf.where(labels[1], shifted, form.decoder_pad_id),
            "labels": labels[0],
        }
        if form.names == "seqio":
            masks = {"encoder_input_mask": inputs[1], "decoder_input_mask": labels[1]}
            return made | {name: tf.cast(mask, tf.int32) for name, mask in masks.items()}
        encoder_length, decoder_length = (
            tf.reduce_sum(tf.cast(mask, tf.int32), axis=1) for mask in (inputs[1], labels[1])
        )
        scale = tf.size(decoder_length) / tf.reduce_sum(decoder_length)
        return made | {
            "encoder_mask": tf.cast(~inputs[1], tf.int32),
            "decoder_mask": tf.cast(~labels[1], tf.int32),
            "encoder_input_length": encoder_length,
            "decoder_input_length": decoder_length,
            "loss_scale": tf.ones_like(labels[0], tf.float32) * tf.cast(scale, tf.float32),
        }


def corrupted_lengths(
    max_seq_length: int, *, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> tuple[int, int]:
    """Returns the most tokens, end included, of input and target of records up to a length.

    Args:
      max_seq_length: the most tokens of a record before corruption.
      noise_density, mean_noise_span_length: as `corrupt_spans` takes them.

    Raises:
      UsageError: a wrong value.
    """
    return NoiseCounts(noise_density, mean_noise_span_length).corrupted_lengths(max_seq_length)


def _noise_mask(
    rows: TokenRows, noise: tf.Tensor, spans: tf.Tensor, *, most_spans: int, state: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns what is noise, the number of the span, and where spans begin, of noise or not.

    `[batch, max_seq_length]` bool, int32 and bool. Each row begins without noise and ends with it.

    Args:
      rows: the tokens.
      noise, spans: `[batch] int32`, noise tokens and noise spans of each row.
      most_spans: of any row.
      state: of the draws.
    """
    import tensorflow as tf

    width = rows.ids.shape[1]
    # Noise and the rest are cut into equally many spans, which take turns: span i of the rest ends
    # where span i of the noise begins.
    noise_ends = _cut_points(noise, spans, most_spans, state, width=width, purpose=0)
    other_ends = _cut_points(rows.lengths - noise, spans, most_spans, state, width=width, purpose=1)
    ends = noise_ends + other_ends
    begins = other_ends + tf.pad(noise_ends[:, :-1], [[0, 0], [1, 0]])
    positions = tf.broadcast_to(tf.range(width), tf.shape(rows.ids))
    number = tf.searchsorted(ends, positions, side="right")
    padded = tf.pad(begins, [[0, 0], [0, 1]], constant_values=width)
    begin = tf.gather(padded, number, batch_dims=1)
    end_before = tf.gather(tf.pad(ends, [[0, 0], [1, 0]]), number, batch_dims=1)
    is_noise = positions >= begin
    return is_noise, number, (positions == begin) | (positions == end_before)


def _cut_points(
    items: tf.Tensor, parts: tf.Tensor, most: int, state: tf.Tensor, *, width: int, purpose: int
) -> tf.Tensor:
    """Returns the ends of `parts` parts, none empty, of `items` items, all ways equally likely.

    `[batch, most] int32`; beyond the last part its end is repeated.
    """
    import tensorflow as tf

    positions = tf.range(1, width + 1, dtype=tf.int64)
    keys = draws.shuffle_keys(state, positions * 2 + purpose, positions)
    inner = tf.where(positions < tf.cast(items, tf.int64)[:, None], keys, -1)
    chosen = draws.low_bits(tf.math.top_k(inner, most - 1).values)
    used = tf.range(most - 1) < parts[:, None] - 1
    cuts = tf.sort(tf.where(used, chosen, items[:, None]), axis=1)
    return tf.concat([cuts, items[:, None]], axis=1)
