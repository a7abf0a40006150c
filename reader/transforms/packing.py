"""Several records in one row, made in the graph."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from recordmill.reader.features import Features, Transform, in_graph
from recordmill.reader.token_rows import TokenRowBuilder, read_vocabulary_if_given
from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf


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
    rows_of = TokenRowBuilder(
        max_seq_length, vocabulary=read_vocabulary_if_given(vocab_file), pad_id=pad_id,
        feature=feature,
    )  # fmt: skip
    return in_graph(_Packing(rows_of, rows, frozenset(drop)))


class _Packing:
    """The transform that `pack_sequences` returns."""

    def __init__(self, rows_of: TokenRowBuilder, rows: int | None, drop: frozenset[str]) -> None:
        self._rows_of = rows_of
        self._rows = rows
        self._drop = drop

    def __call__(self, features: Features, _: tf.Tensor) -> Features:
        import tensorflow as tf

        records, rest = self._rows_of(features)
        others = sorted(rest.keys() - self._drop)
        if others:
            raise UsageError(
                f"pack_sequences packs tokens alone, and the records have {', '.join(others)} too: "
                "name what may be left out in drop=…"
            )
        length = self._rows_of.max_seq_length
        row, offset, segment = _first_fit(records.lengths, length)
        height = self._check_rows(tf.reduce_max(row) + 1)
        columns = tf.broadcast_to(tf.range(length), tf.shape(records.ids))
        # Where each token goes, in all packed rows behind each other.
        targets = tf.boolean_mask((row * length + offset)[:, None] + columns, records.mask)

        def fill(values: tf.Tensor, padding: int = 0) -> tf.Tensor:
            flat = tf.tensor_scatter_nd_update(
                tf.fill([length * height], padding),
                targets[:, None],
                tf.boolean_mask(values, records.mask),
            )
            return tf.ensure_shape(tf.reshape(flat, [-1, length]), [self._rows, length])

        return {
            "input_ids": fill(records.ids, self._rows_of.pad_id),
            "segment_ids": fill(tf.broadcast_to(segment[:, None], tf.shape(records.ids))),
            "position_ids": fill(columns),
        }

    def _check_rows(self, needed: tf.Tensor) -> tf.Tensor:
        """Returns the number of rows to give; an error where a batch needs more than those."""
        import tensorflow as tf

        from recordmill.reader.one_line_errors import check_in_graph

        if self._rows is None:
            return needed
        message = tf.strings.join(
            [
                f"pack_sequences: a batch needs more than rows={self._rows} rows, it needs ",
                tf.strings.as_string(needed),
                "; give more, or rows=None",
            ]
        )
        with tf.control_dependencies(check_in_graph(needed <= self._rows, message)):
            return tf.constant(self._rows)


def _first_fit(lengths: tf.Tensor, max_seq_length: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns `[batch] int32` each: the row, the offset in it and the number (from 1) there."""
    import tensorflow as tf

    count = tf.size(lengths)

    def pack_one(i: Any, free: Any, records: Any, packed: Any) -> tuple[Any, ...]:
        row = tf.argmax(tf.cast(free >= lengths[i], tf.int32), output_type=tf.int32)
        packed = packed.write(i, tf.stack([row, max_seq_length - free[row], records[row] + 1]))
        free = tf.tensor_scatter_nd_sub(free, [[row]], lengths[i : i + 1])
        return i + 1, free, tf.tensor_scatter_nd_add(records, [[row]], [1]), packed

    # As many rows as records are always enough.
    free, records = tf.fill([count], max_seq_length), tf.zeros([count], tf.int32)
    packed = tf.TensorArray(tf.int32, size=count, element_shape=[3])
    start = (0, free, records, packed)
    table = tf.while_loop(lambda i, *_: i < count, pack_one, start)[-1].stack()
    row, offset, segment = tf.unstack(table, num=3, axis=1)
    return row, offset, segment
