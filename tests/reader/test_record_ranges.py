from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.reader.record_ranges import RecordOffsets, RecordRange, parse_index, without
from recordmill.records.errors import UsageError


def index_of(sizes: list[int]) -> bytes:
    ends = np.cumsum([0, *sizes])
    return b"".join(b"%d %d\n" % (at, size) for at, size in zip(ends, sizes, strict=False))


@given(
    shards=st.lists(st.lists(st.integers(16, 10**12), max_size=20), min_size=1, max_size=4),
    most=st.integers(1, 100),
)
def test_offsets(shards, most) -> None:
    contents = {str(i): index_of(sizes) for i, sizes in enumerate(shards)}
    places = RecordOffsets(contents.__getitem__, list(contents), list(map(len, shards)), most=most)
    assert -(-sum(map(len, shards)) // places.every) <= most
    for shard, sizes in enumerate(shards):
        offsets = np.cumsum([0, *sizes])
        for record in range(len(sizes)):
            at, skip = places.find(np.array([shard]), np.array([record]))
            assert skip[0] < places.every
            assert at[0] == offsets[record - skip[0]]


def test_an_index_has_a_line_a_record() -> None:
    assert parse_index(b"0 20\n20 17\n", 2, 1, "x").tolist() == [0, 20]
    assert parse_index(b"", 0, 1, "x").tolist() == []
    with pytest.raises(UsageError, match="for each of the 3 records of its shard, and x has 2"):
        parse_index(b"0 20\n20 17\n", 3, 1, "x")


def test_without() -> None:
    record_ranges = [RecordRange(0, 0, 10, 0), RecordRange(1, 5, 3, 15)]
    assert without(record_ranges, []) == record_ranges
    assert without(record_ranges, [(0, 4), (0, 0), (1, 7), (1, 2), (2, 1)]) == [
        RecordRange(0, 1, 3, 1),
        RecordRange(0, 5, 5, 5),
        RecordRange(1, 5, 2, 15),
    ]
    assert without(record_ranges, [(1, 5), (1, 6), (1, 7)]) == record_ranges[:1]
