"""Avro: damage, codecs, types that Arrow has not."""

from __future__ import annotations

import datetime
import random
import uuid
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest

from recordmill.transforms.sources.document_spec import WHOLE_TEXT, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.open_columns import open_columns
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.sources.work_items import list_sources

from .column_files import ranges, read, write

ROWS = [{"text": f"the text of row {i}", "id": i} for i in range(30)]
LINES = DocumentSpec(sentence_splitter="none")


def write_avro(path: Path, fields: list[Any], rows: list[dict[str, Any]]) -> Path:
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
    with path.open("wb") as handle:
        fastavro.writer(handle, schema, rows)
    return path


def blocks(path: Path) -> list[tuple[int, int]]:
    """Returns where the blocks of a file begin and end."""
    (source,) = list_sources([str(path)])
    with open_columns(source) as opened:
        return [(block.position, block.end) for block in opened.blocks(0)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["deflate", "zstandard"])
@pytest.mark.parametrize("target_bytes", [100, 1 << 25])
def test_only_the_damaged_block_is_lost(tmp_path: Path, form: str, target_bytes: int) -> None:
    path = write(form, tmp_path, ROWS, 10)
    data = bytearray(path.read_bytes())
    begin, end = blocks(path)[1]
    data[begin + 5 : end - 16] = b"\xaa" * (end - 16 - begin - 5)
    path.write_bytes(data)
    _, positions, _, (reject,) = read(path, LINES, target_bytes=target_bytes)
    assert positions == [*range(10), *range(20, 30)]
    assert (reject.position, reject.reason) == (10, "broken_file")
    assert reject.detail.startswith("the block of rows 10 to 19: ")


@pytest.mark.parametrize("target_bytes", [100, 1 << 25])
def test_a_cut_file_is_used_up_to_the_cut(tmp_path: Path, target_bytes: int) -> None:
    path = write("avro", tmp_path, ROWS, 10)
    path.write_bytes(path.read_bytes()[:-30])
    _, positions, _, (reject,) = read(path, LINES, target_bytes=target_bytes)
    assert positions == list(range(20))
    assert (reject.position, reject.reason) == (20, "broken_file")
    assert reject.detail.startswith("the file ends within the block at byte ")


def test_a_wrong_marker_ends_the_file(tmp_path: Path) -> None:
    path = write("avro", tmp_path, ROWS, 10)
    data = bytearray(path.read_bytes())
    data[blocks(path)[1][1] - 1] ^= 1
    path.write_bytes(data)
    _, positions, _, (reject,) = read(path, LINES)
    assert positions == list(range(10))
    assert reject.detail.endswith("does not end with the file's marker")


@pytest.mark.parametrize("data", [b"Obj\x01 and no header", b"Obj\x01\x00" + bytes(16)])
def test_what_is_no_avro_file_is_one_reject(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.avro").write_bytes(data)
    _, _, _, (reject,) = read(tmp_path / "a.avro", LINES)
    assert (reject.position, reject.reason) == (0, "broken_file")
    assert reject.detail.startswith("not an Avro file")


def test_a_codec_that_is_not_read_is_named(tmp_path: Path) -> None:
    path = write("deflate", tmp_path, ROWS)
    path.write_bytes(path.read_bytes().replace(b"deflate", b"unknown"))
    _, _, _, (reject,) = read(path, LINES)
    assert reject.reason == "unreadable_file"
    assert "codec 'unknown'" in reject.detail


@pytest.mark.parametrize("form", ["avro", "deflate"])
def test_any_changed_byte_is_survived(tmp_path: Path, form: str) -> None:
    rng = random.Random(3)
    rows = [{"text": f"row {i}", "tags": [f"t{i}"], "m": {"n": i}} for i in range(12)]
    path = write(form, tmp_path, rows, 4)
    good = path.read_bytes()
    spec = DocumentSpec(row=RowSpec(keep_fields=parse_fields("tags,m")))
    for _ in range(150):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 4])):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        path.write_bytes(data)
        documents, _, _, rejects = read(path, spec)
        assert documents or rejects


def test_all_types_can_be_kept(tmp_path: Path) -> None:
    fields = [
        {"name": "text", "type": "string"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "map", "type": {"type": "map", "values": "long"}},
        {"name": "either", "type": ["null", "long", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "kind"},
        {"name": "flag", "type": "boolean"},
        {"name": "tree", "type": ["null", {"type": "record", "name": "node", "fields": [
            {"name": "n", "type": "int"}, {"name": "below", "type": ["null", "node"]}]}]},
    ]  # fmt: skip
    row = {
        "text": "a", "day": datetime.date(2020, 1, 2), "id": uuid.UUID(int=7), "tags": ["é", "b"],
        "map": {"k": 1}, "either": 5, "kind": "A", "again": "B", "flag": True,
        "tree": {"n": 1, "below": {"n": 2, "below": None}},
    }  # fmt: skip
    path = write_avro(tmp_path / "a.avro", fields, [row, row | {"either": "x", "tree": None}])
    spec = DocumentSpec(row=RowSpec(keep_fields=parse_fields("day,id,tags,map,either,kind,again")))
    documents, _, _, rejects = read(path, spec)
    kept = ("2020-01-02", str(uuid.UUID(int=7)), '["é", "b"]', '{"k": 1}', "5", "A", "B")
    assert [carried for *_, carried in documents] == [kept, (*kept[:4], "x", *kept[5:])]
    assert not rejects
    spec = DocumentSpec(row=RowSpec(keep_fields=parse_fields("flag,tree")))
    documents, _, _, rejects = read(path, spec)
    tree = '{"n": 1, "below": "{\\"n\\": 2, \\"below\\": null}"}'
    assert [carried for *_, carried in documents] == [("true", tree)]
    assert [(each.position, each.reason) for each in rejects] == [(1, "field_missing")]


@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_bytes_that_are_no_characters(tmp_path: Path, errors: str) -> None:
    path = write_avro(tmp_path / "a.avro", [{"name": "text", "type": "string"}], [
        {"text": "ab"}, {"text": "cQ"}, {"text": "d"}
    ])  # fmt: skip
    path.write_bytes(path.read_bytes().replace(b"cQ", b"c\xff"))
    spec = DocumentSpec(sentence_splitter="none", encoding_errors=errors)
    documents, _, _, rejects = read(path, spec)
    if errors == "strict":
        assert [lines for lines, *_ in documents] == [[b"ab"], [b"d"]]
        assert [(each.position, each.reason) for each in rejects] == [(1, "undecodable")]
    else:
        assert [lines for lines, *_ in documents] == [[b"ab"], ["c\ufffd".encode()], [b"d"]]
        assert not rejects


def test_batches_have_few_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = write("avro", tmp_path, [{"text": rng.bytes(2000).hex()} for _ in range(3000)])
    (source,) = ranges(path)
    batches = list(read_documents(source, DocumentSpec(sentence_splitter=WHOLE_TEXT)))
    assert sum(len(batch.keys) for batch in batches) == 3000
    assert max(batch.lines.buffer.nbytes for batch in batches) < 3 << 20
