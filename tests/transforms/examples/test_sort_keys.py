"""Keys that rise with the values of a feature, whatever the values are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.codec.content_hash import hash_contents
from recordmill.records.codec.feature_values import ABSENT, OTHER_FORM, find_feature
from recordmill.records.codec.framing import scan_records
from recordmill.records.example_values import parse_any
from recordmill.records.state import decode, encode
from recordmill.transforms.examples.run_records import OrderedRecords
from recordmill.transforms.examples.sort_keys import (
    KeyMaker,
    KeySplits,
    ordered_numbers,
    sample_values,
    settle,
)

from .record_files import Value, example, framed, message, unframed

INT = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3)
FLOAT = st.floats(width=32, allow_nan=False)
TEXT = st.binary(max_size=9) | st.sampled_from([b"item1", b"item2", b"item10", b"item", b""])
FEW = settings(max_examples=40, deadline=None)


def arrays(records: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data = np.frombuffer(framed(records), np.uint8)
    offsets, _, _ = scan_records(data)
    return data, offsets[:-1], offsets[1:]


@FEW
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "ab", "b"]),
            st.none() | st.lists(INT, max_size=3) | st.lists(FLOAT, max_size=3)
            | st.lists(TEXT, max_size=3),
            max_size=3,
        ),
        max_size=6,
    )
)  # fmt: skip
def test_the_values_of_a_feature_are_those_that_parsing_gives(
    rows: list[dict[str, Value]],
) -> None:
    records = [example(**row) for row in rows]
    found = find_feature(*arrays(records), "a")
    parsed = [parse_any(record).get("a", []) for record in records]
    assert found.counts.tolist() == [len(values) for values in parsed]
    given: list[list[object]] = [[] for _ in rows]
    for of_rows, numbers in (found.ints(), found.floats()):
        for row, begin, end in zip(of_rows, numbers.row_splits, numbers.row_splits[1:],
                                   strict=False):  # fmt: skip
            given[row] = numbers.values[begin:end].tolist()
    of_rows, strings = found.strings()
    ends = strings.starts + strings.lengths
    for row, begin, end in zip(of_rows, strings.row_splits, strings.row_splits[1:], strict=False):
        given[row] = [strings.pool[strings.starts[j] : ends[j]].tobytes()
                      for j in range(begin, end)]  # fmt: skip
    assert given == [list(values) for values in parsed]


def test_other_forms_are_told_apart() -> None:
    sequence = message((0x0A, b""), (0x12, b""))
    records = [
        b"",
        example(a=1),
        example(b=1),
        b"\xff\xff",
        sequence,
        b"\x0a\x7f",
        b"\x0a\x02\x0a\x05",
    ]
    kinds = find_feature(*arrays(records), "a").kinds.tolist()
    assert kinds == [ABSENT, 2, ABSENT, OTHER_FORM, OTHER_FORM, OTHER_FORM, OTHER_FORM]


def keys_of(splits: KeySplits, values: list) -> np.ndarray:
    data, begins, ends = arrays([example(k=value, n=i) for i, value in enumerate(values)])
    hashes = hash_contents(data, begins + 12, ends - 4)[:, 0]
    has, keys = KeyMaker(splits).keys(data, begins, ends, hashes)
    assert has.all()
    return keys


@FEW
@pytest.mark.parametrize("kind", [INT, FLOAT, TEXT])
@given(st.data())
def test_keys_rise_with_values(kind: st.SearchStrategy, data: st.DataObject) -> None:
    sampled = data.draw(st.lists(kind, min_size=1, max_size=8))
    splits = sample_values([arrays([example(k=value) for value in sampled])], "k")
    assert splits is not None
    assert decode(encode(splits), KeySplits) == splits
    values = sorted(data.draw(st.lists(kind, min_size=1, max_size=20)) + sampled)
    keys = keys_of(splits, values)
    for (first, second), (low, high) in zip(pairwise(values), pairwise(keys), strict=True):
        assert first == second or low <= high


@pytest.mark.parametrize(
    "values",
    [
        list(range(5000)),
        [b"item%06d" % i for i in range(5000)],
        [i / 7 for i in range(5000)],
        [i % 3 for i in range(5000)],
    ],
)
@pytest.mark.parametrize("seen", [slice(None), slice(0, 200)])
def test_keys_are_spread(values: list, seen: slice) -> None:
    """Also of values behind all that were in the sample, as of a sorted file."""
    splits = sample_values([arrays([example(k=value) for value in values[seen]])], "k")
    assert splits is not None
    keys = keys_of(splits, values)
    _, counts = np.unique(keys, return_counts=True)
    assert counts.max() < 20
    if seen == slice(None) or len(set(values)) == 3:
        _, cells = np.unique(keys >> np.uint64(58), return_counts=True)
        assert len(cells) > 30
        assert cells.max() < 400


def test_numbers_in_order() -> None:
    ints = np.array([-(1 << 63), -5, 0, 7, (1 << 63) - 1])
    floats = np.array([-np.inf, -2.5, 0.0, 1e-40, 3.0, np.inf, np.nan], np.float32)
    for values in (ints, floats):
        ordered = ordered_numbers(values)
        assert (ordered[1:] > ordered[:-1]).all()
    assert len(set(ordered_numbers(np.array([-0.0, 0.0], np.float32)).tolist())) == 1


def test_equal_keys_are_settled_by_value_and_content() -> None:
    records = [example(k=3, n=5), example(k=2, n=9), example(k=3, n=1), example(k=1, n=4)]
    data, begins, ends = arrays(records)
    offsets = np.append(begins, ends[-1:])
    keys = np.array([5, 5, 5, 6], np.uint64)
    splits = KeySplits("k", "int64", (), ())
    settled = settle(OrderedRecords(data, offsets, keys), splits)
    assert unframed(settled.data.tobytes()) == [records[i] for i in (1, 2, 0, 3)]
