"""Causal language models: rows of documents, in which each token is to be predicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records import text_formats as formats
from recordmill.records.arrays import Bools, Int32s, Int64s
from recordmill.records.codec.encoding import Column, Packed, Ragged
from recordmill.records.codec.varints import pack_rows
from recordmill.records.hashing import seed_for
from recordmill.records.schema import Schema
from recordmill.transforms.text.chunks import Chunks
from recordmill.transforms.text.fill_in_middle import (
    FIM_TOKENS,
    FimIds,
    draw_documents,
    move_middles,
)
from recordmill.transforms.text.objective import (
    ExampleBatch,
    OutputBytes,
    SpecialIds,
    with_kept_fields,
)
from recordmill.transforms.text.packed_rows import RowObjective
from recordmill.transforms.text.packing import FilledRows, Parts, cut_parts
from recordmill.transforms.text.text_spec import Gpt

_BYTES_AROUND = 100  # of a record: names of features, lengths, checksums


@dataclass(frozen=True)
class CausalObjective(RowObjective):
    """Rows of documents with the next token as label: `formats.causal`.

    Attributes:
      fim_ids: the special ids of documents whose middle is moved; None where none is.
    """

    spec: Gpt
    fim_ids: FimIds | None = None

    def __post_init__(self) -> None:
        _ = self.schema  # a kept field may have the name of a feature

    @property
    def with_spans(self) -> bool:
        """Whether segments, positions or answers of rows are used."""
        return self.spec.with_spans

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        spec = self.spec
        schema = formats.causal(
            max_seq_length=spec.max_seq_length,
            form=spec.format,
            use_segment_ids=spec.use_segment_ids,
            use_position_id=spec.use_position_id,
            loss_mask=spec.loss_mask,
        )
        return with_kept_fields(schema, self.row.keep_fields, "gpt")

    @cached_property
    def _ids(self) -> SpecialIds:
        return SpecialIds(self.vocabulary)

    def estimate_output_bytes(self, chunks: Chunks) -> OutputBytes:
        """A position takes a byte in each feature, and an id of a token mostly one more."""
        spec = self.spec
        rows = self.count_rows(chunks)
        tokens = chunks.token_counts * (1 + spec.fim_rate * FIM_TOKENS / spec.row_tokens)
        if spec.format == "seqio":
            own = tokens * 2.3 + rows * _BYTES_AROUND
        else:
            features = 6 if spec.format == "maxtext" else 3
            features += spec.use_segment_ids + spec.use_position_id
            own = rows * (features * spec.max_seq_length + _BYTES_AROUND) + tokens * 2.6
        return np.asarray((own + rows * self.kept_bytes(chunks)) * self.copies, np.float64)

    def examples(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[ExampleBatch]:
        """See `Objective`."""
        for batch in self.row_batches(chunks, chosen, copies):
            rows = batch.rows
            counts = batch.counts | {"unknown_tokens": self._ids.count_unknown(rows.ids)}
            if self.spec.labels_cross and not self.spec.loss_mask:
                columns = packed_columns(rows, self.spec)
            else:
                columns, labelled = causal_columns(rows, self.spec, self.pad_id)
                if self.spec.loss_mask:
                    counts["labels"] = int(labelled.sum())
            yield ExampleBatch(columns | batch.kept, rows.lengths, counts)

    def _prepare(self, ids: Any, parts: Parts) -> tuple[Any, Parts, dict[str, int]]:
        """Moves the middles of some documents to their ends."""
        if self.fim_ids is None:
            return ids, parts, {}
        seed = seed_for(self.seed, "fill in the middle")
        moved = draw_documents(parts.keys, spec=self.spec, seed=seed)
        documents = int(moved.sum())
        parts, moved = self._cut_for_fim(parts, moved)
        ids, parts, suffix_first = move_middles(
            ids, parts, moved, special=self.fim_ids, spec=self.spec, seed=seed
        )
        return ids, parts, {
            "fim_documents": documents, "fim_parts": int(moved.sum()), "fim_spm": suffix_first
        }  # fmt: skip

    def _cut_for_fim(self, parts: Parts, moved: Bools) -> tuple[Parts, Bools]:
        """Cuts documents so that a row has all of a part, unless they are joined."""
        if self.spec.packing == "concat":
            return parts, moved
        row_tokens = self.spec.row_tokens
        cut = cut_parts(parts, np.where(moved, row_tokens - FIM_TOKENS, row_tokens))
        return cut, moved[np.argsort(parts.wholes)][cut.wholes]


def causal_columns(rows: FilledRows, spec: Gpt, pad_id: int) -> tuple[dict[str, Column], Bools]:
    """Returns the features of rows, and `[num_rows, max_seq_length] bool`: what has a label.

    As `recordmill.reader.transforms`' `causal_labels` makes them of the same rows.

    Args:
      rows: of `row_tokens` tokens at most.
      spec: which features.
      pad_id: where there is no token, or no label.
    """
    if spec.format == "seqio":
        real = np.arange(rows.ids.shape[1], dtype=np.int32) < rows.lengths[:, None]
        return {"targets": ragged(rows.ids, rows.lengths)}, real
    length = spec.max_seq_length
    all_labelled = np.arange(length, dtype=np.int32) < rows.lengths[:, None] - 1
    labelled = all_labelled.copy()
    inputs, segments, positions = (
        values[:, :length] for values in (rows.ids, rows.segments, rows.positions)
    )
    if not spec.labels_cross:
        labelled &= segments == _following(rows.segments, 0, length)
    if spec.loss_mask:
        labelled &= _following(rows.answers, False, length)
    next_tokens = _following(rows.ids, pad_id, length)
    labels = np.where(labelled, next_tokens, np.int32(pad_id))
    if spec.format == "maxtext":
        return {
            "inputs": inputs,
            "inputs_segmentation": segments,
            "inputs_position": positions,
            "targets": labels,
            "targets_segmentation": np.where(labelled, segments, 0),
            "targets_position": np.where(labelled, positions, 0),
        }, labelled
    made: dict[str, Column] = {"input_ids": inputs, "input_mask": labelled, "labels": labels}
    if spec.loss_mask:  # prompts are there to be read, and only not to be predicted
        made["labels"] = np.where(all_labelled, next_tokens, np.int32(pad_id))
    if spec.use_segment_ids:
        made["segment_ids"] = segments
    if spec.use_position_id:
        made["position_ids"] = positions
    return made, labelled


def packed_columns(rows: FilledRows, spec: Gpt) -> dict[str, Column]:
    """Returns the features of `causal_columns` where every token is the label of the one before it.

    Then ids and labels have all but one token of a row in common, and become varints once.

    Args:
      rows: of `max_seq_length + 1` tokens at most.
      spec: labels cross documents, and prompts have labels.
    """
    count, length = len(rows.ids), spec.max_seq_length
    pool, bounds = np.empty(5 * rows.ids.size + 4, np.uint8), np.empty((4, count), np.int64)
    pack_rows(rows.ids, pool, bounds)
    begins, seconds, lasts, ends = bounds
    splits = np.arange(count + 1, dtype=np.int64)
    mask = np.repeat(np.array([1, 0], np.uint8), length)  # of all rows: each has ones, then zeros
    unlabelled = length + 1 - rows.lengths.astype(np.int64)
    made: dict[str, Column] = {
        "input_ids": Packed(pool, begins, lasts - begins, splits),
        "input_mask": Packed(mask, unlabelled, np.full(count, length), splits),
        "labels": Packed(pool, seconds, ends - seconds, splits),
    }
    if spec.use_position_id:
        made["position_ids"] = rows.positions[:, :length]
    return made


def _following(values: npt.NDArray[Any], last: int | bool, length: int) -> npt.NDArray[Any]:
    """Returns what follows each of the first positions of a row, and `last` behind its end."""
    if values.shape[1] > length:
        return values[:, 1 : length + 1]
    moved = np.full_like(values, last)
    moved[:, :-1] = values[:, 1:]
    return moved


def ragged(ids: Int32s, lengths: Int32s) -> Ragged:
    """Returns rows without what is behind their tokens.

    Args:
      ids: `[num_rows, width] int32`.
      lengths: `[num_rows] int32`.
    """
    real = np.arange(ids.shape[1], dtype=np.int32) < lengths[:, None]
    return Ragged(ids[real], np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
