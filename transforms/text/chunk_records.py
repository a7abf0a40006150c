"""Chunks as rows of uint16, the records of run files:

    hash 4 | document 4 | num_sentences 2 | num_tokens 2 | sentence lengths … | ids …

with ids of two words each where the vocabulary needs it. Where chunks carry fields of their
documents, `num_words 2` stands behind num_tokens, and so many words behind the ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.transforms.shuffle.run_files import SortedRecords
from recordmill.transforms.storage.buffers import Arena
from recordmill.transforms.subwords.tokenizer import Ids
from recordmill.transforms.text.chunk_fields import ChunkFields
from recordmill.transforms.text.chunks import ChunkColumns, Chunks

Words = npt.NDArray[np.uint16]

_WORD_BYTES = 2
_HEADER_WORDS = 12
_HEADER_WORDS_WITH_FIELDS = 14


def id_words(vocab_size: int) -> int:
    """Returns how many uint16 an id takes."""
    return 1 if vocab_size <= 1 << 16 else 2


def id_type(words_per_id: int) -> npt.DTypeLike:
    """Returns the type of ids of so many uint16."""
    return np.uint16 if words_per_id == 1 else np.int32


@subroutine
def _put(out: Words, at: int, value: np.uint64, words: int) -> int:
    for i in range(words):
        out[at + i] = np.uint16(value >> np.uint64(16 * i))
    return at + words


@subroutine
def _get(data: Words, at: int, words: int) -> np.uint64:
    value = np.uint64(0)
    for i in range(words):
        value |= np.uint64(data[at + i]) << np.uint64(16 * i)
    return value


class _FieldColumns(NamedTuple):
    """The arrays of `ChunkFields`, for kernels; empty where chunks carry nothing."""

    starts: Int64s
    counts: Int64s
    words: Words


def _field_columns(fields: ChunkFields | None) -> tuple[_FieldColumns, int]:
    """Returns the arrays of fields, and the words of a record's header."""
    if fields is None:
        none = np.zeros(0, np.int64)
        return _FieldColumns(none, none, np.zeros(0, np.uint16)), _HEADER_WORDS
    return _FieldColumns(fields.starts, fields.counts, fields.words), _HEADER_WORDS_WITH_FIELDS


@kernel
def _encode(
    chunks: ChunkColumns, ids: Any, fields: _FieldColumns, order: Int64s, words_per_id: int,
    header_words: int, offsets: Int64s, out: Words,
) -> None:  # fmt: skip
    hashes, documents, starts, counts, splits, lengths = chunks
    field_starts, field_counts, field_words = fields
    for k in range(order.shape[0]):
        i = order[k]
        at = _put(out, offsets[k], hashes[i], 4)
        at = _put(out, at, documents[i], 4)
        at = _put(out, at, np.uint64(splits[i + 1] - splits[i]), 2)
        at = _put(out, at, np.uint64(counts[i]), 2)
        if header_words > 12:
            at = _put(out, at, np.uint64(field_counts[i]), 2)
        for j in range(splits[i], splits[i + 1]):
            out[at] = np.uint16(lengths[j])
            at += 1
        if words_per_id == 1:
            # Unsigned indices cannot count from the end, so the compiler copies many at once.
            to, source = np.uint64(at), np.uint64(starts[i])
            for n in range(np.uint64(counts[i])):
                out[to + n] = np.uint16(ids[source + n])
            at += counts[i]
        else:
            for j in range(starts[i], starts[i] + counts[i]):
                at = _put(out, at, np.uint64(ids[j]), 2)
        if header_words > 12:
            for j in range(field_starts[i], field_starts[i] + field_counts[i]):
                out[at] = field_words[j]
                at += 1


@kernel
def _count(
    data: Words, low: np.uint64, high: np.uint64, words_per_id: int, header_words: int,
    totals: Int64s,
) -> None:  # fmt: skip
    at = 0
    while at + header_words <= data.shape[0]:
        value = _get(data, at, 4)
        sentences = np.int64(_get(data, at + 8, 2))
        tokens = np.int64(_get(data, at + 10, 2))
        fields = np.int64(_get(data, at + 12, 2)) if header_words > 12 else 0
        if low <= value <= high:
            totals[0] += 1
            totals[1] += sentences
            totals[2] += tokens
            totals[3] += fields
        at += header_words + sentences + tokens * words_per_id + fields


@kernel
def _decode(
    data: Words, low: np.uint64, high: np.uint64, words_per_id: int, header_words: int,
    chunks: ChunkColumns, ids: Ids, fields: _FieldColumns, filled: Int64s,
) -> None:  # fmt: skip
    hashes, documents, starts, counts, splits, lengths = chunks
    field_starts, field_counts, field_words = fields
    at = 0
    while at + header_words <= data.shape[0]:
        value = _get(data, at, 4)
        sentences = np.int64(_get(data, at + 8, 2))
        tokens = np.int64(_get(data, at + 10, 2))
        words = np.int64(_get(data, at + 12, 2)) if header_words > 12 else 0
        if not low <= value <= high:
            at += header_words + sentences + tokens * words_per_id + words
            continue
        chunk = filled[0]
        hashes[chunk] = value
        documents[chunk] = _get(data, at + 4, 4)
        starts[chunk] = filled[2]
        counts[chunk] = tokens
        at += header_words
        for j in range(sentences):
            lengths[filled[1] + j] = data[at + j]
        at += sentences
        if words_per_id == 1:
            to, source = np.uint64(filled[2]), np.uint64(at)  # unsigned: see `_encode`
            for n in range(np.uint64(tokens)):
                ids[to + n] = data[source + n]
            at += tokens
        else:
            for j in range(tokens):
                ids[filled[2] + j] = np.int32(_get(data, at, 2))
                at += 2
        if header_words > 12:
            field_starts[chunk] = filled[3]
            field_counts[chunk] = words
            for j in range(words):
                field_words[filled[3] + j] = data[at + j]
            at += words
        filled[0] += 1
        filled[1] += sentences
        filled[2] += tokens
        filled[3] += words
        splits[filled[0]] = filled[1]


def encode_chunks(chunks: Chunks, words_per_id: int) -> tuple[Words, Int64s, Int64s]:
    """Encodes chunks in order of (hash, document).

    Args:
      chunks: in any order.
      words_per_id: from `id_words`.

    Returns:
      `[num_words] uint16` records, `[num_chunks + 1] int64` offsets in words, and `[num_chunks]
      int64`: which chunk each record is.
    """
    order = np.lexsort((chunks.documents, chunks.hashes)).astype(np.int64)
    sentences = np.diff(chunks.sentence_splits)
    fields, header_words = _field_columns(chunks.fields)
    sizes = header_words + sentences + chunks.token_counts * words_per_id
    if chunks.fields:
        sizes = sizes + fields.counts
    offsets = np.concatenate([[0], np.cumsum(sizes[order])]).astype(np.int64)
    out = np.empty(int(offsets[-1]), np.uint16)
    _encode(chunks.columns, chunks.ids, fields, order, words_per_id, header_words, offsets, out)
    return out, offsets, order


def sorted_records(chunks: Chunks, words_per_id: int) -> SortedRecords:
    """Returns chunks, in any order, as the records of a run file."""
    words, offsets, order = encode_chunks(chunks, words_per_id)
    return SortedRecords(words.view(np.uint8), offsets * _WORD_BYTES, chunks.hashes[order])


def decode_chunks(
    slices: Sequence[npt.NDArray[Any]],
    low: Sequence[int],
    high: Sequence[int],
    words_per_id: int,
    *,
    has_fields: bool = False,
    arena: Arena | None = None,
) -> Chunks:
    """Decodes the records of each slice whose hash is in its `[low, high]`.

    Args:
      slices: `[num_words] uint16` each, or their bytes, of whole records.
      low, high: the first and the last hash wanted of each slice.
      words_per_id: from `id_words`.
      has_fields: whether chunks carry fields of their documents.
      arena: has the memory for ids; without it is fresh.
    """
    header_words = _HEADER_WORDS_WITH_FIELDS if has_fields else _HEADER_WORDS
    slices = [data.view(np.uint16) for data in slices]
    totals = np.zeros(4, np.int64)
    bounds = [(np.uint64(a), np.uint64(b)) for a, b in zip(low, high, strict=True)]
    for data, (first, last) in zip(slices, bounds, strict=True):
        _count(data, first, last, words_per_id, header_words, totals)
    chunks, sentences, tokens, words = (int(total) for total in totals)
    fields = None
    if has_fields:
        fields = ChunkFields(
            np.empty(chunks, np.int64), np.empty(chunks, np.int64), np.empty(words, np.uint16)
        )
    decoded = Chunks(
        np.empty(chunks, np.uint64), np.empty(chunks, np.uint64),
        np.empty(chunks, np.int64), np.empty(chunks, np.int64),
        np.zeros(chunks + 1, np.int64), np.empty(sentences, np.int32),
        (arena.take(4 * tokens) if arena else np.empty(4 * tokens, np.uint8)).view(np.int32),
        fields,
    )  # fmt: skip
    columns, _ = _field_columns(fields)
    filled = np.zeros(4, np.int64)
    for data, (first, last) in zip(slices, bounds, strict=True):
        _decode(
            data, first, last, words_per_id, header_words, decoded.columns, decoded.ids, columns,
            filled,
        )  # fmt: skip
    return decoded
