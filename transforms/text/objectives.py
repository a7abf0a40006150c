"""Objectives of pretraining: what examples a job makes of chunks.

Everything else (reading, scatter, shards, restart) is the same for all objectives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from recordmill.records import text_formats as formats
from recordmill.records.arrays import Bools, Int64s
from recordmill.records.codec.encoding import Column, Strings
from recordmill.records.hashing import seed_for
from recordmill.records.schema import Schema
from recordmill.transforms.sources.kept_fields import KeptField
from recordmill.transforms.subwords.tokenizer import Ids, Tokenizer
from recordmill.transforms.text.chunks import CHUNK_PURPOSE, Chunks, CutSpec
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
    in_order_of_keys,
    kept_columns,
    v2_named,
    with_kept_fields,
)
from recordmill.transforms.text.pairing import (
    count_pairs,
    fill_pairs,
    plan_pairs,
    segment_tokens,
)
from recordmill.transforms.text.text_spec import Bert, Mlm, MlmTokens, Windowed
from recordmill.transforms.text.windows import (
    count_windows,
    fill_windows,
    join_documents,
    plan_windows,
    window_tokens,
)

_CHUNK_EXAMPLES = 32  # a chunk is worth about so many examples

_LABEL_COUNTS: dict[str, Callable[[Bools], dict[str, int]]] = {
    "next": lambda label: {"random_next": int(label.sum())},
    "order": lambda label: {"swapped_segments": int(label.sum())},
    "none": lambda _: {},
}


@dataclass(frozen=True)
class BertObjective:
    """Masked sentence pairs with next-sentence labels: `formats.bert`."""

    vocabulary: Tokenizer
    seed: int
    copies: int
    spec: Bert

    @property
    def wants_partners(self) -> bool:
        """Whether second segments are drawn from other documents."""
        return self.spec.second_segment == "next"

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        return formats.bert(
            max_seq_length=self.spec.max_seq_length,
            max_predictions_per_seq=self.spec.most_predictions,
            use_v2_feature_names=self.spec.use_v2_feature_names,
            use_position_id=self.spec.use_position_id,
            second_segment=self.spec.second_segment,
        )

    @property
    def cut(self) -> CutSpec:
        """Chunks of whole sentences; one sentence never fills more than an example."""
        most = segment_tokens(self.spec)
        return CutSpec(chunk_tokens=_CHUNK_EXAMPLES * most, sentence_tokens=most)

    @cached_property
    def _ids(self) -> SpecialIds:
        return SpecialIds(self.vocabulary)

    def estimate_output_bytes(self, chunks: Chunks) -> OutputBytes:
        """Counts the instances exactly; only the lengths of random second segments are guessed."""
        seed = seed_for(self.seed, "pairs")
        counts = sum(
            count_pairs(chunks, copy, spec=self.spec, seed=seed) for copy in range(self.copies)
        )
        length = self.spec.max_seq_length * (2 if self.spec.use_position_id else 1)
        tokens = np.minimum(counts * self.spec.max_seq_length, chunks.token_counts * self.copies)
        return masked_example_bytes(counts, tokens, length, self.spec.most_predictions)

    def examples(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[ExampleBatch]:
        """See `Objective`."""
        pairs = plan_pairs(
            chunks, chosen, copies, spec=self.spec, seed=seed_for(self.seed, "pairs")
        )
        kinds = self._ids.kinds
        for order in in_order_of_keys(pairs.keys):
            ids, segments, lengths = fill_pairs(
                chunks, pairs, order, spec=self.spec, cls_id=self._ids.cls, sep_id=self._ids.sep
            )
            unknown = self._ids.count_unknown(ids)
            predictions = mask_tokens(
                ids, lengths, pairs.keys[order], kinds=kinds, spec=self.spec,
                seed=seed_for(self.seed, "masks"),
            )  # fmt: skip
            label = pairs.labels[order]
            columns = mask_columns(ids, lengths, predictions) | {"segment_ids": segments}
            if self.spec.second_segment != "none":
                columns["next_sentence_labels"] = label[:, None].astype(np.int32)
            if self.spec.use_position_id:
                columns["position_ids"] = np.tile(
                    np.arange(ids.shape[1], dtype=np.int32), (len(ids), 1)
                )
            if self.spec.use_v2_feature_names:
                columns = v2_named(columns)
            counts = mask_counts(ids, predictions, kinds.mask_id)
            counts |= _LABEL_COUNTS[self.spec.second_segment](label) | {"unknown_tokens": unknown}
            yield ExampleBatch(columns, lengths, counts)


@dataclass(frozen=True)
class _WindowObjective:
    """The base of `mlm` and `mlm_tokens`: windows over documents or across them."""

    vocabulary: Tokenizer
    seed: int
    copies: int
    spec: Windowed
    keep_fields: tuple[KeptField, ...] = ()

    wants_partners: ClassVar[bool] = False

    @property
    def cut(self) -> CutSpec:
        """Chunks of whole windows."""
        overlap = self.spec.overlap
        step = window_tokens(self.spec) - overlap
        return CutSpec(chunk_tokens=_CHUNK_EXAMPLES * step + overlap, overlap_tokens=overlap)

    @cached_property
    def _ids(self) -> SpecialIds:
        return SpecialIds(self.vocabulary)

    def _kept_bytes(self, chunks: Chunks) -> Any:
        """Returns the bytes that the kept fields of all windows of each chunk take."""
        if chunks.fields is None:
            return 0.0
        return self._counts(chunks) * (chunks.fields.sizes + 8.0 * len(self.keep_fields))

    def _counts(self, chunks: Chunks) -> Any:
        if self.spec.allow_cross_document_examples:
            step = window_tokens(self.spec) - self.spec.overlap
            return (chunks.token_counts + 1) * (self.copies / step)
        seed = seed_for(self.seed, "windows")
        return sum(
            count_windows(chunks, copy, spec=self.spec, seed=seed) for copy in range(self.copies)
        )

    def _windows(
        self, chunks: Chunks, chosen: Int64s, copies: Int64s
    ) -> Iterator[tuple[Ids, Ids, npt.NDArray[np.uint64], dict[str, Column], dict[str, int]]]:
        """Yields ids, lengths, keys and kept fields, and with the first ones counts of all."""
        if not len(chosen):
            return
        # A chunk repeats the end of the one before, as a window does.
        is_first = chunks.are_first(seed_for(self.seed, CHUNK_PURPOSE))[chosen]
        repeated = self.spec.overlap * int(np.count_nonzero(~is_first))
        if self.spec.allow_cross_document_examples:
            chunks, copies = join_documents(chunks, chosen, copies, sep_id=self._ids.sep)
            chosen = np.arange(len(copies))
        seed = seed_for(self.seed, "windows")
        windows = plan_windows(chunks, chosen, copies, spec=self.spec, seed=seed)
        repeated += int(windows.lengths.sum() - chunks.token_counts[chosen].sum())
        counts = {"repeated_tokens": repeated}
        for order in in_order_of_keys(windows.keys):
            ids, lengths = fill_windows(
                chunks, windows, order, spec=self.spec,
                cls_id=self._ids.cls, sep_id=self._ids.sep,
            )  # fmt: skip
            kept = kept_columns(chunks, windows.chunks[order], self.keep_fields)
            yield ids, lengths, windows.keys[order], kept, counts
            counts = {}


@dataclass(frozen=True)
class MlmObjective(_WindowObjective):
    """Masked windows without segments: `formats.mlm`."""

    spec: Mlm

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        schema = formats.mlm(
            max_seq_length=self.spec.max_seq_length,
            max_predictions_per_seq=self.spec.most_predictions,
            use_v2_feature_names=self.spec.use_v2_feature_names,
            use_segment_ids=self.spec.use_segment_ids,
        )
        return with_kept_fields(schema, self.keep_fields, "mlm")

    def estimate_output_bytes(self, chunks: Chunks) -> OutputBytes:
        """Counts the windows exactly, unless they cross documents."""
        length, predictions = self.spec.max_seq_length, self.spec.most_predictions
        rows = 3 if self.spec.use_segment_ids else 2  # of the three that the sum below has
        tokens = chunks.token_counts * self.copies
        own = masked_example_bytes(
            self._counts(chunks), tokens, rows * length // 3 + 1, predictions
        )
        return own + self._kept_bytes(chunks)

    def examples(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[ExampleBatch]:
        """See `Objective`."""
        kinds = self._ids.kinds
        for ids, lengths, keys, kept, counts in self._windows(chunks, chosen, copies):
            unknown = self._ids.count_unknown(ids)
            predictions = mask_tokens(
                ids, lengths, keys, kinds=kinds, spec=self.spec, seed=seed_for(self.seed, "masks")
            )
            counts |= mask_counts(ids, predictions, kinds.mask_id) | {"unknown_tokens": unknown}
            columns = mask_columns(ids, lengths, predictions)
            if self.spec.use_segment_ids:
                columns["segment_ids"] = np.zeros(ids.shape, np.int32)
            if self.spec.use_v2_feature_names:
                columns = v2_named(columns)
            yield ExampleBatch(columns | kept, lengths, counts)


@dataclass(frozen=True)
class MlmTokensObjective(_WindowObjective):
    """Unmasked word pieces: `formats.mlm_tokens`."""

    spec: MlmTokens

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        schema = formats.mlm_tokens(record_type=self.spec.record_type)
        return with_kept_fields(schema, self.keep_fields, "mlm_tokens")

    @cached_property
    def _spellings(self) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
        tokens = [token.encode() for token in self.vocabulary.tokens]
        lengths = np.array([len(token) for token in tokens], np.int64)
        pool = np.frombuffer(b"".join(tokens), np.uint8)
        return pool, np.cumsum(lengths) - lengths, lengths

    def estimate_output_bytes(self, chunks: Chunks) -> OutputBytes:
        """Counts the windows; a token takes its spelling and what its record has around it."""
        around = 6 if self.spec.record_type == "sequence_example" else 2
        tokens = chunks.token_counts * (self.copies * (4.5 + around))
        own = np.asarray(self._counts(chunks) * 60.0 + tokens, np.float64)
        return own + self._kept_bytes(chunks)

    def examples(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[ExampleBatch]:
        """See `Objective`."""
        pool, starts, sizes = self._spellings
        for ids, lengths, _, kept, counts in self._windows(chunks, chosen, copies):
            flat = ids[np.arange(ids.shape[1]) < lengths[:, None]]
            splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            column = Strings(pool, starts[flat], sizes[flat], splits)
            counts |= {"unknown_tokens": self._ids.count_unknown(flat)}
            yield ExampleBatch({"tokens": column, **kept}, lengths, counts)
