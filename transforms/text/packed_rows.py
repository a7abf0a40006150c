"""The base of objectives whose examples are rows of documents: `gpt`, `t5` and its relatives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.encoding import Column
from recordmill.records.hashing import U64, seed_for
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.subwords.tokenizer import Tokenizer
from recordmill.transforms.text.chunks import CHUNK_PURPOSE, Chunks, CutSpec
from recordmill.transforms.text.objective import OutputBytes, in_order_of_keys, kept_columns
from recordmill.transforms.text.packing import (
    FilledRows,
    Parts,
    count_cut,
    fill_rows,
    pack,
    whole_parts,
)
from recordmill.transforms.text.text_spec import Packable

CHUNK_ROWS = 32  # a chunk is worth about so many rows
_BATCH_TOKENS = 1 << 18
_WHOLE_TEXTS = 1 << 40  # tokens of a text that is not cut


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows in the order in which they are written.

    Attributes:
      rows: their tokens.
      keys: `[num_rows] uint64`.
      kept: the kept fields of their documents.
      counts: of documents; those of a block come with its first rows.
    """

    rows: FilledRows
    keys: U64
    kept: dict[str, Column]
    counts: dict[str, int]


@dataclass(frozen=True)
class RowObjective:
    """Documents in rows of tokens, each behind the other where they are packed.

    Attributes:
      vocabulary: that ids are of.
      seed: of every random choice.
      copies: how often each document is used.
      spec: its options.
      row: what is read of records beside their text.
      pad_id: behind the tokens of a row.
      end_id: behind each document; None for nothing.
    """

    vocabulary: Tokenizer
    seed: int
    copies: int
    spec: Packable
    row: RowSpec = field(default_factory=RowSpec)
    pad_id: int = 0
    end_id: int | None = None

    wants_partners: ClassVar[bool] = False

    # A row that has no more tokens is left out, and counted as `rows_too_short`.
    useless_tokens: ClassVar[int] = 0

    @property
    def around(self) -> tuple[int, int]:
        """Ids before and behind each document in a row; -1 for none."""
        return -1, -1

    @property
    def with_spans(self) -> bool:
        """Whether segments, positions and answers of rows are used."""
        return False

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of padding and of the end of text."""
        return tuple(sorted({self.pad_id} | ({self.end_id} if self.end_id is not None else set())))

    @property
    def _overhead(self) -> int:
        return sum(token >= 0 for token in self.around)

    @cached_property
    def cut(self) -> CutSpec:
        """Chunks of whole rows; a document with a prompt is one chunk."""
        tokens = CHUNK_ROWS * (self.spec.row_tokens - self._overhead)
        if self.row.prompt_field:
            return CutSpec(tokens, _WHOLE_TEXTS, row_texts=2, end_id=self.end_id)
        return CutSpec(tokens, end_id=self.end_id)

    def count_rows(self, chunks: Chunks) -> OutputBytes:
        """Returns `[num_chunks] float64`: the rows of one copy, of packed chunks their shares."""
        rows = chunks.token_counts / self.spec.row_tokens
        return np.asarray(np.ceil(rows) if self.spec.packing == "none" else rows, np.float64)

    def kept_bytes(self, chunks: Chunks) -> Any:
        """Returns the bytes of kept fields in a row of each chunk."""
        if chunks.fields is None:
            return 0.0
        return chunks.fields.sizes + 8.0 * len(self.row.keep_fields)

    def row_batches(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[RowBatch]:
        """Packs the chosen chunks, each in the given copy, and yields their rows."""
        if not len(chosen):
            return
        ids, parts, counts = self._prepare(chunks.ids, whole_parts(chunks, chosen, copies))
        # A full chunk may be one of several: then its document goes on, and has no end there. It
        # has whole rows of tokens, so that rows of its own are full, but where a middle is moved.
        is_open = chunks.token_counts[parts.chunks] == self.cut.chunk_tokens
        packed = pack(
            parts, packing=self.spec.packing, capacity=self.spec.row_tokens,
            overhead=self._overhead, is_open=None if self.end_id is None else is_open,
        )  # fmt: skip
        counts |= count_cut(packed, chunks, seed_for(self.seed, CHUNK_PURPOSE))
        if self.useless_tokens:
            num_rows = len(packed)
            packed = packed.longer_than(self.useless_tokens)
            counts["rows_too_short"] = num_rows - len(packed)
        answer_starts = self._answer_starts(chunks, packed.parts)
        most = max(1, _BATCH_TOKENS // self.spec.row_tokens)
        orders = in_order_of_keys(packed.keys, most)
        for order in orders if len(packed) else (np.zeros(0, np.int64),):  # with the counts
            rows = fill_rows(
                ids, packed, order, width=self.spec.row_tokens, pad_id=self.pad_id,
                around=self.around, answer_starts=answer_starts, with_spans=self.with_spans,
            )  # fmt: skip
            first_parts = packed.splits[:-1][order]
            kept = kept_columns(chunks, packed.parts.chunks[first_parts], self.row.keep_fields)
            yield RowBatch(rows, packed.keys[order], kept, counts)
            counts = {}

    def _prepare(self, ids: Any, parts: Parts) -> tuple[Any, Parts, dict[str, int]]:
        """Returns tokens, the parts of them that are packed, and counts: a place for changes."""
        return ids, parts, {}

    def _answer_starts(self, chunks: Chunks, parts: Parts) -> Int64s | None:
        """Returns where the prompt of each part ends; None without prompts."""
        if not self.row.prompt_field:
            return None
        prompts = chunks.sentence_lengths[chunks.sentence_splits[:-1]]
        return np.asarray((chunks.token_starts + prompts)[parts.chunks], np.int64)
