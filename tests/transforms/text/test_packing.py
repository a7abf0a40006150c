"""Rows of documents: against plain Python, and that no token is lost or there twice."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.text.packing import (
    Parts,
    best_fit,
    count_cut,
    cut_parts,
    fill_rows,
    pack,
    whole_parts,
)

from .chunk_builder import make_chunks

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def parts_of(lengths: list[int]) -> Parts:
    sizes = np.array(lengths, np.int64)
    numbers = np.arange(len(sizes))
    return Parts(np.cumsum(sizes) - sizes, sizes, numbers.astype(np.uint64), numbers, numbers)


def best_fit_reference(sizes: list[int], capacity: int) -> list[int]:
    """Best-fit decreasing, by looking at every row; of rows with equal room the last is taken."""
    rows = [0] * len(sizes)
    room: list[int] = []
    age: list[int] = []
    for clock, part in enumerate(sorted(range(len(sizes)), key=lambda i: -sizes[i])):
        fitting = [r for r in range(len(room)) if room[r] >= sizes[part]]
        if fitting:
            row = min(fitting, key=lambda r: (room[r], -age[r]))
        else:
            row = len(room)
            room.append(capacity)
            age.append(0)
        room[row] -= sizes[part]
        age[row] = clock
        rows[part] = row
    return rows


@given(LENGTHS, st.integers(40, 70))
def test_best_fit_is_the_plain_one(sizes: list[int], capacity: int) -> None:
    found = best_fit(np.array(sizes, np.int64), capacity)
    assert found.tolist() == best_fit_reference(sizes, capacity)


@given(
    LENGTHS, st.integers(8, 33), st.sampled_from(["none", "concat", "best_fit"]), st.integers(0, 2)
)
def test_every_token_is_in_one_row(
    lengths: list[int], capacity: int, packing: str, overhead: int
) -> None:
    parts = parts_of(lengths)
    packed = pack(parts, packing=packing, capacity=capacity, overhead=overhead)
    ids = np.arange(sum(lengths)).astype(np.int32)
    around = (-1, -1) if overhead == 0 else (-1, 900_000) if overhead == 1 else (800_000, 900_000)
    rows = fill_rows(ids, packed, np.arange(len(packed)), width=capacity, pad_id=-7, around=around)
    bare = fill_rows(
        ids, packed, np.arange(len(packed)), width=capacity, pad_id=-7, around=around,
        with_spans=False,
    )  # fmt: skip
    assert bare.ids.tolist() == rows.ids.tolist()
    assert bare.lengths.tolist() == rows.lengths.tolist()
    assert not bare.segments.any()
    assert not bare.positions.any()
    assert not bare.answers.any()
    real = np.arange(capacity) < rows.lengths[:, None]
    tokens = rows.ids[real]
    assert Counter(tokens[tokens < 800_000].tolist()) == Counter(ids.tolist())
    assert (rows.ids[~real] == -7).all()
    assert (rows.lengths > 0).all()
    assert not rows.segments[~real].any()
    assert not rows.positions[~real].any()
    assert rows.answers[real][tokens < 800_000].all()
    # Positions begin anew where a segment does, and tokens of a part follow each other.
    for row in range(len(packed)):
        for segment in range(1, int(rows.segments[row].max()) + 1):
            mine = rows.segments[row] == segment
            assert rows.positions[row, mine].tolist() == list(range(mine.sum()))
            own = [i for i in rows.ids[row, mine].tolist() if i < 800_000]
            assert own == list(range(own[0], own[0] + len(own)))
    if packing != "concat":
        whole = {p for p in range(len(lengths)) if lengths[p] <= capacity - overhead}
        assert Counter(packed.parts.wholes.tolist()).keys() == set(range(len(lengths)))
        assert all((packed.parts.wholes == p).sum() == 1 for p in whole)
    elif overhead == 0:
        assert (rows.lengths[:-1] == capacity).all()
        assert rows.ids[real].tolist() == ids.tolist()


def test_long_documents_are_full_rows_and_a_rest() -> None:
    cut = cut_parts(parts_of([25, 10, 3]), 10)
    assert cut.lengths.tolist() == [10, 10, 5, 10, 3]
    assert cut.starts.tolist() == [0, 10, 20, 25, 35]
    assert cut.wholes.tolist() == [0, 0, 0, 1, 2]
    assert len(set(cut.keys.tolist())) == 5


def test_rests_fill_the_least_room_that_holds_them() -> None:
    packed = pack(parts_of([14, 6, 3, 7, 10]), packing="best_fit", capacity=10)
    rows = [
        sorted(packed.parts.lengths[begin:end].tolist())
        for begin, end in zip(packed.splits[:-1], packed.splits[1:], strict=True)
    ]
    assert sorted(rows) == [[3, 7], [4, 6], [10], [10]]


def test_keys_are_of_chunk_and_copy_and_give_the_order() -> None:
    chunks = make_chunks([[[1] * 5], [[2] * 6], [[3] * 7]])
    parts = whole_parts(chunks, np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 0, 1, 1, 1]))
    assert (np.diff(parts.keys.astype(object)) > 0).all()
    assert sorted(parts.lengths.tolist()) == [5, 5, 6, 6, 7, 7]
    again = whole_parts(chunks, np.array([2, 0]), np.array([1, 0]))
    assert set(again.keys.tolist()) <= set(parts.keys.tolist())


def test_documents_that_are_cut_are_counted_once() -> None:
    from recordmill.records.hashing import combine

    seed = 5
    documents = np.array([11, 11, 12, 13], np.uint64)  # the first is longer than a chunk
    numbers = np.array([0, 1, 0, 0], np.uint64)
    hashes = combine(documents ^ np.uint64(seed), numbers)
    chunks = make_chunks(
        [[[1] * 20], [[2] * 15], [[3] * 8], [[4] * 11]],
        documents=documents.tolist(), hashes=hashes.tolist(),
    )  # fmt: skip
    assert chunks.are_first(seed).tolist() == [True, False, True, True]
    packed = pack(
        whole_parts(chunks, np.arange(4), np.zeros(4, np.int64)), packing="best_fit", capacity=10
    )
    assert count_cut(packed, chunks, seed) == {"documents_in_rows": 3, "documents_cut": 2}


def test_open_parts_are_joined_with_no_other() -> None:
    # The second and the last one go on in another part: behind them there is no end.
    is_open = np.array([False, True, False, True, False])
    parts = parts_of([3, 20, 4, 13, 5])
    packed = pack(parts, packing="concat", capacity=10, is_open=is_open)
    rows = [
        packed.parts.wholes[begin:end].tolist()
        for begin, end in zip(packed.splits[:-1], packed.splits[1:], strict=True)
    ]
    assert rows == [[1], [1], [3], [3], [0, 2, 4], [4]]
    assert packed.parts.lengths.tolist() == [10, 10, 10, 3, 3, 4, 3, 2]
    longer = packed.longer_than(3)
    assert longer.parts.wholes.tolist() == [1, 1, 3, 0, 2, 4]
    assert longer.splits.tolist() == [0, 1, 2, 3, 6]
    assert longer.keys.tolist()[-1] == 0


def test_prompts_are_no_answers() -> None:
    packed = pack(parts_of([6, 2]), packing="concat", capacity=8)
    rows = fill_rows(
        np.arange(8).astype(np.uint16), packed, np.array([0]), width=9,
        answer_starts=np.array([4, 6]),
    )  # fmt: skip
    assert rows.answers[0].tolist() == [False] * 4 + [True] * 4 + [False]
