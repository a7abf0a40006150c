"""Chunks: parts of documents that become examples on their own, and that scatter writes.

A document of any length is cut into chunks of some thousand tokens, so that shards can be of equal
size and memory does not depend on the longest document. Where sentences matter a chunk ends with a
sentence; where windows slide over a document, a chunk holds whole windows and repeats the overlap
with the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bools, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.randomness import mix_one
from recordmill.records.hashing import U64, combine
from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.subwords.tokenizer import Ids, Tokens
from recordmill.transforms.text.chunk_fields import ChunkFields, joined_fields, take_fields
from recordmill.transforms.text.document_ends import insert_ends


class ChunkColumns(NamedTuple):
    """The arrays of `Chunks` for kernels, without the ids.

    The dtype of the ids differs from stage to stage, so a kernel that got them without reading them
    would be compiled once for each dtype.
    """

    hashes: U64
    documents: U64
    token_starts: Int64s
    token_counts: Int64s
    sentence_splits: Int64s
    sentence_lengths: Ids


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of documents, in any order.

    Attributes:
      hashes: `[num_chunks] uint64`, uniform and stable: position in the corpus and seed of all
        draws.
      documents: `[num_chunks] uint64`: the key of the document that a chunk is part of.
      token_starts, token_counts: `[num_chunks] int64`, in `ids`; chunks may overlap.
      sentence_splits: `[num_chunks + 1] int64`, into `sentence_lengths`.
      sentence_lengths: `[num_sentences] int32`, in tokens, at least 1; of rows the lengths of their
        texts, which may be 0.
      ids: `[num_tokens]`, int32, or uint16 where the vocabulary allows it.
      fields: what chunks carry along of their documents; None where they carry nothing.
    """

    hashes: U64
    documents: U64
    token_starts: Int64s
    token_counts: Int64s
    sentence_splits: Int64s
    sentence_lengths: Ids
    ids: npt.NDArray[Any]
    fields: ChunkFields | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def size(self) -> int:
        """The tokens of all chunks, and the words of what they carry: what memory they take."""
        fields = 0 if self.fields is None else int(self.fields.counts.sum())
        return int(self.token_counts.sum()) + fields

    def are_first(self, seed: int) -> Bools:
        """Returns `[num_chunks] bool`: those that begin their documents.

        Args:
          seed: that the chunks were cut with.
        """
        numbers = np.zeros(len(self), np.uint64)
        return np.asarray(self.hashes == combine(self.documents ^ np.uint64(seed), numbers))

    @property
    def columns(self) -> ChunkColumns:
        """The arrays for kernels, without the ids."""
        return ChunkColumns(
            self.hashes, self.documents, self.token_starts, self.token_counts,
            self.sentence_splits, self.sentence_lengths,
        )  # fmt: skip


CHUNK_PURPOSE = "pieces"  # of the seed that hashes of chunks are made with


@dataclass(frozen=True, slots=True)
class CutSpec:
    """How to cut documents.

    Attributes:
      chunk_tokens: the size of a chunk; one that ends with a sentence may be longer by a sentence.
      sentence_tokens: longer sentences are cut; 0 where sentences do not matter.
      row_texts: where not 0, a document is a row of so many texts and becomes one chunk; what its
        texts have behind `sentence_tokens` is left out.
      overlap_tokens: what a chunk repeats of the one before, where sentences do not matter.
      end_id: behind the tokens of each document that has any, where sentences do not matter or
        documents are rows; None for nothing.
    """

    chunk_tokens: int
    sentence_tokens: int = 0
    overlap_tokens: int = 0
    row_texts: int = 0
    end_id: int | None = None


@subroutine
def instance_key(chunk_hash: np.uint64, copy: int, number: int) -> np.uint64:
    """Returns the key of the instance (pair or window) `number` of a copy of a chunk."""
    return mix_one(chunk_hash ^ mix_one(np.uint64(number) + (np.uint64(copy) << np.uint64(32))))


@kernel
def _cut_sentences(
    line_lengths: Any, line_documents: Int64s, most: int, lengths: Ids, documents: Int64s
) -> int:
    count = 0
    for i in range(line_lengths.shape[0]):
        rest = line_lengths[i]
        while rest > 0:
            lengths[count] = min(rest, most)
            documents[count] = line_documents[i]
            rest -= lengths[count]
            count += 1
    return count


@kernel
def _cut_at_sentences(
    lengths: Ids, documents: Int64s, chunk_tokens: int, ends: Int64s, numbers: Int64s, first: int
) -> int:
    """Greedy: a chunk is full at `chunk_tokens`. Fills the end (in sentences) of each chunk."""
    count = 0
    tokens = 0
    number = first
    for i in range(lengths.shape[0]):
        tokens += lengths[i]
        last_of_document = i + 1 == lengths.shape[0] or documents[i + 1] != documents[i]
        if tokens >= chunk_tokens or last_of_document:
            ends[count] = i + 1
            numbers[count] = number
            count += 1
            tokens = 0
            number = 0 if last_of_document else number + 1
    return count


class ChunkCutter:
    """Cuts the documents of consecutive batches; keeps the chunk of an unfinished document.

    Args:
      spec: how.
      seed: of the hashes of chunks.
      id_type: of ids where they are copied anyway; it holds all of them.
    """

    def __init__(self, spec: CutSpec, seed: int, id_type: npt.DTypeLike = np.int32) -> None:
        self._spec = spec
        self._id_type = id_type
        self._seed = np.uint64(seed)
        self._carry_ids = np.zeros(0, np.int32)
        self._carry_lengths = np.zeros(0, np.int32)
        self._next_number = 0
        self.documents = 0  # that have tokens, so far

    def cut(self, batch: DocumentBatch, tokens: Tokens, *, goes_on: bool) -> tuple[Chunks, Int64s]:
        """Returns the chunks, and for each the document in `batch` that it is of.

        Args:
          batch: documents.
          tokens: of the batch's lines.
          goes_on: the next batch continues the last document of this one.
        """
        line_lengths = np.diff(tokens.row_splits)
        if self._spec.row_texts:
            return self._cut_rows(batch, tokens, line_lengths)
        line_documents = batch.line_documents
        ids = tokens.ids
        first = 0
        if batch.continues:
            first = self._next_number
            ids = np.concatenate([self._carry_ids, ids])
            line_lengths = np.concatenate([self._carry_lengths, line_lengths])
            zeros = np.zeros(len(self._carry_lengths), np.int64)
            line_documents = np.concatenate([zeros, line_documents])
        if self._spec.sentence_tokens:
            return self._cut_at_sentences(
                batch, ids, line_lengths, line_documents, first, goes_on=goes_on
            )
        counts = np.bincount(
            line_documents, weights=line_lengths, minlength=len(batch.keys)
        ).astype(np.int64)
        if self._spec.end_id is not None:
            ids, counts = insert_ends(
                ids, counts, self._spec.end_id, goes_on=goes_on, id_type=self._id_type
            )
        return self._cut_at_tokens(batch, ids, counts, first, goes_on=goes_on)

    def _cut_rows(
        self, batch: DocumentBatch, tokens: Tokens, line_lengths: Int64s
    ) -> tuple[Chunks, Int64s]:
        """Makes a chunk of each document, whose lines are the texts of its row."""
        lengths = np.minimum(line_lengths, self._spec.sentence_tokens)
        begins = np.cumsum(lengths) - lengths
        index = np.repeat(tokens.row_splits[:-1] - begins, lengths) + np.arange(lengths.sum())
        ids = tokens.ids[index]
        lengths = lengths.reshape(len(batch.keys), self._spec.row_texts)
        counts = lengths.sum(axis=1)
        of_document = np.arange(len(batch.keys))
        if self._spec.end_id is not None:
            ids, with_ends = insert_ends(ids, counts, self._spec.end_id, goes_on=False)
            of_document = np.flatnonzero(counts)
            lengths[:, -1] += with_ends - counts
            lengths, counts = lengths[of_document], with_ends[of_document]
        rows = len(of_document)
        chunks = Chunks(
            self._hashes(batch, of_document, np.zeros(rows, np.int64)),
            batch.keys[of_document],
            np.cumsum(counts) - counts,
            counts,
            np.arange(rows + 1, dtype=np.int64) * self._spec.row_texts,
            lengths.reshape(-1).astype(np.int32),
            ids,
        )
        return chunks, of_document

    def _cut_at_sentences(
        self,
        batch: DocumentBatch,
        ids: Ids,
        line_lengths: Int64s,
        line_documents: Int64s,
        first: int,
        *,
        goes_on: bool,
    ) -> tuple[Chunks, Int64s]:
        most = len(line_lengths) + len(ids) // self._spec.sentence_tokens
        lengths, of_document = np.empty(most, np.int32), np.empty(most, np.int64)
        count = _cut_sentences(
            line_lengths, line_documents, self._spec.sentence_tokens, lengths, of_document
        )
        lengths, of_document = lengths[:count], of_document[:count]
        ends, numbers = np.empty(count, np.int64), np.empty(count, np.int64)
        count = _cut_at_sentences(
            lengths, of_document, self._spec.chunk_tokens, ends, numbers, first
        )
        splits = np.concatenate([[0], ends[:count]])
        numbers = numbers[:count]
        token_splits = np.concatenate([[0], np.cumsum(lengths)])[splits]
        if goes_on and count:
            carried = slice(splits[-2], splits[-1])
            last_document = len(batch.keys) - 1
            if of_document[splits[-2]] == last_document:
                self._carry_lengths = lengths[carried].copy()
                self._carry_ids = ids[token_splits[-2] :].copy()
                self._next_number = int(numbers[-1])
                splits, token_splits = splits[:-1], token_splits[:-1]
                numbers, count = numbers[:-1], count - 1
            else:
                self._keep_nothing()
        elif goes_on:
            self._keep_nothing(first if batch.continues and len(batch.keys) == 1 else 0)
        lengths = lengths[: splits[-1]]
        chunk_documents = of_document[splits[:-1]]
        return (
            Chunks(
                self._hashes(batch, chunk_documents, numbers),
                batch.keys[chunk_documents],
                token_splits[:-1],
                np.diff(token_splits),
                splits.astype(np.int64),
                lengths,
                ids,
            ),
            chunk_documents,
        )

    def _cut_at_tokens(
        self, batch: DocumentBatch, ids: Ids, counts: Int64s, first: int, *, goes_on: bool
    ) -> tuple[Chunks, Int64s]:
        spec = self._spec
        step = spec.chunk_tokens - spec.overlap_tokens
        starts = np.cumsum(counts) - counts
        # A chunk must have more tokens than the overlap; the first of a document may have any.
        chunks = np.maximum(-(-(counts - spec.overlap_tokens) // step), counts > 0)
        if goes_on and len(counts):
            last = len(counts) - 1
            # These chunks cannot be the last one; the rest waits for the next batch.
            chunks[last] = max(0, (counts[last] - 1) // step - 1)
        of_document = np.repeat(np.arange(len(counts)), chunks)
        numbers = np.arange(len(of_document)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
        token_starts = starts[of_document] + numbers * step
        ends = np.minimum(token_starts + spec.chunk_tokens, (starts + counts)[of_document])
        if goes_on and len(counts):
            first_of_last = first if last == 0 and batch.continues else 0
            begin = int(starts[last] + chunks[last] * step)
            self._carry_ids = ids[begin : int(starts[last] + counts[last])].copy()
            self._carry_lengths = np.array([len(self._carry_ids)], np.int32)
            self._next_number = first_of_last + int(chunks[last])
        numbers = numbers + np.where(of_document == 0, first, 0)
        sizes = ends - token_starts
        return (
            Chunks(
                self._hashes(batch, of_document, numbers),
                batch.keys[of_document],
                token_starts.astype(np.int64),
                sizes.astype(np.int64),
                np.arange(len(sizes) + 1, dtype=np.int64),
                sizes.astype(np.int32),
                ids,
            ),
            of_document,
        )

    def _keep_nothing(self, number: int = 0) -> None:
        self._carry_ids = np.zeros(0, np.int32)
        self._carry_lengths = np.zeros(0, np.int32)
        self._next_number = number

    def _hashes(
        self, batch: DocumentBatch, of_document: Int64s, numbers: Int64s
    ) -> npt.NDArray[np.uint64]:
        self.documents += int((numbers == 0).sum())
        return combine(batch.keys[of_document] ^ self._seed, numbers.astype(np.uint64))


def concatenate(parts: list[Chunks], id_type: npt.DTypeLike) -> Chunks:
    """Returns the chunks of all parts, with ids in a type that holds them."""
    if not parts:
        empty = np.zeros(0, np.int64)
        keys = np.zeros(0, np.uint64)
        return Chunks(
            keys, keys, empty, empty, np.zeros(1, np.int64), np.zeros(0, np.int32),
            np.zeros(0, id_type),
        )  # fmt: skip
    token_bases = np.cumsum([0] + [len(part.ids) for part in parts[:-1]])
    sentence_bases = np.cumsum([0] + [len(part.sentence_lengths) for part in parts[:-1]])
    return Chunks(
        np.concatenate([part.hashes for part in parts]),
        np.concatenate([part.documents for part in parts]),
        np.concatenate([p.token_starts + b for p, b in zip(parts, token_bases, strict=True)]),
        np.concatenate([part.token_counts for part in parts]),
        np.concatenate(
            [p.sentence_splits[:-1] + b for p, b in zip(parts, sentence_bases, strict=True)]
            + [[sum(len(part.sentence_lengths) for part in parts)]]
        ).astype(np.int64),
        np.concatenate([part.sentence_lengths for part in parts]),
        np.concatenate([part.ids.astype(id_type, copy=False) for part in parts]),
        joined_fields([part.fields for part in parts]),
    )


def select(chunks: Chunks, chosen: npt.NDArray[np.bool_]) -> Chunks:
    """Returns some of the chunks, over the same tokens; sentences are copied.

    Args:
      chunks: any.
      chosen: `[num_chunks] bool` or `[n] int64`.
    """
    counts = np.diff(chunks.sentence_splits)
    sentences = np.repeat(chosen, counts)
    return Chunks(
        chunks.hashes[chosen], chunks.documents[chosen], chunks.token_starts[chosen],
        chunks.token_counts[chosen],
        np.concatenate([[0], np.cumsum(counts[chosen])]).astype(np.int64),
        chunks.sentence_lengths[sentences], chunks.ids, take_fields(chunks.fields, chosen),
    )  # fmt: skip
