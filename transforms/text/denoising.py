"""Encoder-decoder models: rows of documents with spans to be filled, as T5 and UL2 have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from recordmill.records import text_formats as formats
from recordmill.records.arrays import Int32s, Int64s
from recordmill.records.codec.encoding import Column
from recordmill.records.errors import UsageError
from recordmill.records.hashing import U64, seed_for
from recordmill.records.schema import Schema
from recordmill.transforms.text.causal import ragged
from recordmill.transforms.text.chunks import Chunks
from recordmill.transforms.text.corruption import CorruptedRows, corrupt_rows, draw_rows
from recordmill.transforms.text.objective import (
    ExampleBatch,
    OutputBytes,
    SpecialIds,
    with_kept_fields,
)
from recordmill.transforms.text.packed_rows import RowObjective
from recordmill.transforms.text.text_spec import T5, T5Tokens, Ul2

_BYTES_AROUND = 100  # of a record: names of features, lengths, checksums


@dataclass(frozen=True)
class CorruptionObjective(RowObjective):
    """Rows with spans of noise: `formats.corrupted`.

    Attributes:
      row_end_id: behind inputs and targets.
      start_id: of decoder inputs.
      sentinel_ids: of the first span of a row, the second, …
      mode_ids: that the inputs of each denoiser begin with; () for nothing.

    Raises:
      UsageError: there are too few sentinels.
    """

    spec: T5 | Ul2
    row_end_id: int = 1
    start_id: int = 0
    sentinel_ids: tuple[int, ...] = ()
    mode_ids: tuple[int, ...] = ()

    useless_tokens: ClassVar[int] = 1  # nothing of one token can be noise

    def __post_init__(self) -> None:
        spec = self.spec.corruption
        most = spec.most_spans
        if len(self.sentinel_ids) < most:
            raise UsageError(
                f"rows of --max_seq_length={spec.inputs_length} may have {most} spans, "
                f"and the vocabulary has {len(self.sentinel_ids)} sentinels; use a smaller one, a "
                "higher --mean_noise_span_length, or --first_sentinel_id"
            )
        _ = self.schema  # a kept field may have the name of a feature

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of padding and of the end of text."""
        return tuple(sorted({*super().special_ids, self.row_end_id}))

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        schema = formats.corrupted(
            inputs_length=self.spec.corruption.inputs_length,
            targets_length=self.spec.corruption.targets_length,
            form=self.spec.format,
        )
        return with_kept_fields(schema, self.row.keep_fields, self.spec.name)

    @cached_property
    def _ids(self) -> SpecialIds:
        return SpecialIds(self.vocabulary)

    @cached_property
    def _sentinels(self) -> Int32s:
        return np.array(self.sentinel_ids, np.int32)

    def estimate_output_bytes(self, chunks: Chunks) -> OutputBytes:
        """An id takes two bytes or three; padding takes one in each feature."""
        rows = self.count_rows(chunks)
        spec = self.spec.corruption
        own = chunks.token_counts * 2.8 + rows * _BYTES_AROUND
        if self.spec.format == "cerebras":
            own += rows * (2 * spec.inputs_length + 8 * spec.targets_length + _BYTES_AROUND)
        return np.asarray((own + rows * self.kept_bytes(chunks)) * self.copies, np.float64)

    def examples(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[ExampleBatch]:
        """See `Objective`."""
        for batch in self.row_batches(chunks, chosen, copies):
            rows = batch.rows
            made, denoisers = self._corrupt(rows.ids, rows.lengths, batch.keys)
            counts = batch.counts | {
                "unknown_tokens": self._ids.count_unknown(rows.ids),
                "noise_tokens": made.noise_tokens,
                "noise_spans": made.noise_spans,
            }
            if len(self.spec.corruption.denoisers) > 1:
                for number, count in enumerate(np.bincount(denoisers).tolist()):
                    counts[f"denoiser_{number}_examples"] = count
            columns = corrupted_columns(
                made, form=self.spec.format, end_id=self.row_end_id, start_id=self.start_id,
                pad_id=self.pad_id,
            )  # fmt: skip
            yield ExampleBatch(columns | batch.kept, rows.lengths, counts)

    def _corrupt(self, ids: Int32s, lengths: Int32s, keys: U64) -> tuple[CorruptedRows, Int64s]:
        spec = self.spec.corruption
        states, denoisers = draw_rows(
            keys, spec=spec, seed=seed_for(self.seed, "spans"),
            choice_seed=seed_for(self.seed, "denoisers"),
        )  # fmt: skip
        made = corrupt_rows(ids, lengths, states, denoisers, spec=spec, sentinels=self._sentinels)
        if self.mode_ids:
            modes = np.array(self.mode_ids, np.int32)[denoisers]
            inputs = np.concatenate([modes[:, None], made.inputs[:, :-1]], axis=1)
            made = replace(made, inputs=inputs, input_lengths=made.input_lengths + np.int32(1))
        return made, denoisers


def corrupted_columns(
    made: CorruptedRows, *, form: str, end_id: int, start_id: int, pad_id: int
) -> dict[str, Column]:
    """Returns the features of corrupted rows, as the reader's `corrupt_spans` names them.

    Args:
      made: from `corrupt_rows`.
      form: "seqio" or "cerebras". As in Cerebras' Model Zoo, its inputs have no end.
      end_id: behind targets, and behind the inputs of "seqio".
      start_id: of decoder inputs.
      pad_id: behind the tokens.
    """
    targets, target_lengths = _with_end(made.targets, made.target_lengths, end_id, pad_id)
    if form == "seqio":
        inputs, input_lengths = _with_end(made.inputs, made.input_lengths, end_id, pad_id)
        return {"inputs": ragged(inputs, input_lengths), "targets": ragged(targets, target_lengths)}
    real_inputs = _real(made.inputs, made.input_lengths)
    real_targets = _real(targets, target_lengths)
    shifted = np.concatenate(
        [np.full((len(targets), 1), start_id, np.int32), targets[:, :-1]], axis=1
    )
    scales = np.float32(1) / target_lengths.astype(np.float32)
    return {
        "encoder_input_ids": np.where(real_inputs, made.inputs, np.int32(pad_id)),
        "encoder_mask": ~real_inputs,
        "encoder_input_length": made.input_lengths,
        "decoder_input_ids": np.where(real_targets, shifted, np.int32(pad_id)),
        "decoder_mask": ~real_targets,
        "decoder_input_length": target_lengths,
        "labels": targets,
        "loss_scale": np.tile(scales[:, None], (1, targets.shape[1])),
    }


def _real(ids: Int32s, lengths: Int32s) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.arange(ids.shape[1], dtype=np.int32) < lengths[:, None]


def _with_end(ids: Int32s, lengths: Int32s, end_id: int, pad_id: int) -> tuple[Int32s, Int32s]:
    """Returns rows with an end behind their tokens, and their lengths then."""
    columns = np.arange(ids.shape[1], dtype=np.int32)
    ended = np.where(columns < lengths[:, None], ids, np.int32(pad_id))
    ended[np.arange(len(ids)), lengths] = end_id
    return ended, lengths + np.int32(1)


@dataclass(frozen=True)
class CorruptionTokensObjective(RowObjective):
    """Unmasked rows, which the reader corrupts: `formats.corruption_tokens`."""

    spec: T5Tokens

    useless_tokens: ClassVar[int] = 1  # nothing of one token can be noise

    def __post_init__(self) -> None:
        _ = self.schema  # a kept field may have the name of a feature

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        return with_kept_fields(formats.corruption_tokens(), self.row.keep_fields, "t5_tokens")

    @cached_property
    def _ids(self) -> SpecialIds:
        return SpecialIds(self.vocabulary)

    def estimate_output_bytes(self, chunks: Chunks) -> OutputBytes:
        """An id takes two bytes or three."""
        rows = self.count_rows(chunks)
        own = chunks.token_counts * 2.3 + rows * (_BYTES_AROUND + self.kept_bytes(chunks))
        return np.asarray(own * self.copies, np.float64)

    def examples(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[ExampleBatch]:
        """See `Objective`."""
        for batch in self.row_batches(chunks, chosen, copies):
            rows = batch.rows
            counts = batch.counts | {"unknown_tokens": self._ids.count_unknown(rows.ids)}
            columns: dict[str, Column] = {"targets": ragged(rows.ids, rows.lengths)}
            yield ExampleBatch(columns | batch.kept, rows.lengths, counts)
