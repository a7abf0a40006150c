from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.sources.lines import Lines, split_lines

texts = st.lists(
    st.one_of(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b" ", "é".encode()]), st.binary()),
    max_size=30,
).map(b"".join)


def split_reference(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    lines = [part[:-1] if part.endswith(b"\r") else part for part in parts[:-1]]
    return lines + parts[-1:] * bool(parts[-1])


@settings(max_examples=200, deadline=None)
@given(data=texts)
def test_split_lines(data):
    lines = split_lines(data)
    expected = split_reference(data)
    assert [lines[i] for i in range(len(lines))] == expected
    # A carriage return that is no part of a line is ASCII, so flags are of the lines themselves.
    assert lines.non_ascii.tolist() == [not line.isascii() for line in expected]


@given(data=st.lists(st.binary(max_size=20), max_size=10))
@settings(deadline=None)
def test_from_list(data):
    lines = Lines.from_list(data)
    assert [lines[i] for i in range(len(lines))] == data
    assert lines.non_ascii.tolist() == [not line.isascii() for line in data]
    backwards = lines.select(np.arange(len(data))[::-1])
    assert [backwards[i] for i in range(len(data))] == data[::-1]


@pytest.mark.parametrize(
    ("line", "blank"),
    [
        ("", True),
        (" ", True),
        ("\t\v\f\r ", True),
        ("\u00a0", True),
        ("\u3000 \u2028", True),
        (" a", False),
        ("é", False),
        ("\u200b", False),
        ("\x00", False),
        ("\x1c", False),
        ("\ufeff", False),
    ],
)
def test_blank(line, blank):
    assert Lines.from_list([line.encode()]).blank().tolist() == [blank]


def test_invalid_bytes_are_not_blank():
    assert not Lines.from_list([b"\xff", b" \xc2", b"\xa0"]).blank().any()
