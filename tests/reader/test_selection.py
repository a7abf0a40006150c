from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.reader.selection import Part, parse_selection
from recordmill.records.errors import UsageError

COUNTS = {"train": 1000, "test": 7}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train", [Part("train", 0, 1000)]),
        ("train[:10%]", [Part("train", 0, 100)]),
        ("train[100:200]", [Part("train", 100, 200)]),
        ("train[-5%:]", [Part("train", 950, 1000)]),
        ("train[:-1]", [Part("train", 0, 999)]),
        ("train[:5000]", [Part("train", 0, 1000)]),
        ("test[:50%]", [Part("test", 0, 4)]),
        ("train[:1] + test[ 2 : 3 ]", [Part("train", 0, 1), Part("test", 2, 3)]),
    ],
)
def test_parts(text, expected) -> None:
    assert parse_selection(text, COUNTS, "ds") == tuple(expected)


@given(records=st.integers(100, 10**6), percent=st.integers(1, 99))
def test_neighbouring_percentages_meet(records, percent) -> None:
    (low,) = parse_selection(f"train[:{percent}%]", {"train": records}, "ds")
    (high,) = parse_selection(f"train[{percent}%:]", {"train": records}, "ds")
    assert (low.first, low.last, high.last) == (0, high.first, records)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tset", "ds: split must be one of test, train, got 'tset'; did you mean 'test'"),
        ("train[a:]", "a bound in a split must be .*, got 'a' in"),
        ("train[:101%]", "got '101%'"),
        ("train[1]", "must be a name such as 'train' or a part"),
        ("", "must be a name such as"),
        ("test[7:]", "must select at least one record, and 'test.* selects none of test .7., tra"),
    ],
)
def test_what_cannot_be_read(text, message) -> None:
    with pytest.raises(UsageError, match=message):
        parse_selection(text, COUNTS, "ds")
