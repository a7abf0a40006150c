"""Masked language modelling on rows of several documents, each with its [CLS] and [SEP]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from recordmill.records import text_formats as formats
from recordmill.records.arrays import Int64s
from recordmill.records.hashing import seed_for
from recordmill.records.schema import Schema
from recordmill.transforms.text.chunks import Chunks
from recordmill.transforms.text.masked_columns import (
    mask_columns,
    mask_counts,
    masked_example_bytes,
)
from recordmill.transforms.text.masking import mask_tokens
from recordmill.transforms.text.objective import (
    ExampleBatch,
    OutputBytes,
    SpecialIds,
    v2_named,
)
from recordmill.transforms.text.packed_rows import RowObjective
from recordmill.transforms.text.text_spec import Mlm


@dataclass(frozen=True)
class PackedMlmObjective(RowObjective):
    """Masked rows of documents: `formats.mlm`."""

    spec: Mlm

    @cached_property
    def around(self) -> tuple[int, int]:
        """[CLS] and [SEP], around each document of a row."""
        return self._ids.cls, self._ids.sep

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        return formats.mlm(
            max_seq_length=self.spec.max_seq_length,
            max_predictions_per_seq=self.spec.most_predictions,
            use_v2_feature_names=self.spec.use_v2_feature_names,
            use_segment_ids=self.spec.use_segment_ids,
            use_position_id=self.spec.use_position_id,
            packed=True,
        )

    @cached_property
    def _ids(self) -> SpecialIds:
        return SpecialIds(self.vocabulary)

    def estimate_output_bytes(self, chunks: Chunks) -> OutputBytes:
        """The shares of chunks in rows."""
        spec = self.spec
        features = 2 + spec.use_segment_ids + spec.use_position_id  # of three in the sum below
        return masked_example_bytes(
            self.count_rows(chunks) * self.copies,
            chunks.token_counts * self.copies,
            features * self.spec.max_seq_length // 3 + 1,
            self.spec.most_predictions,
        )

    @property
    def with_spans(self) -> bool:
        """Whether segments and positions of rows are used."""
        return self.spec.use_segment_ids or self.spec.use_position_id

    def examples(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[ExampleBatch]:
        """See `Objective`."""
        kinds = self._ids.kinds
        for batch in self.row_batches(chunks, chosen, copies):
            rows = batch.rows
            counts = batch.counts | {"unknown_tokens": self._ids.count_unknown(rows.ids)}
            predictions = mask_tokens(
                rows.ids, rows.lengths, batch.keys, kinds=kinds, spec=self.spec,
                seed=seed_for(self.seed, "masks"),
            )  # fmt: skip
            counts |= mask_counts(rows.ids, predictions, kinds.mask_id)
            columns = mask_columns(rows.ids, rows.lengths, predictions)
            if self.spec.use_segment_ids:
                columns["segment_ids"] = rows.segments
            if self.spec.use_position_id:
                columns["position_ids"] = rows.positions
            if self.spec.use_v2_feature_names:
                columns = v2_named(columns)
            yield ExampleBatch(columns, rows.lengths, counts)
