from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.errors import RunError
from recordmill.transforms.storage.external_sort import cogroup, sort_rows

KEYS = st.sampled_from(["a", "a/b", "a-b", "é", "b\tc\n", "\udcff", ""])


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(KEYS, st.sampled_from(["x", "y"]), st.integers() | st.text())),
    held_bytes=st.sampled_from([1, 1200, 1 << 20]),
)
def test_rows_come_in_order_of_key_and_tag_and_else_as_they_came(rows, held_bytes):
    expected = sorted(rows, key=lambda row: row[:2])
    assert list(sort_rows(rows, held_bytes=held_bytes)) == expected


def test_cogroup_gathers_contents_by_tag():
    rows = [("b", "x", 1), ("a", "y", (2, ("z",))), ("b", "y", 3), ("b", "x", 0)]
    expected = [("a", {"y": [(2, ("z",))]}), ("b", {"x": [1, 0], "y": [3]})]
    for held_bytes in (1, 1 << 20):
        assert list(cogroup(rows, held_bytes=held_bytes)) == expected


def test_no_more_is_held_than_said(monkeypatch):
    handles = []
    temporary_file = tempfile.TemporaryFile

    def kept(**options):
        handles.append(temporary_file(**options))
        return handles[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", kept)
    rows = [(str(i % 7), "x", ("text" * 1000, i)) for i in range(100)]
    ordered = sort_rows(rows, held_bytes=50_000)
    found = [next(ordered)]  # by then all rows are in files, but those that fit into memory
    spilled = [os.fstat(handle.fileno()).st_size for handle in handles]
    assert len(spilled) == 8
    assert max(spilled) <= 50_000 + 5000
    assert [*found, *ordered] == sorted(rows, key=lambda row: row[0])


def test_no_place_for_temporary_files_is_one_line(tmp_path):
    rows = [("a", "", 1)] * 3
    with pytest.raises(RunError, match=r"cannot sort .* in .*/nowhere: No such file .*--temp_dir"):
        list(sort_rows(rows, scratch=f"{tmp_path}/nowhere", held_bytes=1))
