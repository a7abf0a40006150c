"""Lengths of truncated pairs, and fields that chunks carry through run files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.shuffle.run_files import MAX_HASH
from recordmill.transforms.text import classification
from recordmill.transforms.text.chunk_fields import ChunkFields
from recordmill.transforms.text.chunk_records import decode_chunks, encode_chunks
from recordmill.transforms.text.chunks import concatenate, select

from ...kernels import entrance
from .chunk_builder import make_chunks, texts_of

truncated_lengths = entrance(classification.truncated_lengths)


def bert_lengths(first: int, second: int, most: int) -> tuple[int, int]:
    """`_truncate_seq_pair` of google-research/bert."""
    while first + second > most:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@given(st.integers(0, 300), st.integers(0, 300), st.integers(5, 130))
def test_truncated_lengths_are_those_of_bert(first: int, second: int, most: int) -> None:
    wanted = bert_lengths(first, second, most)
    assert truncated_lengths(first, second, most) == wanted
    # What scatter leaves out, behind so many tokens of each text, changes nothing.
    assert truncated_lengths(min(first, most + 3), min(second, most + 3), most) == wanted


texts = st.lists(st.text(max_size=6).filter(lambda text: text.isprintable()), max_size=3)


@given(st.lists(texts, min_size=1, max_size=6), st.integers(0, 3), st.sampled_from([1, 2]))
def test_fields_come_back_from_run_files(
    rows: list[list[str]], without: int, words_per_id: int
) -> None:
    size = len(rows)
    chunks = make_chunks([[[5 + i] * (i + 1)] for i in range(size)])
    chunks = replace(chunks, fields=ChunkFields.encode([tuple(row) for row in rows]))
    both = concatenate([chunks, select(chunks, np.arange(size) != without)], np.int32)
    records, _, order = encode_chunks(both, words_per_id)
    found = decode_chunks([records], [0], [MAX_HASH], words_per_id, has_fields=True)
    assert found.fields is not None
    wanted = [*rows, *(row for i, row in enumerate(rows) if i != without)]
    assert found.fields.texts(np.arange(len(found))) == [wanted[i] for i in order.tolist()]
    assert texts_of(found) == [texts_of(both)[i] for i in order.tolist()]
    low = int(both.hashes[order[-1]])
    last = decode_chunks([records], [low], [MAX_HASH], words_per_id, has_fields=True)
    assert last.fields is not None
    assert last.fields.texts(np.array([len(last) - 1])) == [wanted[order[-1]]]


def test_own_words_are_those_of_the_chunks_alone() -> None:
    fields = ChunkFields.encode([("a" * 99,), ("b", "ü")]).take(np.array([1, 1]))
    own = fields.own_words()
    assert own.texts(np.arange(2)) == [["b", "ü"], ["b", "ü"]]
    assert len(own.words) < len(fields.words)


def test_a_chunk_without_fields_has_none() -> None:
    chunks = make_chunks([[[5]]])
    records, _, _ = encode_chunks(chunks, 1)
    assert decode_chunks([records], [0], [MAX_HASH], 1).fields is None
