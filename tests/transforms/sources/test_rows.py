"""Rows of records: what one row is does not depend on those that are read with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.row_fields import LabelSpec, RowSpec
from recordmill.transforms.sources.rows import column_of, column_values
from recordmill.transforms.sources.tables import read_rows, table_columns
from recordmill.transforms.sources.work_items import list_sources

Found = tuple[list[bytes], list[tuple[int, str, str]]]


def read(path: Path, data: bytes, block_bytes: int = 1 << 21, **options: Any) -> Found:
    """Returns the texts of a file, and its rejects."""
    path.write_bytes(data)
    (source,) = list_sources([str(path)])
    spec = DocumentSpec(sentence_splitter="whole", **options)
    texts: list[bytes] = []
    rejects: list[tuple[int, str, str]] = []
    for batch in read_documents(source, spec, limits=DocumentLimits(block_bytes=block_bytes)):
        texts += [batch.lines[i] for i in range(len(batch.lines))]
        rejects += [(each.position, each.reason, each.detail) for each in batch.rejects]
    return texts, rejects


@pytest.mark.parametrize(
    "values",
    [
        ["a", None, "b"], [1, None, -5], [1.5, float("inf")], [True, False], [1, 1.5, True, "x"],
        [[1, {"a": None}], {}, None], [1 << 70, 2], [None, None], [],
    ],
)  # fmt: skip
def test_columns_give_back_the_values_that_they_are_made_of(values: list[Any]) -> None:
    found = column_values(column_of(values))
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


def test_a_value_that_is_nested_too_deeply_costs_its_record_alone(tmp_path: Path) -> None:
    deep = b'{"text": ' + b"[" * 1000 + b"]" * 1000 + b"}\n"
    texts, ((position, reason, detail),) = read(tmp_path / "a.jsonl", deep + b'{"text": "ok"}\n')
    assert texts == [b"ok"]
    assert (position, reason) == (0, "not_json")
    assert detail == "a value is nested more than 100 levels deep"


@pytest.mark.parametrize("block_bytes", [20, 1 << 21])
def test_why_a_row_is_rejected_does_not_depend_on_its_neighbours(
    tmp_path: Path, block_bytes: int
) -> None:
    lines = b'{"text":"x","n":1}\n{"text":5,"n":1}\n{"text":null,"n":1}\n{"text":[5],"n":1}\n'
    row = RowSpec(label=LabelSpec("n"))
    texts, rejects = read(tmp_path / "a.jsonl", lines, block_bytes, row=row)
    assert texts == [b"x"]
    assert rejects == [
        (19, "field_not_text", "'text' is int"), (36, "no_text", "'text' is null"),
        (56, "field_not_text", "'text' is list"),
    ]  # fmt: skip


def test_lone_surrogates_beside_numbers_are_groups(tmp_path: Path) -> None:
    lines = b'{"text":"x","g":"\\ud800"}\n{"text":"y","g":1}\n'
    found = read(tmp_path / "a.jsonl", lines, split_by="g", encoding_errors="replace")
    assert found == ([b"x", b"y"], [])


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        (b"\xef\xbb\xbf\ntext\nabc\n", [b"abc"]),
        (b'\xef\xbb\xbf"a\nb",text\nx,abc\n', [b"abc"]),
        (b"\r\n\ntext\r\nabc\r\n\r\ndef", [b"abc", b"def"]),
    ],
)
def test_marks_and_blank_lines_before_a_header(
    tmp_path: Path, table: bytes, texts: list[bytes]
) -> None:
    assert read(tmp_path / "a.csv", table) == (texts, [])


def test_a_header_that_is_no_text_is_a_reject(tmp_path: Path) -> None:
    _, rejects = read(tmp_path / "a.csv", b"te\xffxt\n")
    assert rejects == [(2, "undecodable", "invalid start byte")]


def test_an_object_without_members_names_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{}\n{"path": "x"}\n')
    assert table_columns(str(path)) == ["path"]
    assert [row.values["path"] for row in read_rows(str(path))] == [None, "x"]
