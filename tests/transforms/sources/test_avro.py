"""Avro: damage, codecs, types that Arrow has not."""

from __future__ import annotations

import bz2
import datetime
import json
import lzma
import random
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from backports import zstd

from recordmill.transforms.sources.avro_format import header, number, read_number, unpack
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.input_spec import WHOLE_TEXT
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.open_rows import open_rows
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
    with open_rows(source) as opened:
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


def hand_written(
    path: Path, fields: list[Any], rows: int, data: bytes, namespace: str = ""
) -> Path:
    """Writes a file of one block, whose rows are any bytes."""
    sync = b"s" * 16
    written = {"type": "record", "name": "row", "namespace": namespace, "fields": fields}
    block = number(rows) + number(len(data)) + data + sync
    path.write_bytes(header(json.dumps(written), sync) + block)
    return path


TEXT = {"name": "text", "type": "string"}


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "fixed", "name": "f", "size": 0},
     {"type": "record", "name": "empty", "fields": [{"name": "n", "type": "null"}]}],
)  # fmt: skip
def test_arrays_that_a_few_bytes_make_endless_are_refused(tmp_path: Path, items: Any) -> None:
    fields = [TEXT, {"name": "n", "type": {"type": "array", "items": items}}]
    endless = number(1) + b"a" + number(1 << 40) + number(0)
    path = hand_written(tmp_path / "a.avro", fields, 1, endless)
    found, _, _, rejects = read(path, LINES)
    assert not found
    assert [each.reason for each in rejects] == ["unreadable_file"]
    assert "arrays of values without bytes" in rejects[0].detail


@pytest.mark.parametrize("kind", ["null", {"type": "fixed", "name": "f", "size": 0}])
@pytest.mark.parametrize("name", ["text", "other"])
def test_rows_without_bytes_are_refused(tmp_path: Path, kind: Any, name: str) -> None:
    path = hand_written(tmp_path / "a.avro", [{"name": name, "type": kind}], 1 << 40, b"")
    found, _, _, rejects = read(path, LINES)
    assert not found
    assert [each.reason for each in rejects] == ["unreadable_file"]


@pytest.mark.parametrize("name", ["text", "other"])
@pytest.mark.parametrize(
    ("rows", "reason"),
    [(5, "broken_file"), (1 << 40, "decompression_bomb"), (1 << 66, "decompression_bomb")],
)
def test_blocks_that_lie_about_their_rows_are_rejects(
    tmp_path: Path, rows: int, reason: str, name: str
) -> None:
    row = number(1) + b"a"
    path = hand_written(tmp_path / "a.avro", [{"name": name, "type": "string"}], rows, row * 2)
    found, _, _, rejects = read(path, LINES)
    assert not found
    assert [(each.position, each.reason) for each in rejects] == [(0, reason)]


def test_a_schema_of_many_levels_is_a_reject(tmp_path: Path) -> None:
    kind: Any = "string"
    for _ in range(300):
        kind = {"type": "array", "items": kind}
    fields = [TEXT, {"name": "deep", "type": kind}]
    path = hand_written(tmp_path / "a.avro", fields, 1, b"\x02a\0")
    assert problems(path) == ["unreadable_file"]
    # The same by names: each record is in the one behind it.
    chain: list[Any] = [{"type": "record", "name": "r0", "fields": [{"name": "z", "type": "int"}]}]
    for i in range(1, 3000):
        inner = {"type": "record", "name": f"r{i}", "fields": [{"name": "x", "type": f"r{i - 1}"}]}
        chain.append(["null", inner])
    fields = [TEXT, *({"name": f"a{i}", "type": each} for i, each in enumerate(chain))]
    path = hand_written(tmp_path / "b.avro", fields, 1, b"\x02a" + b"\0" * 3000)
    assert problems(path) == ["unreadable_file"]


def test_a_schema_that_doubles_at_each_level_is_a_reject(tmp_path: Path) -> None:
    kind: Any = {"type": "record", "name": "r0", "fields": [{"name": "z", "type": "null"}]}
    for i in range(1, 60):
        parts = [{"name": "x", "type": kind}, {"name": "y", "type": f"r{i - 1}"}]
        kind = {"type": "record", "name": f"r{i}", "fields": parts}
    fields = [TEXT, {"name": "many", "type": kind}]
    assert problems(hand_written(tmp_path / "a.avro", fields, 1, b"\x02a")) == ["unreadable_file"]


@pytest.mark.parametrize(
    "items",
    ["boolean", "float", "double", {"type": "fixed", "name": "f", "size": 3},
     {"type": "record", "name": "r", "fields": [{"name": "x", "type": "boolean"}]}],
)  # fmt: skip
def test_arrays_that_end_nowhere_are_not_skipped_for_ever(tmp_path: Path, items: Any) -> None:
    """fastavro skips values of these types without finding that the data have ended."""
    fields = [TEXT, {"name": "n", "type": {"type": "array", "items": items}}]
    path = hand_written(tmp_path / "a.avro", fields, 1, b"\x02a" + number(1 << 40))
    assert problems(path) == ["broken_file"]


def test_fields_of_one_name_are_a_reject(tmp_path: Path) -> None:
    fields = [TEXT, {"name": "text", "type": "int"}]
    assert problems(hand_written(tmp_path / "a.avro", fields, 1, b"\x02a\2")) == ["broken_file"]


def test_records_of_one_name_in_several_namespaces(tmp_path: Path) -> None:
    def record(space: str, field: str) -> dict[str, Any]:
        fields = [{"name": field, "type": "int"}]
        return {"type": "record", "name": "inner", "namespace": space, "fields": fields}

    fields = [
        TEXT, {"name": "p", "type": record("", "x")},
        {"name": "q", "type": {key: v for key, v in record("", "y").items() if key != "namespace"}},
        {"name": "u", "type": [record("c", "z"), record("d", "w")]},
    ]  # fmt: skip
    data = b"\x02a" + number(1) + number(7) + number(1) + number(9)
    path = hand_written(tmp_path / "a.avro", fields, 1, data, namespace="a.b")
    (source,) = list_sources([str(path)])
    with open_rows(source) as opened:
        (rows,) = opened.rows(["text", "p", "q", "u"], 1 << 20)
        assert rows.columns["p"].to_pylist() == [{"x": 1}]
        assert rows.columns["q"].to_pylist() == [{"y": 7}]
        assert rows.columns["u"].to_pylist() == ['{"w": 9}']
        # fastavro takes types by the last part of their names where it skips others.
        (rows,) = opened.rows(["u"], 1 << 20)
        assert rows.columns["u"].to_pylist() == ['{"w": 9}']


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "zstandard"])
def test_blocks_without_rows_are_passed_over(tmp_path: Path, codec: str) -> None:
    path, sync = tmp_path / "a.avro", b"s" * 16
    begin = header(json.dumps({"type": "record", "name": "row", "fields": [TEXT]}), sync)
    begin = begin.replace(number(4) + b"null", number(len(codec)) + codec.encode())
    path.write_bytes(begin + (number(0) + number(0) + sync) * 2)
    assert problems(path) == []


def problems(path: Path) -> list[str]:
    """Returns the reasons of the rejects of a file without a document."""
    found, _, _, rejects = read(path, LINES)
    assert not found
    return [each.reason for each in rejects]


def test_records_in_records_end_no_process(tmp_path: Path) -> None:
    """Compiled code of fastavro goes down until the stack is full: a segmentation fault."""
    fields = [TEXT, {"name": "next", "type": ["null", "row"]}]
    level, last = number(1) + b"a" + number(1), number(1) + b"a" + number(0)
    deep = hand_written(tmp_path / "deep.avro", fields, 1, level * 1_000_000 + last)
    found, _, _, rejects = read(deep, LINES)
    assert not found
    assert [each.reason for each in rejects] == ["broken_file"]
    usual = hand_written(tmp_path / "usual.avro", fields, 2, level * 20 + last + last)
    found, _, _, rejects = read(usual, LINES)
    assert len(found) == 2
    assert not rejects


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "zstandard"])
def test_blocks_that_unpack_to_too_much_are_rejects(tmp_path: Path, codec: str) -> None:
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": [TEXT]})
    path = tmp_path / "bomb.avro"
    rows = [{"text": "a" * (READ_LIMITS.unpacked_bytes + 1)}, {"text": "small"}]
    with path.open("wb") as handle:
        fastavro.writer(handle, schema, rows, codec=codec, sync_interval=1)
    found, _, _, rejects = read(path, LINES)
    assert [each.reason for each in rejects] == ["decompression_bomb"]
    assert "--max_compression_ratio" in rejects[0].detail
    assert len(found) == 1  # of the block behind
    assert len(unpack_whole(path, codec)) == 2


def test_snappy_is_read(tmp_path: Path) -> None:
    """The usual codec of Spark and of BigQuery; fastavro writes it with one more package only."""
    path = write("avro", tmp_path, ROWS, 10)
    content, wanted = path.read_bytes(), read(path, LINES)
    parts, at = [content[: blocks(path)[0][0]].replace(b"\x08null", b"\x0csnappy")], 0
    for begin, end in blocks(path):
        stored, at = content[begin : end - 16], 0
        rows, at = read_number(stored, 0)
        _, at = read_number(stored, at)
        data = stored[at:]
        packed = pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
        parts += [number(rows), number(len(packed)), packed, content[end - 16 : end]]
    path.write_bytes(b"".join(parts))
    assert read(path, LINES) == wanted
    begin, end = blocks(path)[1]
    for position, byte in ((end - 18, 1), (begin + 12, 255)):  # of the checksum; of the text
        damaged = bytearray(path.read_bytes())
        damaged[position] ^= byte
        (tmp_path / "b.avro").write_bytes(damaged)
        documents, _, _, rejects = read(tmp_path / "b.avro", LINES)
        assert [(each.position, each.reason) for each in rejects] == [(10, "broken_file")]
        assert len(documents) == len(wanted[0]) - 10
    assert unpack(packed, "snappy", len(data)) == data
    assert unpack(packed, "snappy", len(data) - 1) is None
    for cut in (packed[:3], packed[:-4] + b"\0\0\0\0", b"\xff" * 9):
        with pytest.raises((EOFError, OSError, pa.ArrowException)):
            unpack(cut, "snappy", 1 << 20)


@pytest.mark.parametrize(
    ("codec", "compress"),
    [("bzip2", bz2.compress), ("xz", lzma.compress), ("zstandard", zstd.compress)],
)
def test_blocks_of_several_streams(codec: str, compress: Callable[[bytes], bytes]) -> None:
    two = compress(b"first ") + compress(b"second")
    assert unpack(two, codec, 100) == b"first second"
    assert unpack(two + b"rubbish", codec, 100) == b"first second"
    assert unpack(two, codec, 11) is None
    with pytest.raises(EOFError, match="more than 100 compressed streams"):
        unpack(compress(b"a") * 101, codec, 1000)
    with pytest.raises((OSError, lzma.LZMAError, zstd.ZstdError)):
        unpack(b"rubbish" + two, codec, 100)


def unpack_whole(path: Path, codec: str) -> list[bytes]:
    """Returns what the blocks of a file unpack to, unlimited."""
    content = path.read_bytes()
    unpacked = []
    for begin, end in blocks(path):
        stored = content[begin : end - 16]
        at = 0
        for _ in range(2):  # the numbers of rows and bytes
            while stored[at] > 127:
                at += 1
            at += 1
        data = unpack(stored[at:], codec, 1 << 40)
        assert data is not None
        assert unpack(stored[at:], codec, len(data)) == data
        assert unpack(stored[at:], codec, len(data) - 1) is None
        if codec != "deflate":  # whose rows show that it is cut
            with pytest.raises(EOFError):
                unpack(stored[at:-1], codec, 1 << 40)
        unpacked.append(data)
    return unpacked
