from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.sources.document_batch import DocumentBatch
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.tokenizer import Tokens
from recordmill.transforms.text.chunks import ChunkCutter, CutSpec, concatenate, select

from ..splitmix import GOLDEN, MASK, mix64
from .chunk_builder import Sentences, make_chunks, texts_of

SEED = 0xABCDEF
Document = list[list[int]]  # the ids of each line


def hash_of(key: int, number: int) -> int:
    return mix64(mix64((key ^ SEED) + GOLDEN & MASK) ^ number)


def pieces_by_sentences(document: Document, spec: CutSpec) -> list[Sentences]:
    most = spec.sentence_tokens
    sentences = [line[at : at + most] for line in document for at in range(0, len(line), most)]
    chunks: list[Sentences] = [[]]
    for sentence in sentences:
        if sum(map(len, chunks[-1])) >= spec.chunk_tokens:
            chunks.append([])
        chunks[-1].append(sentence)
    return [chunk for chunk in chunks if chunk]


def pieces_by_tokens(document: Document, spec: CutSpec) -> list[Sentences]:
    tokens = [token for line in document for token in line]
    chunks: list[Sentences] = []
    at = 0
    while tokens and (not chunks or at + spec.overlap_tokens < len(tokens)):
        chunks.append([tokens[at : at + spec.chunk_tokens]])
        at += spec.chunk_tokens - spec.overlap_tokens
    return chunks


def cut(documents: list[Document], borders: list[int], spec: CutSpec):
    """Cuts documents whose lines are spread over batches that begin at the given lines."""
    lines = [(number, line) for number, document in enumerate(documents) for line in document]
    bounds = sorted({0, *(border % (len(lines) + 1) for border in borders), len(lines)})
    cutter = ChunkCutter(spec, SEED)
    parts, of_document = [], []
    for first, end in pairwise(bounds):
        batch_lines = lines[first:end]
        numbers = list(dict.fromkeys(number for number, _ in batch_lines))
        continues = first > 0 and lines[first - 1][0] == numbers[0]
        goes_on = end < len(lines) and lines[end][0] == numbers[-1]
        batch = DocumentBatch(
            Lines.from_list([b""] * len(batch_lines)),
            np.array([numbers.index(number) for number, _ in batch_lines], np.int64),
            np.array([number + 100 for number in numbers], np.uint64),
            np.array(numbers, np.uint64),
            continues=continues,
        )
        sizes = [len(line) for _, line in batch_lines]
        ids = np.array([token for _, line in batch_lines for token in line], np.int32)
        tokens = Tokens(ids, np.cumsum([0, *sizes]).astype(np.int64))
        chunks, owners = cutter.cut(batch, tokens, goes_on=goes_on)
        parts.append(chunks)
        of_document += [numbers[owner] for owner in owners.tolist()]
    return concatenate(parts, np.int32), of_document, cutter.documents


tokens_of_line = st.integers(0, 9).flatmap(
    lambda size: st.lists(st.integers(5, 60_000), min_size=size, max_size=size)
)
documents = st.lists(st.lists(tokens_of_line, min_size=1, max_size=14), min_size=1, max_size=6)
cut_specs = st.one_of(
    st.builds(CutSpec, chunk_tokens=st.integers(1, 30), sentence_tokens=st.integers(1, 8)),
    st.integers(1, 30).flatmap(
        lambda size: st.builds(
            CutSpec, chunk_tokens=st.just(size), overlap_tokens=st.integers(0, size // 2)
        )
    ),
)


@settings(max_examples=400, deadline=None)
@given(documents=documents, borders=st.lists(st.integers(0, 100), max_size=12), spec=cut_specs)
def test_batches_do_not_show(documents, borders, spec):
    by_document = pieces_by_sentences if spec.sentence_tokens else pieces_by_tokens
    expected = [by_document(document, spec) for document in documents]
    chunks, of_document, count = cut(documents, borders, spec)
    assert texts_of(chunks) == [text for texts in expected for text in texts]
    owners = [number for number, texts in enumerate(expected) for _ in texts]
    assert of_document == owners
    assert chunks.documents.tolist() == [owner + 100 for owner in owners]
    assert chunks.hashes.tolist() == [
        hash_of(number + 100, k) for number, texts in enumerate(expected) for k in range(len(texts))
    ]
    assert count == sum(bool(texts) for texts in expected)


def test_sizes_as_documented():
    document = [[1, 2, 3], [4, 5], [6], [7, 8, 9, 10, 11]]
    chunks, _, _ = cut([document], [], CutSpec(chunk_tokens=4, sentence_tokens=4))
    assert texts_of(chunks) == [[[1, 2, 3], [4, 5]], [[6], [7, 8, 9, 10]], [[11]]]
    chunks, _, _ = cut([document], [2], CutSpec(chunk_tokens=6, overlap_tokens=2))
    assert texts_of(chunks) == [
        [[1, 2, 3, 4, 5, 6]],
        [[5, 6, 7, 8, 9, 10]],
        [[9, 10, 11]],
    ]


@pytest.mark.parametrize("id_type", [np.uint16, np.int32])
def test_concatenate(id_type):
    texts = [[[5, 6], [7]], [[8]], [], [[60_000, 9]]]
    parts = [make_chunks(texts[:2]), make_chunks([]), make_chunks(texts[2:], hashes=[1, 2])]
    joined = concatenate(parts, id_type)
    assert joined.ids.dtype == id_type
    assert texts_of(joined) == texts
    assert joined.hashes.tolist() == [1000, 1001, 1, 2]
    assert joined.documents.tolist() == [1, 2, 1, 2]
    empty = concatenate([], id_type)
    assert len(empty) == 0
    assert empty.sentence_splits.tolist() == [0]


def test_select():
    chunks = make_chunks([[[5, 6], [7]], [[8]], [[9], [10]]])
    chosen = select(chunks, np.array([True, False, True]))
    assert texts_of(chosen) == [[[5, 6], [7]], [[9], [10]]]
    assert chosen.documents.tolist() == [1, 3]
    assert texts_of(select(chunks, np.zeros(3, np.bool_))) == []
