"""Text classification: a row becomes one example, as in google-research/bert's run_classifier.

A row has one text or two. Two that are too long together are cut from the end of the longer one, as
BERT's `_truncate_seq_pair` does (Devlin et al. 2019, arXiv:1810.04805).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from recordmill.records import text_formats as formats
from recordmill.records.arrays import Int64s
from recordmill.records.codec.encoding import Column
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.schema import Schema
from recordmill.transforms.dataset.labels import named_label
from recordmill.transforms.sources.row_fields import LabelSpec, RowSpec
from recordmill.transforms.subwords.tokenizer import Ids, Tokenizer
from recordmill.transforms.text.chunks import ChunkColumns, Chunks, CutSpec
from recordmill.transforms.text.objective import (
    ExampleBatch,
    OutputBytes,
    SpecialIds,
    columns_of_texts,
    in_order_of_keys,
    v2_named,
    with_kept_fields,
)
from recordmill.transforms.text.text_spec import Classify

_BYTES_AROUND = 150  # of a record: names of features, lengths, checksums


@subroutine
def truncated_lengths(first: int, second: int, most: int) -> tuple[int, int]:
    """Returns how many tokens of two texts are used: `_truncate_seq_pair` without its loop."""
    if first + second <= most:
        return first, second
    if second <= most // 2:
        return most - second, second
    if first <= most - most // 2:
        return first, most - first
    return most - most // 2, most // 2


@kernel
def _fill_rows(
    chunks: ChunkColumns, ids: Ids, chosen: Int64s, cls_id: int, sep_id: int,
    out: Ids, segments: Ids, lengths: Ids,
) -> int:  # fmt: skip
    """Fills a row of ids for each chosen chunk; returns how many did not fit whole."""
    _, _, starts, _, splits, text_lengths = chunks
    cut = 0
    for row in range(chosen.shape[0]):
        i = chosen[row]
        first = text_lengths[splits[i]]
        second = 0
        if splits[i + 1] - splits[i] > 1:
            second = text_lengths[splits[i] + 1]
        most = out.shape[1] - (3 if second > 0 else 2)
        size, second_size = truncated_lengths(first, second, most)
        cut += size < first or second_size < second
        out[row, 0] = cls_id
        for j in range(size):
            out[row, 1 + j] = ids[starts[i] + j]
        at = 1 + size
        out[row, at] = sep_id
        at += 1
        if second_size > 0:
            for j in range(second_size):
                out[row, at + j] = ids[starts[i] + first + j]
                segments[row, at + j] = 1
            at += second_size
            out[row, at] = sep_id
            segments[row, at] = 1
            at += 1
        lengths[row] = at
    return cut


@dataclass(frozen=True)
class ClassifyObjective:
    """Rows of one text or two with a label: `formats.classify`.

    Attributes:
      vocabulary: that ids are of.
      copies: 1, because a copy of a row would be the same.
      spec: its options.
      row: what is read of them; its label is given.
      classes: the names of class 0, 1, …; () before the input was read, and of numbers.
    """

    vocabulary: Tokenizer
    copies: int
    spec: Classify
    row: RowSpec = field(default_factory=lambda: RowSpec(LabelSpec("label")))
    classes: tuple[str, ...] = ()

    wants_partners: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = self.schema  # a kept field may have the name of a feature

    @property
    def _is_number(self) -> bool:
        return self.row.label is not None and self.row.label.is_number

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        schema = formats.classify(
            max_seq_length=self.spec.max_seq_length,
            classes=self.classes,
            is_number=self._is_number,
            use_v2_feature_names=self.spec.use_v2_feature_names,
        )
        return with_kept_fields(schema, self.row.keep_fields, "classify")

    @property
    def cut(self) -> CutSpec:
        """A chunk for each row. What no example holds is left out, but for some tokens that tell
        whether a text was longer.
        """
        length = self.spec.max_seq_length
        texts = 2 if self.row.pair_field else 1
        return CutSpec(chunk_tokens=texts * length, sentence_tokens=length, row_texts=texts)

    @cached_property
    def _ids(self) -> SpecialIds:
        return SpecialIds(self.vocabulary)

    def estimate_output_bytes(self, chunks: Chunks) -> OutputBytes:
        """A position takes a byte in each of three features, and an id of a token mostly two."""
        length = self.spec.max_seq_length
        fields = 0 if chunks.fields is None else chunks.fields.sizes
        used = np.minimum(chunks.token_counts, length)
        return np.asarray(3.0 * length + used + fields + _BYTES_AROUND, np.float64)

    def examples(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[ExampleBatch]:
        """See `Objective`."""
        del copies  # there is one
        for order in in_order_of_keys(chunks.hashes[chosen]):
            yield self._batch(chunks, chosen[order])

    def _batch(self, chunks: Chunks, chosen: Int64s) -> ExampleBatch:
        size = len(chosen), self.spec.max_seq_length
        ids, segments = np.zeros(size, np.int32), np.zeros(size, np.int32)
        lengths = np.empty(len(chosen), np.int32)
        cut = _fill_rows(
            chunks.columns, chunks.ids, chosen, self._ids.cls, self._ids.sep, ids, segments, lengths
        )
        texts = chunks.fields.texts(chosen) if chunks.fields else []
        labels = [row[0] for row in texts]
        if not self._is_number:  # 1.0 may be class 1
            labels = [named_label(label, self._numbers) for label in labels]
        columns: dict[str, Column] = {
            "input_ids": ids,
            "input_mask": np.arange(size[1], dtype=np.int32) < lengths[:, None],
            "segment_ids": segments,
            "is_real_example": np.ones(len(chosen), np.int64),
            "label_ids": self._label_column(labels),
        }
        if self.spec.use_v2_feature_names:
            columns = v2_named(columns)
        columns |= columns_of_texts([row[1:] for row in texts], self.row.keep_fields)
        counts = {"cut_examples": int(cut), "unknown_tokens": self._ids.count_unknown(ids)}
        return ExampleBatch(columns, lengths, counts, {} if self._is_number else Counter(labels))

    def _label_column(self, labels: list[str]) -> Column:
        if self._is_number:
            return np.array([float(label) for label in labels], np.float32)
        return np.array([self._numbers[label] for label in labels], np.int64)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.classes)}
