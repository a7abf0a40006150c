"""Columns as input of text: what JSONL of the same rows gives, in whatever parts."""

from __future__ import annotations

import decimal
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.transforms.sources import parquet_rows
from recordmill.transforms.sources.changes import InputChangedError
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.input_spec import WHOLE_TEXT
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_fields import LabelSpec, RowSpec
from recordmill.transforms.sources.work_items import list_sources

from .column_files import FORMS, ROWS, ranges, read, write

# With sums of its own; it lives as long as what it has allocated.
POOL = pa.proxy_memory_pool(pa.system_memory_pool())

NOT_AVRO = [form for form, (extension, _) in FORMS.items() if extension != ".avro"]
SMALL = DocumentLimits(block_bytes=300)


def write_parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


SPECS = {
    "sentences": DocumentSpec(),
    "lines": DocumentSpec(sentence_splitter="none"),
    "whole": DocumentSpec(sentence_splitter=WHOLE_TEXT),
    "nested": DocumentSpec(text_field="meta.text", sentence_splitter="none"),
    "split_by": DocumentSpec(split_by="meta.n"),
    "split_from": DocumentSpec(split_from="split", split_names=("train", "test")),
    "one split": DocumentSpec(split_from="split", split_names=("train",)),
    "kept": DocumentSpec(row=RowSpec(keep_fields=parse_fields("id:int,score:float,other,meta"))),
    "classify": DocumentSpec(row=RowSpec(label=LabelSpec("label"), pair_field="other")),
    "labels": DocumentSpec(row=RowSpec(label=LabelSpec("label", names=("l0", "l1")))),
    "prompt": DocumentSpec(row=RowSpec(prompt_field="other")),
    "long": DocumentSpec(sentence_splitter="none", max_document_bytes=50),
    "missing": DocumentSpec(text_field="nothing"),
    "missing inside": DocumentSpec(text_field="meta.nothing"),
    "no text": DocumentSpec(text_field="id"),
    "label of numbers": DocumentSpec(row=RowSpec(label=LabelSpec("other", is_number=True))),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SPECS)
def test_documents_are_those_of_jsonl(tmp_path: Path, name: str, form: str) -> None:
    path = write(form, tmp_path, ROWS, 11)
    documents, positions, _, rejects = read(path, SPECS[name], limits=SMALL)
    wanted, _, _, wanted_rejects = read(write_jsonl(tmp_path / "a.jsonl", ROWS), SPECS[name])
    assert documents == wanted
    assert [each.reason for each in rejects] == [each.reason for each in wanted_rejects]
    assert sorted([*positions, *(each.position for each in rejects)]) == list(range(len(ROWS)))
    assert bool(documents) == (
        name not in ("missing", "missing inside", "no text", "label of numbers")
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 7, 34, 1000])
@pytest.mark.parametrize("target_bytes", [100, 3000, 1 << 25])
def test_parts_and_work_items_do_not_matter(
    tmp_path: Path, size: int, target_bytes: int, form: str
) -> None:
    path = write(form, tmp_path, ROWS, size)
    found = read(path, DocumentSpec(), limits=SMALL, target_bytes=target_bytes)
    assert found == read(write(form, tmp_path, ROWS), DocumentSpec())
    assert found[1] == list(range(len(ROWS)))
    assert len(set(found[2])) == len(ROWS)


@pytest.mark.parametrize("form", FORMS)
def test_a_large_file_is_cut_at_its_parts(tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(0)
    path = write(form, tmp_path, [{"text": rng.bytes(50).hex()} for _ in range(400)], 10)
    sizes = [source.end - source.start for source in ranges(path, 8000)]
    assert 4 < len(sizes) < 25
    assert sum(sizes) == path.stat().st_size
    assert max(sizes[:-1]) <= 10000  # the last one ends with the footer


STRINGS = {
    "string": pa.string(), "large": pa.large_string(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "view": pa.string_view(),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", STRINGS)
def test_types_of_strings(tmp_path: Path, kind: str, form: str) -> None:
    texts = ["a\nb", None, "é", "a\nb", ""]
    table = pa.table({"text": pa.array(texts, pa.string()).cast(STRINGS[kind])})
    path = write(form, tmp_path, table)
    documents, positions, _, rejects = read(path, DocumentSpec(sentence_splitter="none"))
    assert [lines for lines, *_ in documents] == [[b"a", b"b"], ["é".encode()], [b"a", b"b"], []]
    assert positions == [0, 2, 3, 4]
    assert [(each.position, each.reason, each.detail) for each in rejects] == [
        (1, "field_not_text", "'text' is null")
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_column_of_nulls(tmp_path: Path, form: str) -> None:
    path = write(form, tmp_path, pa.table({"text": pa.nulls(3)}))
    spec = DocumentSpec(row=RowSpec(prompt_field="text"), text_field="text")
    assert [each.reason for each in read(path, spec)[3]] == ["field_not_text"] * 3


def invalid(values: list[bytes]) -> pa.Array:
    array = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(array), *array.buffers()[1:])


@pytest.mark.parametrize("form", NOT_AVRO)
@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_bytes_that_are_no_characters(tmp_path: Path, errors: str, form: str) -> None:
    table = pa.table(
        {"text": invalid([b"a", b"b \xff", b"c"]), "id": invalid([b"x\xff", b"y", b"z"])}
    )
    path = write(form, tmp_path, table)
    spec = DocumentSpec(
        sentence_splitter="none",
        encoding_errors=errors,
        row=RowSpec(keep_fields=parse_fields("id")),
    )
    documents, _, _, rejects = read(path, spec)
    if errors == "strict":
        assert [(lines, carried) for lines, _, _, carried in documents] == [([b"c"], ("z",))]
        assert [(r.position, r.reason) for r in rejects] == [(0, "undecodable"), (1, "undecodable")]
    else:
        assert [(lines, carried) for lines, _, _, carried in documents] == [
            ([b"a"], ("x\ufffd",)), (["b \ufffd".encode()], ("y",)), ([b"c"], ("z",)),
        ]  # fmt: skip
        assert not rejects


@pytest.mark.parametrize("form", NOT_AVRO)
def test_values_of_other_types_are_kept_as_text(tmp_path: Path, form: str) -> None:
    table = pa.table(
        {
            "text": ["a"] * 2,
            "day": pa.array([1, 2], pa.date32()),
            "at": pa.array([1_500_000_000_123_456_789] * 2, pa.timestamp("ns")),
            "price": [decimal.Decimal("1.50"), decimal.Decimal("2.75")],
            "raw": pa.array([b"x", b"\xff"], pa.binary()),
            "tags": [["a", "b"], []],
        }
    )
    path = write(form, tmp_path, table)
    spec = DocumentSpec(row=RowSpec(keep_fields=parse_fields("day,at,price:float,raw,tags")))
    documents, _, _, rejects = read(path, spec)
    assert [carried for *_, carried in documents] == [
        ("1970-01-02", "2017-07-14 02:40:00.123456789", "1.50", "x", '["a", "b"]')
    ]
    assert [(each.position, each.reason) for each in rejects] == [(1, "undecodable")]


def test_a_row_with_too_much_text_is_a_reject(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", [{"text": "a" * n} for n in (1, 40, 2)])
    found = read(path, DocumentSpec(), limits=DocumentLimits(record_bytes=30))
    assert found[1] == [0, 2]
    assert [(each.position, each.reason) for each in found[3]] == [(1, "line_too_long")]


def damaged(path: Path, number: int, where: str) -> None:
    """Overwrites the bytes of a row group's pages, or cuts the file."""
    data = bytearray(path.read_bytes())
    if where == "cut":
        del data[-20:]
    else:
        group = pq.ParquetFile(path).metadata.row_group(number).column(0)
        begin = group.dictionary_page_offset or group.data_page_offset
        data[begin : begin + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    path.write_bytes(data)


@pytest.mark.parametrize("target_bytes", [100, 1 << 25])
def test_only_the_damaged_row_group_is_lost(tmp_path: Path, target_bytes: int) -> None:
    rows = [{"text": f"the text of row {i}"} for i in range(30)]
    path = write_parquet(tmp_path / "a.parquet", rows, row_group_size=10)
    damaged(path, 1, "pages")
    _, positions, _, (reject,) = read(path, DocumentSpec(), target_bytes=target_bytes)
    assert positions == [*range(10), *range(20, 30)]
    assert (reject.source, reject.position, reject.reason) == ("a.parquet", 10, "broken_file")
    assert reject.detail.startswith("rows 10 to 19 of row group 1: ")


def test_bits_that_changed_are_noticed_where_pages_have_checksums(tmp_path: Path) -> None:
    rows = [{"text": f"the text of row {i}"} for i in range(30)]
    path = write_parquet(
        tmp_path / "a.parquet", rows, write_page_checksum=True, compression="none",
        use_dictionary=False,
    )  # fmt: skip
    path.write_bytes(path.read_bytes().replace(b"row 17", b"row 18", 1))
    documents, _, _, (reject,) = read(path, DocumentSpec())
    assert not documents
    assert "CRC" in reject.detail


def test_a_cut_file_is_one_reject(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", ROWS)
    damaged(path, 0, "cut")
    documents, _, _, (reject,) = read(path, DocumentSpec(), target_bytes=100)
    assert not documents
    assert (reject.position, reject.reason) == (0, "broken_file")
    assert reject.detail.startswith("not a whole Parquet file: Parquet magic bytes not found")
    assert "\n" not in reject.detail


def test_a_file_that_changed_ends_the_run(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", ROWS)
    (source,) = list_sources([str(path)])
    write_parquet(path, ROWS[:-1])
    with pytest.raises(InputChangedError, match="changed since the run was planned"):
        list(read_documents(source, DocumentSpec()))


class CountingFile(io.FileIO):
    """Knows the most bytes that were asked for at once."""

    most = 0

    def read(self, size: int | None = -1) -> bytes:
        CountingFile.most = max(CountingFile.most, 1 << 40 if size is None or size < 0 else size)
        return super().read(size)


def test_memory_does_not_grow_with_the_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    text = [rng.bytes(2000).hex() for _ in range(8000)]  # 32 MB in one row group
    pq.write_table(pa.table({"text": text}), tmp_path / "a.parquet", row_group_size=1 << 20)
    del text
    monkeypatch.setattr(parquet_rows.files, "open_read", CountingFile)
    pool, before = POOL, pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        count = 0
        (source,) = list_sources([str(tmp_path / "a.parquet")])
        for batch in read_documents(source, DocumentSpec(sentence_splitter=WHOLE_TEXT)):
            count += len(batch.keys)
        assert count == 8000
        assert 0 < pool.max_memory() < 12 << 20
        assert 0 < CountingFile.most <= 4 << 20
    finally:
        pa.set_memory_pool(before)
