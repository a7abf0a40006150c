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
    totals = list(map(sum, shards))
    places = RecordOffsets(
        contents.__getitem__, list(contents), list(map(len, shards)), totals, most=most
    )
    assert -(-sum(map(len, shards)) // places.every) <= most
    for shard, sizes in enumerate(shards):
        offsets = np.cumsum([0, *sizes])
        for record in range(len(sizes)):
            bounds = places.bounds(shard, record, 1).tolist()
            group = record - record % places.every
            assert bounds == [offsets[group], offsets[min(group + places.every, len(sizes))]]


def test_an_index_has_a_line_a_record() -> None:
    assert parse_index(b"0 20\n20 17\n", 2, 1, "x", record_bytes=37).tolist() == [0, 20]
    assert parse_index(b"", 0, 1, "x", record_bytes=0).tolist() == []
    for content, records in ((b"0 20\n20 17\n", 3), (b"0 20\n20 17", 2)):
        with pytest.raises(UsageError, match=r"line for each of the . records of its shard"):
            parse_index(content, records, 1, "x", record_bytes=37)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"0 20\nx20 17\n40 20\n", 2),
        (b"0 20\n20\n40 20\n", 2),
        (b"0 20\n\n40 20\n", 2),
        (b"0 20\n-20 17\n40 20\n", 2),
        (b"1 20\n20 20\n40 20\n", 1),
        (b"0 20\n15 20\n40 20\n", 1),
        (b"0 20\n20 20\n20 20\n", 2),
        (b"0 20\n20 20\n50 20\n", 3),
        (b"0 20\n20 20\n99999999999999999999999999 20\n", 3),
        (b"0 20\n20 20\n9223372036854775808 20\n", 3),
        (b"0 20\n20 20\n\xff\xfe\n", 3),
    ],
)
def test_a_damaged_line_is_no_offset(content: bytes, line: int) -> None:
    with pytest.raises(UsageError, match=rf"x: line {line} must give the offset of a record"):
        parse_index(content, 3, 1, "x", record_bytes=60)


def test_without() -> None:
    record_ranges = [RecordRange(0, 0, 10, 0), RecordRange(1, 5, 3, 15)]
    assert without(record_ranges, []) == record_ranges
    assert without(record_ranges, [(0, 4), (0, 0), (1, 7), (1, 2), (2, 1)]) == [
        RecordRange(0, 1, 3, 1),
        RecordRange(0, 5, 5, 5),
        RecordRange(1, 5, 2, 15),
    ]
    assert without(record_ranges, [(1, 5), (1, 6), (1, 7)]) == record_ranges[:1]
