"""Texts of Parquet that are coded by what differs from the text before, as pages say it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.transforms.sources import parquet_deltas, parquet_footer, parquet_rows
from recordmill.transforms.sources.blocks import BrokenFileError, CompressionBombError
from recordmill.transforms.sources.column_format import Damage, Rows
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.open_columns import open_columns
from recordmill.transforms.sources.parquet_deltas import SharedTexts, shared_texts
from recordmill.transforms.sources.parquet_footer import ColumnChunk, Leaf, read_row_groups
from recordmill.transforms.sources.parquet_pages import pages
from recordmill.transforms.sources.row_sizes import LimitedRows
from recordmill.transforms.sources.thrift import INT32, read_struct
from recordmill.transforms.sources.work_items import list_sources

from .column_files import read

PREFIXES, LENGTHS = "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"
LINES = DocumentSpec(sentence_splitter="none")


def write(path: Path, texts: Any, coding: str, **options: Any) -> None:
    table = pa.table({"text": texts})
    leaf = "text.list.element" if pa.types.is_list(table.schema.field("text").type) else "text"
    settings = {"use_dictionary": False, "write_statistics": False, **options}
    pq.write_table(table, path, column_encoding={leaf: coding}, **settings)


def found_in(path: Path, *, ratio: int = 10**9) -> SharedTexts:
    """Returns what the pages of the first column of a file say."""
    metadata = pq.read_metadata(path)
    leaf = parquet_rows._leaf(metadata.schema.column(0))
    with path.open("rb") as handle:
        column = read_row_groups(handle, metadata.num_columns)[0].columns[0]
        chunk = list(pages(handle, column, path.stat().st_size))
        assert sum(page.values for page in chunk) == column.values
        return shared_texts(chunk, handle, column, leaf, LimitedRows(1, ratio))


def drawn(seed: int, count: int) -> list[str | None]:
    """Returns texts of all lengths, many of which begin as the one before; some are none."""
    draw = np.random.default_rng(seed)
    texts: list[str | None] = []
    before = ""
    for _ in range(count):
        keep = int(draw.integers(0, len(before) + 1))
        before = before[:keep] + "".join(draw.choice(["a", "é", "日"], int(draw.integers(0, 30))))
        texts.append(None if draw.random() < 0.1 else before)
    return texts


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("in_lists", [True, False])
def test_lengths_are_those_of_the_texts(
    tmp_path: Path, codec: str, version: str, nullable: bool, in_lists: bool
) -> None:
    for seed in range(3):
        values = [text if nullable else text or "" for text in drawn(seed, 700)]
        texts: Any = [values[i : i + i // 5 % 5] for i in range(0, 700, 5)] if in_lists else values
        kind = pa.list_(pa.string()) if in_lists else pa.string()
        held = [t for t in (itertools.chain(*texts) if in_lists else texts) if t is not None]
        sizes = [len(text.encode()) for text in held]
        path = tmp_path / f"{seed}.parquet"
        write(
            path, pa.array(texts, kind), PREFIXES, compression=codec, data_page_size=500,
            write_batch_size=37, data_page_version=version,
        )  # fmt: skip
        found = found_in(path)
        assert (found.total, found.has_deltas) == (sum(sizes), True)
        assert max(sizes) <= found.longest <= 2 * max(sizes)
        write(path, pa.array(texts, kind), LENGTHS, compression=codec, data_page_version=version)
        assert found_in(path) == SharedTexts(0, 0, has_deltas=True)


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_a_dictionary_s_longest_text_counts_for_each_row(tmp_path: Path, codec: str) -> None:
    texts = ["x" * 300, None, "y", "x" * 300] * 20
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", compression=codec)
    assert found_in(tmp_path / "a.parquet") == SharedTexts(300, 24_000, has_deltas=False)


def test_columns_of_nulls_have_no_texts(tmp_path: Path) -> None:
    for coding in (PREFIXES, LENGTHS):
        write(tmp_path / "a.parquet", pa.array([None] * 50, pa.string()), coding)
        assert found_in(tmp_path / "a.parquet").total == 0
        assert read(tmp_path / "a.parquet", LINES)[0] == []


def patched(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new))


MANY = bytes([0x80, 0x01, 0x04, 0x80, 0x80, 0x80, 0x01])  # blocks of 128 in 4 parts, 2**21 lengths


@pytest.mark.parametrize("coding", [PREFIXES, LENGTHS])
def test_more_lengths_than_values_are_damage(tmp_path: Path, coding: str) -> None:
    """pyarrow makes room for all of them: for 8 GB, where a page says so."""
    path = tmp_path / "a.parquet"
    texts = pa.array(["b"] + [""] * ((1 << 21) - 1))
    options = {"max_rows_per_page": 1 << 30, "data_page_size": 1 << 30}
    write(path, texts, coding, compression="none", row_group_size=1 << 22, **options)
    more = bytes([*MANY[:3], 0xFF, 0xFF, 0xFF, 0x7F])
    data = path.read_bytes()
    path.write_bytes(data.replace(MANY, more, 1))
    assert path.read_bytes() != data
    (source,) = list_sources([str(path)])
    with open_columns(source) as opened:
        (damage,) = opened.rows(["text"], 1 << 20)
    assert isinstance(damage, Damage)
    assert damage.reason == "broken_file"
    wanted = f"rows 0 to {(1 << 21) - 1} of row group 0: a page whose lengths of texts are damaged"
    assert damage.detail == wanted


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_damaged_lengths_are_one_reject_or_are_read(tmp_path: Path, codec: str) -> None:
    """Of any flipped bit: no other error, and each row is read or rejected."""
    path = tmp_path / "a.parquet"
    texts = [text or "" for text in drawn(7, 150)]
    write(path, texts, PREFIXES, compression=codec)
    data = path.read_bytes()
    begin = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    for bit in np.random.default_rng(1).integers(begin * 8, (begin + 400) * 8, 150):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        documents, _, _, rejects = read(path, LINES)
        reasons = [each.reason for each in rejects]
        assert {*reasons} <= {"broken_file", "decompression_bomb", "undecodable", "empty"}
        assert "broken_file" in reasons or len(documents) + len(rejects) == len(texts), bit


def rows_of(path: Path, names: list[str], *, ratio: int = 250) -> tuple[int, list[str]]:
    """Reads columns; returns the number of rows and the reasons of damages."""
    (source,) = list_sources([str(path)])
    count, reasons = 0, []
    with open_columns(source, ratio=ratio) as opened:
        for rows in opened.rows(names, 1 << 20):
            if isinstance(rows, Damage):
                reasons.append(rows.reason)
            else:
                count += rows.count
    return count, reasons


@pytest.mark.parametrize(
    "change",
    [
        {"values": 8}, {"values": 30}, {"begin": -1}, {"begin": 1 << 44}, {"stored_bytes": -1},
        {"stored_bytes": 1 << 44}, {"begin": 5},
    ],
)  # fmt: skip
def test_pages_that_are_not_as_the_footer_says_are_damage(
    tmp_path: Path, change: dict[str, int]
) -> None:
    """pyarrow hands out whole pages, however few values the footer gives their column."""
    path = tmp_path / "a.parquet"
    for coding in (PREFIXES, "PLAIN"):
        write(path, ["a"] * 9, coding)
        size = path.stat().st_size
        with path.open("rb") as handle:
            column = read_row_groups(handle, 1)[0].columns[0]
            assert sum(page.values for page in pages(handle, column, size)) == 9
            with pytest.raises(BrokenFileError):
                list(pages(handle, replace(column, **change), size))


def test_more_lengths_than_are_allowed_are_a_bomb(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, ["a"] * 9, PREFIXES)
    limit = LimitedRows(1, 250)
    limit.most_bytes = 8
    leaf = Leaf("text", True, 0, (False, True))
    with path.open("rb") as handle:
        column = read_row_groups(handle, 1)[0].columns[0]
        chunk = list(pages(handle, column, path.stat().st_size))
        with pytest.raises(CompressionBombError, match="see --max_compression_ratio"):
            shared_texts(chunk, handle, column, leaf, limit)


def test_pages_without_values_are_not_followed_without_end(tmp_path: Path) -> None:
    head = b"\x15\x00\x15\x00\x15\x00\x2c\x15\x00\x15\x00\x15\x06\x15\x06\x00\x00"
    (tmp_path / "a").write_bytes(head * 1000)
    chunk = ColumnChunk(frozenset(), "", False, 5, 0, 17_000, begin=0, has_dictionary=False)
    with (tmp_path / "a").open("rb") as handle:
        found = []
        with pytest.raises(BrokenFileError, match="pages without values"):
            found.extend(pages(handle, chunk, 17_000))


def test_row_groups_that_lie_over_each_other_are_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    write(path, ["a" * 5000] * 9, "PLAIN", row_group_size=3, compression="none")
    with path.open("rb") as handle:
        assert [group.rows for group in read_row_groups(handle, 1)] == [3, 3, 3]
        monkeypatch.setattr(parquet_footer, "_MOST_OVERLAP", 0.9)
        with pytest.raises(BrokenFileError, match="lie over each other"):
            read_row_groups(handle, 1)


def test_of_a_list_s_dictionary_only_what_is_sure_is_refused(tmp_path: Path) -> None:
    """A bound of what lists may hold is no reason to refuse them, nor another column's coding."""
    draw = np.random.default_rng(3)
    count = 20_000
    tags = [[f"t{draw.integers(9)}" for _ in range(6)] for _ in range(count)]
    tags[5] = ["x" * 20_000] * 3
    text = ["".join(map(str, draw.integers(0, 9, 30))) for _ in range(count)]
    table = pa.table({"text": text, "tags": tags})
    pq.write_table(
        table, tmp_path / "a.parquet", compression="zstd", use_dictionary=["tags.list.element"],
        column_encoding={"text": PREFIXES},
    )  # fmt: skip
    for names in (["text"], ["tags"], ["text", "tags"]):
        assert rows_of(tmp_path / "a.parquet", names) == (count, [])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_indices_are_summed_as_they_are_coded(tmp_path: Path, version: str) -> None:
    draw = np.random.default_rng(4)
    words = ["x" * int(n) for n in draw.integers(0, 50, 300)]
    for size in (1, 2, 5, 300):
        of_row = np.where(np.arange(4000) % 1000 < 500, draw.integers(0, size, 4000), 0)
        texts = [words[i] for i in of_row]
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": texts}), path, data_page_version=version)
        metadata = pq.read_metadata(path)
        leaf = parquet_rows._leaf(metadata.schema.column(0))
        with path.open("rb") as handle:
            column = read_row_groups(handle, 1)[0].columns[0]
            dictionary, *chunk = pages(handle, column, path.stat().st_size)
            values = parquet_deltas._values(handle, dictionary, column.codec, leaf)
            lengths = parquet_deltas._lengths_of_dictionary(values, leaf)
            total = 0
            for page in chunk:
                values = parquet_deltas._values(handle, page, column.codec, leaf)
                data = np.frombuffer(values, np.uint8)
                total += parquet_deltas._sum_of_indices(data, lengths, page.values)
        assert sorted(lengths) == sorted({t: len(t) for t in texts}.values())
        assert total == sum(map(len, texts))


def test_blocks_of_hadoop_s_lz4_are_unpacked() -> None:
    text = b"abc" * 1000
    parts = [text[:1000], text[1000:]]
    framed = b""
    for part in parts:
        packed = pa.compress(part, "lz4_raw", asbytes=True)
        framed += len(part).to_bytes(4, "big") + len(packed).to_bytes(4, "big") + packed
    plain = pa.compress(text, "lz4_raw", asbytes=True)
    for data in (framed, plain):
        assert bytes(parquet_deltas._unpacked(memoryview(data), 3000, "lz4_hadoop")) == text


def test_values_of_a_fixed_size_are_looked_through(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    kind = pa.binary(1_000_000)
    parts = [pa.array([b"x" * 1_000_000] * 4, kind)] * 500
    pq.write_table(pa.table({"kept": pa.chunked_array(parts)}), path, compression="zstd")
    (source,) = list_sources([str(path)])
    with open_columns(source, ratio=10**9) as opened:
        for _, rows in zip(range(3), opened.rows(["kept"], 1 << 20), strict=False):
            assert isinstance(rows, Rows)
            assert rows.columns["kept"].nbytes < 140 << 20


# Sizes of a binary, a list and a map that are 3, 3 and 1 where only 32 bits count.
@pytest.mark.parametrize(
    "field",
    [
        b"\x58\x83\x80\x80\x80\x10abc", b"\x59\xf5\x83\x80\x80\x80\x10\x02\x02\x02",
        b"\x5b\x81\x80\x80\x80\x10\x55\x02\x04",
    ],
)  # fmt: skip
def test_sizes_are_cut_to_32_bits(field: bytes) -> None:
    fields: dict[int, Any] = {}
    data = b"\x15\x02" + field + b"\x15\x08\x00"
    assert read_struct(data, 0, {1: INT32, 7: INT32}, fields) == len(data)
    assert fields == {1: 1, 7: 4}


def test_numbers_of_fields_are_cut_to_16_bits() -> None:
    fields: dict[int, Any] = {}
    # Zigzag of -65531, which is 5; of 32767; and one more.
    data = b"\x05\xf5\xff\x07\x08\x05\xfe\xff\x03\x02\x15\x04\x00"
    assert read_struct(data, 0, dict.fromkeys((5, 32767, -32768), INT32), fields) == len(data)
    assert fields == {5: 4, 32767: 1, -32768: 2}


def test_numbers_without_end_are_none() -> None:
    for data in (b"\x15" + b"\xff" * 1_000_000, b"\x58\xff\xff\xff\xff\x0f\x00"):
        with pytest.raises(ValueError, match=r"more than 64 bits|negative size"):
            read_struct(data, 0, {1: INT32}, {})


def test_a_footer_that_hides_the_coding_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"{'x' * 50_000}{i}" for i in range(1000)]
    write(path, texts, PREFIXES, data_page_size=1 << 30)
    patched(path, b"\x19\x25\x06\x0e", b"\x19\x25\x06\x00")  # RLE, DELTA_BYTE_ARRAY to PLAIN
    assert {*pq.read_metadata(path).row_group(0).column(0).encodings} == {"PLAIN", "RLE"}
    largest, plain_read = [0], parquet_rows._read

    def observed(*arguments: Any) -> Any:
        for batch in plain_read(*arguments):
            largest[0] = max(largest[0], batch.nbytes)
            yield batch

    monkeypatch.setattr(parquet_rows, "_read", observed)
    monkeypatch.setattr(parquet_rows, "_MOST_HELD_BYTES", 1 << 20)
    documents, _, _, rejects = read(path, LINES)
    assert (len(documents), rejects) == (1000, [])
    assert largest[0] < 3 << 20


def test_headers_of_pages_may_have_fields_that_are_not_known(tmp_path: Path) -> None:
    """pyarrow passes them over, so behind them a page must not be hidden from us."""
    fields = {
        "list": b"\x59\x35\x02\x04\x06", "many": b"\x59\xf5\x10" + b"\x02" * 16,
        "double": b"\x57" + bytes(8), "bytes": b"\x58\x03abc", "byte": b"\x53\x09",
        "map": b"\x5b\x01\x55\x02\x04", "no_map": b"\x5b\x00", "struct": b"\x5c\x15\x02\x00",
        "structs": b"\x59\x2c\x15\x02\x00\x00", "bools": b"\x5a\x21\x01\x02",
        "uuid": b"\x5d" + bytes(16),
        "number": b"\x05\x14\x02",
    }  # fmt: skip
    path = tmp_path / "header"
    chunk = ColumnChunk(frozenset(), "", False, 5, 100, 100, begin=0, has_dictionary=False)
    for (name, field), end in itertools.product(fields.items(), [b"\x00", b"\x20"]):
        # Type 0, 8 bytes of 8, then data: 5 values, DELTA_BYTE_ARRAY, levels RLE; then the field.
        head = b"\x15\x00\x15\x10\x15\x10\x2c\x15\x0a\x15\x0e\x15\x06\x15\x06\x00"
        path.write_bytes(head + field + end + bytes(8))
        with path.open("rb") as handle:
            (page,) = pages(handle, chunk, 1000)
        assert (page.values, page.coding, page.unpacked_bytes) == (5, 7, 8), name
        assert page.position == len(head + field) + 1, name


def test_the_footer_says_what_pyarrow_says(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({
        "a": [f"{i}" for i in range(900)], "b": [[i, None] for i in range(900)],
        "c": [{"x": "y" * i, "z": None} for i in range(900)],
    })  # fmt: skip
    codecs = {"a": "none", "b.list.element": "snappy", "c.x": "zstd", "c.z": "lz4"}
    pq.write_table(table, path, row_group_size=130, compression=codecs, use_dictionary=["a"])
    metadata = pq.read_metadata(path)
    with path.open("rb") as handle:
        groups = read_row_groups(handle, metadata.num_columns)
    assert len(groups) == metadata.num_row_groups == 7
    for number, group in enumerate(groups):
        wanted = metadata.row_group(number)
        assert group.rows == wanted.num_rows
        assert [column.codec for column in group.columns] == ["", "snappy", "zstd", "lz4_raw"]
        for i, column in enumerate(group.columns):
            known = wanted.column(i)
            assert column.values == known.num_values
            assert column.unpacked_bytes == known.total_uncompressed_size
            assert column.stored_bytes == known.total_compressed_size
            assert column.begin == (known.dictionary_page_offset or known.data_page_offset)
            assert column.has_dictionary == known.has_dictionary_page == (i == 0)
            assert len(column.codings) == len(known.encodings)


def test_damaged_footers_are_rejects(tmp_path: Path) -> None:
    """pyarrow ends the process where it is asked for a column with wrong histograms."""
    table = pa.table({"text": [["a. b"], ["c"], None] * 9, "kept": ["x"] * 27})
    pq.write_table(table, tmp_path / "whole.parquet", compression="none")
    data = (tmp_path / "whole.parquet").read_bytes()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    draw = np.random.default_rng(5)
    path = tmp_path / "a.parquet"
    for _ in range(400):
        flipped = bytearray(data)
        flipped[draw.integers(begin, len(data) - 8)] = draw.integers(256)
        path.write_bytes(flipped)
        read(path, LINES)
    for position in range(begin, len(data) - 8):  # sizes of lists, of histograms among them
        if data[position] >> 4 in (2, 3, 4) and data[position] & 15 in (5, 6):
            flipped = bytearray(data)
            flipped[position] -= 16
            path.write_bytes(flipped)
            read(path, LINES)


@pytest.mark.parametrize(("begin", "reason"), [(7, "decompression_bomb"), (12, "broken_file")])
@pytest.mark.parametrize("name", ["text", "id"])
def test_pages_that_say_that_they_are_huge_are_rejects(
    tmp_path: Path, begin: int, reason: str, name: str
) -> None:
    """pyarrow makes room for the bytes, up to 2 GB, that such a page says that it has."""
    path = tmp_path / "a.parquet"
    size = 1 << 21  # a page of as many bytes has numbers of four bytes in its header, twice
    texts = {"text": pa.array(["x" * size]), "id": pa.array(np.arange(size >> 3))}
    pq.write_table(
        pa.table({name: texts[name]}), path, use_dictionary=False, compression="none",
        write_statistics=False, data_page_size=1 << 30, max_rows_per_page=1 << 30,
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    assert data[4:7] == b"\x15\x00\x15"
    assert data[11:12] == b"\x15"
    data[begin : begin + 4] = b"\xfe\xff\xff\x7f"
    path.write_bytes(data)
    (source,) = list_sources([str(path)])
    with open_columns(source, ratio=1) as opened:
        (damage,) = opened.rows([name], 1 << 20)
    assert isinstance(damage, Damage)
    assert damage.reason == reason
