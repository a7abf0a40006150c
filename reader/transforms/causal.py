"""Labels of causal language models: the next token, made in the graph."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recordmill.reader.features import Features, Transform, in_graph
from recordmill.reader.token_rows import (
    NAMES,
    Names,
    TokenRowBuilder,
    check_unmasked,
    read_vocabulary_if_given,
)
from recordmill.records.errors import one_of

if TYPE_CHECKING:
    import tensorflow as tf


def causal_labels(
    *,
    max_seq_length: int,
    pad_id: int = 0,
    feature: str | None = None,
    vocab_file: str | os.PathLike[str] | None = None,
    names: Names = "seqio",
    label_pad_id: int | None = None,
    label_boundaries: bool = False,
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
      names: "seqio" as above; "cerebras" as the GptTfRecordsProcessor of Cerebras' Model Zoo gives
        them to its model: input_mask is float32, and 1 on padding. `load(…, as_pair="labels")`
        makes pairs.
      label_pad_id: where there is no label, by default `pad_id`.
      label_boundaries: the last token of a packed record has the first of the next as its label.

    Raises:
      UsageError: a wrong value, or records that are masked already.
    """
    one_of("names", names, NAMES)
    no_label = pad_id if label_pad_id is None else label_pad_id
    rows_of = TokenRowBuilder(
        max_seq_length + 1, vocabulary=read_vocabulary_if_given(vocab_file), pad_id=pad_id,
        feature=feature,
    )  # fmt: skip

    return in_graph(_CausalLabels(rows_of, names, no_label, label_boundaries))


@dataclass(frozen=True, slots=True)
class _CausalLabels:
    """The transform that `causal_labels` returns."""

    rows_of: TokenRowBuilder
    names: Names
    no_label: int
    label_boundaries: bool

    def __call__(self, features: Features, _: tf.Tensor) -> Features:
        import tensorflow as tf

        check_unmasked(features, "causal_labels")
        if "segment_ids" in features:
            features = {**features, "input_mask": tf.cast(features["segment_ids"] > 0, tf.int32)}
        packed = {
            name: self.rows_of.set_width(features[name], 0)
            for name in ("segment_ids", "position_ids")
            if name in features
        }
        rows, rest = self.rows_of(features)
        segments = packed.get("segment_ids", tf.cast(rows.mask, tf.int32))
        labelled = rows.mask[:, 1:]
        if not self.label_boundaries:
            labelled &= segments[:, 1:] == segments[:, :-1]
        if self.names == "seqio":
            mask = tf.cast(labelled, tf.int32)
        else:
            mask = tf.cast(~labelled, tf.float32)
        made = {
            "input_ids": rows.ids[:, :-1],
            "labels": tf.where(labelled, rows.ids[:, 1:], self.no_label),
            "input_mask": mask,
        }
        return {**rest, **made} | {name: values[:, :-1] for name, values in packed.items()}
