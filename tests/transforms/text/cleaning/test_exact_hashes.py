from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.text.cleaning.comparison import equal_documents
from recordmill.transforms.text.cleaning.exact_hashes import ExactHasher

MAKER = BatchMaker(SourceRange("a.txt", "a.txt", "text", "", 0), hashed_bytes=0)


def batch_of(documents: list[list[str]], *, continues: bool = False) -> DocumentBatch:
    """A batch of documents, each the list of its lines."""
    lines = [line.encode() for document in documents for line in document]
    numbers = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    positions = np.arange(len(documents), dtype=np.int64)
    return MAKER.batch(Lines.from_list(lines), numbers, positions, continues=continues)


def hashes_of(documents: list[list[str]], *, keeps_lines: bool = False) -> dict[int, bytes]:
    chosen, hashes = ExactHasher(keeps_lines=keeps_lines).add(batch_of(documents), goes_on=False)
    return {i: row.tobytes() for i, row in zip(chosen.tolist(), hashes, strict=True)}


LINE = st.text(alphabet="ab \t", max_size=6)


@given(st.lists(st.lists(LINE, max_size=4), min_size=1, max_size=10))
def test_hashes_are_equal_where_words_are(documents: list[list[str]]) -> None:
    words = [tuple(" ".join(document).split()) for document in documents]
    found = hashes_of(documents)
    assert set(found) == {i for i, known in enumerate(words) if known}
    for i, one in found.items():
        for j, other in found.items():
            assert (one == other) == (words[i] == words[j])


def test_case_and_punctuation_count() -> None:
    assert len(set(hashes_of([["The end."], ["the end."], ["the end"]]).values())) == 3


def test_the_texts_of_a_pair_are_told_apart() -> None:
    pairs = [["a b", "c"], ["a", "b c"]]
    assert len(set(hashes_of(pairs).values())) == 1
    assert len(set(hashes_of(pairs, keeps_lines=True).values())) == 2


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_document_in_parts_has_the_hash_of_the_whole(cut: int) -> None:
    lines = ["one two", "three", "four five", "six"]
    hasher = ExactHasher(keeps_lines=False)
    first, hashes = hasher.add(batch_of([["before"], lines[:cut]]), goes_on=True)
    assert first.tolist() == [0]
    rest = batch_of([lines[cut:], ["behind"]], continues=True)
    second, more = hasher.add(rest, goes_on=False)
    assert second.tolist() == [0, 1]
    whole = hashes_of([["before"], lines, ["behind"]])
    assert [row.tobytes() for row in [*hashes, *more]] == list(whole.values())


def test_the_first_of_equal_documents_is_kept_in_any_order_of_rows() -> None:
    rows = np.array([[7, 5, 1], [7, 3, 1], [7, 9, 2], [1, 4, 0], [7, 11, 1]], np.uint64)
    for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0]):
        pairs = equal_documents(rows[order])
        assert sorted(map(tuple, pairs.tolist())) == [(5, 3), (11, 3)]


def test_ranks_come_before_numbers() -> None:
    rows = np.array([[7, 1, 1, 9, 9], [7, 2, 1, 9, 8], [7, 3, 1, 8, 9], [7, 4, 1, 8, 9]], np.uint64)
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        assert sorted(equal_documents(rows[order]).tolist()) == [[1, 3], [2, 3], [4, 3]]
