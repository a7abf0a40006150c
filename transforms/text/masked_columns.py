"""What the records of all masked objectives have, and what is counted of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from recordmill.records.codec.encoding import Column
from recordmill.transforms.subwords.tokenizer import Ids
from recordmill.transforms.text.masking import Predictions
from recordmill.transforms.text.objective import OutputBytes


def mask_columns(ids: Ids, lengths: Ids, predictions: Predictions) -> dict[str, Column]:
    """Returns what all masked records have.

    Args:
      ids: `[num_examples, max_seq_length] int32`, masked.
      lengths: `[num_examples] int32`: the tokens of each.
      predictions: what was masked.
    """
    real = np.arange(ids.shape[1], dtype=np.int32) < lengths[:, None]
    return {
        "input_ids": ids,
        "input_mask": real,
        "masked_lm_positions": predictions.positions,
        "masked_lm_ids": predictions.ids,
        "masked_lm_weights": predictions.weights,
    }


def mask_counts(ids: Ids, predictions: Predictions, mask_id: int) -> dict[str, int]:
    """Counts what predictions became.

    Args:
      ids: `[num_examples, max_seq_length] int32`, masked.
      predictions: what was masked.
      mask_id: of [MASK].
    """
    real = predictions.weights > 0
    now = np.take_along_axis(ids, predictions.positions, axis=1)[real]
    before = predictions.ids[real]
    masked = int((now == mask_id).sum())
    kept = int(((now == before) & (now != mask_id)).sum())  # the text itself may have [MASK]
    return {
        "predictions": len(now),
        "predictions_masked": masked,
        "predictions_kept": kept,
        "predictions_replaced": len(now) - masked - kept,
    }


def masked_example_bytes(examples: Any, tokens: Any, length: int, predictions: int) -> OutputBytes:
    """Bytes of examples: a value of padding takes one byte, an id of a token mostly two."""
    per_example = 3 * length + 7 * predictions + 190
    return np.asarray(examples * float(per_example) + tokens, np.float64)
