"""Unmasked records, ids or word pieces, made ready in the graph: for T5, for packed rows and for
causal language models. Each function returns a transform for `load(…, transform=…)`, which takes
several as a list.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from recordmill.reader import draws
from recordmill.reader.token_rows import (
    Features,
    RowMaker,
    TokenRows,
    Transform,
    Vocabulary,
    in_graph,
    read_vocabulary,
)
from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf


def corrupt_spans(
    *,
    vocab_size: int,
    max_seq_length: int,
    noise_density: float = 0.15,
    mean_noise_span_length: float = 3.0,
    eos_id: int = 1,
    pad_id: int = 0,
    feature: str | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Transform:
    """Returns a transform that makes T5's span corruption (Raffel et al. 2020, arXiv:1910.10683).

    As T5's random_spans_noise_mask: the noise is exactly round(length x density) tokens, in
    exactly round(noise / span length) spans, cut at random places; a span becomes a sentinel in the
    input, and the target is the sentinels, each with its span. With S and T, the least lengths
    that hold any record (`corrupted_lengths`), it gives

        encoder_input_ids, encoder_input_mask           [batch, S] int32
        decoder_input_ids, decoder_input_mask, labels   [batch, T] int32

    where labels end with `eos_id` and decoder_input_ids are labels one to the right behind
    `pad_id`. Masks are 1 on tokens. Other spans each epoch, by seed, epoch and record alone.

    Args:
      vocab_size: sentinels descend from `vocab_size - 1`.
      max_seq_length: the most tokens of a record before corruption; a longer one is an error.
      noise_density: the share of tokens to predict, in (0, 1).
      mean_noise_span_length: in tokens, 1 or more.
      eos_id: behind input and target.
      pad_id: behind that.
      feature: that holds the ids, where it is not "input_ids".
      vocab_file: of records that are word pieces, as `--task=mlm_tokens` writes them.
      seed: of the spans.

    Raises:
      UsageError: a wrong value.
    """
    if not 0 < noise_density < 1:
        raise UsageError(f"noise_density must be in (0, 1), got {noise_density}")
    if mean_noise_span_length < 1:
        raise UsageError(f"mean_noise_span_length must be 1 or more, got {mean_noise_span_length}")
    vocabulary = _vocabulary(vocab_file)
    rows_of = RowMaker(max_seq_length, vocabulary=vocabulary, pad_id=pad_id, feature=feature)
    plan = (noise_density, mean_noise_span_length)
    most_spans = int(_count_noise(np.arange(max_seq_length + 1), *plan)[1].max())
    if vocab_size <= most_spans:
        raise UsageError(f"vocab_size must be above {most_spans} sentinels, got {vocab_size}")
    input_length, target_length = corrupted_lengths(
        max_seq_length, noise_density=noise_density, mean_noise_span_length=mean_noise_span_length
    )

    def transform(features: Features, keys: tf.Tensor) -> Features:
        import tensorflow as tf

        rows, rest = rows_of(features)
        lookup = [
            tf.gather(tf.constant(table, tf.int32), rows.lengths)
            for table in _count_noise(np.arange(max_seq_length + 1), *plan)
        ]
        state = draws.start(keys, seed=seed, purpose="spans")
        noise, number, first = _noise_mask(rows, *lookup, most_spans=most_spans, state=state)
        sentinels = vocab_size - 1 - number
        shown = tf.where(first & noise, sentinels, rows.ids)
        asked = tf.where(first & ~noise, sentinels, rows.ids)
        inputs, input_mask = _ended(
            shown, rows.mask & (~noise | first), input_length, eos_id=eos_id, pad_id=pad_id
        )
        labels, label_mask = _ended(
            asked, rows.mask & (noise | first), target_length, eos_id=eos_id, pad_id=pad_id
        )
        made = {
            "encoder_input_ids": inputs,
            "encoder_input_mask": input_mask,
            "decoder_input_ids": tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=pad_id),
            "decoder_input_mask": label_mask,
            "labels": labels,
        }
        return {**rest, **_with_batch(made, keys.shape[0])}

    return in_graph(transform)


def _vocabulary(vocab_file: str | os.PathLike[str] | None) -> Vocabulary | None:
    return None if vocab_file is None else read_vocabulary(vocab_file)


def corrupted_lengths(
    max_seq_length: int, *, noise_density: float = 0.15, mean_noise_span_length: float = 3.0
) -> tuple[int, int]:
    """Returns the most tokens, end included, of input and target of records up to a length."""
    lengths = np.arange(max_seq_length + 1)
    noise, spans = _count_noise(lengths, noise_density, mean_noise_span_length)
    return int((lengths - noise + spans).max()) + 1, int((noise + spans).max()) + 1


def _count_noise(lengths: Any, density: float, span_length: float) -> tuple[Any, Any]:
    """Returns the noise tokens and noise spans of records of `lengths`.

    A record of one token has no noise; T5 never has a row without a token between two spans.
    """
    noise = np.clip(np.rint(lengths * density), 1, np.maximum(lengths - 1, 1)).astype(np.int64)
    noise = np.where(lengths > 1, noise, 0)
    spans = np.maximum(np.rint(noise / span_length), 1).astype(np.int64)
    return noise, np.where(noise > 0, np.minimum(spans, lengths - noise), 0)


def _noise_mask(
    rows: TokenRows, noise: tf.Tensor, spans: tf.Tensor, *, most_spans: int, state: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns, `[batch, max_seq_length]` each, what is noise, the number of its span and where
    spans, of noise or not, begin. Each row begins without noise and ends with it.
    """
    import tensorflow as tf

    width = rows.ids.shape[1]
    noise_ends = _cut_points(noise, spans, most_spans, state, width=width, purpose=0)
    other_ends = _cut_points(rows.lengths - noise, spans, most_spans, state, width=width, purpose=1)
    ends = noise_ends + other_ends
    begins = other_ends + tf.pad(noise_ends[:, :-1], [[0, 0], [1, 0]])
    places = tf.broadcast_to(tf.range(width), tf.shape(rows.ids))
    number = tf.searchsorted(ends, places, side="right")
    padded = tf.pad(begins, [[0, 0], [0, 1]], constant_values=width)
    begin = tf.gather(padded, number, batch_dims=1)
    before = tf.gather(tf.pad(ends, [[0, 0], [1, 0]]), number, batch_dims=1)
    is_noise = places >= begin
    return is_noise, number, (places == begin) | (places == before)


def _cut_points(
    items: tf.Tensor, parts: tf.Tensor, most: int, state: tf.Tensor, *, width: int, purpose: int
) -> tf.Tensor:
    """Returns the ends of `parts` parts, none empty, of `items` items, all ways equally likely.

    `[batch, most] int32`; beyond the last part its end is repeated.
    """
    import tensorflow as tf

    places = tf.range(1, width + 1, dtype=tf.int64)
    keys = draws.shuffle_keys(state, places * 2 + purpose, places)
    inner = tf.where(places < tf.cast(items, tf.int64)[:, None], keys, -1)
    chosen = draws.low_bits(tf.math.top_k(inner, most - 1).values)
    used = tf.range(most - 1) < parts[:, None] - 1
    cuts = tf.sort(tf.where(used, chosen, items[:, None]), axis=1)
    return tf.concat([cuts, items[:, None]], axis=1)


def _ended(
    ids: tf.Tensor, kept: tf.Tensor, length: int, *, eos_id: int, pad_id: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the kept ids moved together, `eos_id` behind them, and their mask."""
    import tensorflow as tf

    rows = tf.ragged.boolean_mask(ids, kept)
    count = tf.cast(rows.row_lengths(), tf.int32)[:, None]
    places = tf.range(length)
    dense = tf.where(places == count, eos_id, rows.to_tensor(pad_id, shape=[None, length]))
    return dense, tf.cast(places <= count, tf.int32)


def pack_sequences(
    *,
    max_seq_length: int,
    rows: int | None = None,
    pad_id: int = 0,
    drop: Sequence[str] = (),
    feature: str | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
) -> Transform:
    """Returns a transform that packs the records of a batch into as few rows as first fit finds.

    Each record goes whole into the first row with room for it, in the order of the batch. A batch
    is packed by itself: the rows of a step depend on its records alone, so that a stream goes on
    after a restart where it was. The larger the batch, the fuller the rows. It gives

        input_ids      [rows, max_seq_length] int32
        segment_ids    1, 2, … by record, 0 on padding
        position_ids   0, 1, … from the beginning of each record

    Args:
      max_seq_length: of a row; a longer record is an error.
      rows: None gives as many as are needed, another number each step. A number gives always that
        many, some of them empty; a batch that needs more is an error, for nothing is left out.
      pad_id: behind the last record.
      drop: features that are not tokens and may be left out; any other is an error.
      feature: that holds the ids, where it is not "input_ids".
      vocab_file: of records that are word pieces, as `--task=mlm_tokens` writes them.

    Raises:
      UsageError: a wrong value.
    """
    if rows is not None and rows < 1:
        raise UsageError(f"rows must be 1 or more, got {rows}")
    vocabulary = _vocabulary(vocab_file)
    rows_of = RowMaker(max_seq_length, vocabulary=vocabulary, pad_id=pad_id, feature=feature)

    def transform(features: Features, _: tf.Tensor) -> Features:
        import tensorflow as tf

        records, rest = rows_of(features)
        others = sorted(rest.keys() - set(drop))
        if others:
            raise UsageError(
                f"pack_sequences packs tokens alone, and the records have {', '.join(others)} too: "
                "name what may be left out in drop=…"
            )
        row, offset, segment = _first_fit(records.lengths, max_seq_length)
        needed = tf.reduce_max(row) + 1
        height = needed if rows is None else rows
        check = tf.debugging.assert_less_equal(
            needed,
            height,
            f"pack_sequences: a batch needs more than rows={rows} rows; give more, or rows=None",
        )
        places = tf.range(max_seq_length)
        shown = tf.broadcast_to(places, tf.shape(records.ids))
        targets = tf.boolean_mask((row * max_seq_length + offset)[:, None] + shown, records.mask)
        with tf.control_dependencies([check] if check is not None else []):
            size = tf.constant(max_seq_length) * height

        def fill(values: tf.Tensor, padding: int = 0) -> tf.Tensor:
            flat = tf.tensor_scatter_nd_update(
                tf.fill([size], padding), targets[:, None], tf.boolean_mask(values, records.mask)
            )
            return tf.ensure_shape(tf.reshape(flat, [-1, max_seq_length]), [rows, max_seq_length])

        return {
            "input_ids": fill(records.ids, pad_id),
            "segment_ids": fill(tf.broadcast_to(segment[:, None], tf.shape(records.ids))),
            "position_ids": fill(shown),
        }

    return in_graph(transform)


def _first_fit(lengths: tf.Tensor, room: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns `[batch] int32` each: the row, the offset in it and the number (from 1) there."""
    import tensorflow as tf

    count = tf.size(lengths)

    def place(i: Any, free: Any, held: Any, found: Any) -> tuple[Any, ...]:
        row = tf.argmax(tf.cast(free >= lengths[i], tf.int32), output_type=tf.int32)
        found = found.write(i, tf.stack([row, room - free[row], held[row] + 1]))
        free = tf.tensor_scatter_nd_sub(free, [[row]], lengths[i : i + 1])
        return i + 1, free, tf.tensor_scatter_nd_add(held, [[row]], [1]), found

    found = tf.TensorArray(tf.int32, size=count, element_shape=[3])
    start = (0, tf.fill([count], room), tf.zeros([count], tf.int32), found)
    placed = tf.while_loop(lambda i, *_: i < count, place, start)[-1].stack()
    row, offset, segment = tf.unstack(placed, num=3, axis=1)
    return row, offset, segment


def causal_labels(
    *,
    max_seq_length: int,
    pad_id: int = 0,
    feature: str | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
) -> Transform:
    """Returns a transform that makes the next token the label of each.

    It takes rows of up to `max_seq_length + 1` tokens, also packed ones, and gives

        input_ids, labels   [batch, max_seq_length] int32: tokens [:-1] and [1:]
        input_mask          1 where there is a label: none across the end of a packed record

    with `segment_ids` and `position_ids` cut to the same length, and other features unchanged.

    Args:
      max_seq_length: of the result.
      pad_id: behind the tokens.
      feature: that holds the ids, where it is not "input_ids".
      vocab_file: of records that are word pieces, as `--task=mlm_tokens` writes them.

    Raises:
      UsageError: a wrong value.
    """
    vocabulary = _vocabulary(vocab_file)
    rows_of = RowMaker(max_seq_length + 1, vocabulary=vocabulary, pad_id=pad_id, feature=feature)

    def transform(features: Features, _: tf.Tensor) -> Features:
        import tensorflow as tf

        if "segment_ids" in features:
            features = {**features, "input_mask": tf.cast(features["segment_ids"] > 0, tf.int32)}
        packed = {
            name: rows_of.fit(features[name], 0)
            for name in ("segment_ids", "position_ids")
            if name in features
        }
        rows, rest = rows_of(features)
        segments = packed.get("segment_ids", tf.cast(rows.mask, tf.int32))
        labelled = (segments[:, 1:] == segments[:, :-1]) & rows.mask[:, 1:]
        made = {
            "input_ids": rows.ids[:, :-1],
            "labels": tf.where(labelled, rows.ids[:, 1:], pad_id),
            "input_mask": tf.cast(labelled, tf.int32),
        }
        return {**rest, **made} | {name: values[:, :-1] for name, values in packed.items()}

    return in_graph(transform)


def _with_batch(features: Features, batch: int | None) -> Features:
    """Returns dense features with their batch size known to the graph."""
    import tensorflow as tf

    return {
        name: tf.ensure_shape(value, [batch, *value.shape[1:]]) for name, value in features.items()
    }
