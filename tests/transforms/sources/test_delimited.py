from __future__ import annotations

import csv
import io
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.sources.delimited import RecordScanner, parse_row

cells = st.text(st.sampled_from('ab ,;\t\n\r"é'), max_size=8)
tables = st.lists(st.lists(cells, min_size=1, max_size=4), max_size=8)


def scan(data: bytes, delimiter: str, blocks: list[int]) -> list[bytes]:
    """The records, from a scanner that is fed in blocks."""
    scanner = RecordScanner(delimiter)
    ends = []
    at = 0
    for size in [*blocks, len(data)]:
        block = np.frombuffer(data[at : at + size], np.uint8)
        ends += (scanner.record_ends(block) + at).tolist()
        at += len(block)
    if not ends or ends[-1] < len(data):
        ends.append(len(data))
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False) if a < b]


@settings(max_examples=200, deadline=None)
@given(
    rows=tables,
    delimiter=st.sampled_from(",\t;"),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    blocks=st.lists(st.integers(0, 9), max_size=10),
)
def test_rows_are_those_of_the_csv_module(rows, delimiter, end, quoting, blocks):
    if quoting == csv.QUOTE_MINIMAL:  # which leaves a carriage return without quotes
        rows = [[cell.replace("\r", "") for cell in row] for row in rows]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)
    records = scan(out.getvalue().encode(), delimiter, blocks)
    assert [parse_row(record.decode(), delimiter) for record in records] == rows


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from('ab,"\n'), max_size=30), blocks=st.lists(st.integers(0, 5)))
def test_careless_quotes_end_where_they_end_for_the_csv_module(text, blocks):
    expected = list(csv.reader(io.StringIO(text, newline="")))
    records = scan(text.encode(), ",", blocks)
    assert [parse_row(record.decode(), ",") for record in records] == expected


@pytest.mark.parametrize(
    ("record", "row"),
    [
        ("a,b\n", ["a", "b"]),
        ('"a\nb",c\r\n', ["a\nb", "c"]),
        ('"say ""so""",', ['say "so"', ""]),
        ("\n", []),
        ("", []),
        ('a"b,c', ['a"b', "c"]),
    ],
)
def test_parse_row(record, row):
    assert parse_row(record, ",") == row


def test_a_record_that_is_two_rows_is_an_error():
    with pytest.raises(csv.Error, match="more than one row"):
        parse_row("a\nb", ",")


def test_without_quoting_quotes_are_characters() -> None:
    data = b'1\t"well, he said\tb\r\n2\tend" of\tc\n'
    scanner = RecordScanner("\t", quotes=False)
    ends = scanner.record_ends(np.frombuffer(data, np.uint8)).tolist()
    records = [data[a:b] for a, b in pairwise([0, *ends])]
    rows = [parse_row(record.decode(), "\t", quotes=False) for record in records]
    assert rows == [["1", '"well, he said', "b"], ["2", 'end" of', "c"]]


def test_strictly_a_field_ends_behind_its_quotes() -> None:
    both = '1\t"well, he said\n2\t"end'
    assert parse_row(both, "\t") == ["1", "well, he said\n2\tend"]
    for record in (both, '1\t"never closed\n'):
        with pytest.raises(csv.Error):
            parse_row(record, "\t", strict=True)
    assert parse_row('1\t"a ""b"" c"\n', "\t", strict=True) == ["1", 'a "b" c']
