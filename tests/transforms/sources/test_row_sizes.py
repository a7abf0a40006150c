"""Columns in which many rows share one text: kilobytes of them stand for gigabytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.transforms.sources import parquet_rows
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.open_rows import open_rows
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.sources.row_sizes import LimitedRows, is_shared, row_sizes
from recordmill.transforms.sources.rows import Rows
from recordmill.transforms.sources.work_items import list_sources
from recordmill.transforms.storage import files

from .column_files import TEXTS, Read, arrow_file, avro, read

MEGABYTE = 1_000_000
COUNT = 10_000  # rows, so 10 GB
LINES = DocumentSpec(sentence_splitter="none")
KEPT = DocumentSpec(sentence_splitter="none", row=RowSpec(keep_fields=parse_fields("kept")))


def dictionary(count: int = COUNT, size: int = MEGABYTE) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), ["x" * size])


def views() -> pa.Array:
    view = np.array([[MEGABYTE, int.from_bytes(b"xxxx", "little"), 0, 0]], np.int32)
    data = pa.py_buffer(b"x" * MEGABYTE)
    spans = pa.py_buffer(np.repeat(view, COUNT, axis=0).tobytes())
    return pa.Array.from_buffers(pa.string_view(), COUNT, [None, spans, data])


def run_ends() -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([COUNT], pa.int32()), ["x" * MEGABYTE])


def lists() -> pa.Array:
    offsets = pa.array([0, COUNT // 2, COUNT], pa.int32())
    return pa.ListArray.from_arrays(offsets, dictionary())


def list_views() -> pa.Array:
    zeros, ones = np.zeros(COUNT, np.int32), np.ones(COUNT, np.int32)
    return pa.ListViewArray.from_arrays(pa.array(zeros), pa.array(ones), pa.array(["x" * MEGABYTE]))


def structs() -> pa.Array:
    return pa.StructArray.from_arrays([dictionary()], ["a"])


SHARED: dict[str, Callable[[], pa.Array]] = {
    "dictionary": dictionary, "views": views, "run_ends": run_ends, "lists": lists,
    "list_views": list_views, "structs": structs,
}  # fmt: skip


def prefixed(path: Path, name: str, parts: list[pa.Array]) -> None:
    """Writes texts that have all their bytes in common with the one before."""
    columns = {"text": pa.array(["a b"] * len(parts)), name: pa.chunked_array(parts)}
    leaf = f"{name}.list.element" if pa.types.is_list(parts[0].type) else name
    pq.write_table(
        pa.table(columns), path, compression="zstd", use_dictionary=False, write_batch_size=4,
        column_encoding={leaf: "DELTA_BYTE_ARRAY"}, data_page_size=1 << 30, store_schema=False,
        write_statistics=False,
    )  # fmt: skip


def write_bombs(folder: Path) -> list[Path]:
    folder.mkdir()
    text = pa.table({"text": dictionary()})
    pq.write_table(text, folder / "schema.parquet", compression="zstd")
    pq.write_table(text, folder / "plain.parquet", compression="zstd", store_schema=False)
    large = pa.table({"text": dictionary(size=50 * MEGABYTE)})
    pq.write_table(large, folder / "large.parquet", compression="zstd", store_schema=False)
    arrow_file(folder / "text.feather", text, COUNT, "zstd")
    prefixed(folder / "prefixes.parquet", "text", [pa.array(["x" * MEGABYTE])] * COUNT)
    prefixed(folder / "large_prefixes.parquet", "text", [pa.array(["x" * 50 * MEGABYTE])] * 200)
    values = pa.array(["x" * MEGABYTE] * 100)
    prefixed(
        folder / "list_prefixes.parquet", "kept", [pa.array([values], pa.list_(pa.string()))] * 100
    )
    for name, made in SHARED.items():
        array = made()
        table = pa.table({"text": ["a b"] * len(array), "kept": array})
        arrow_file(folder / f"{name}.arrow", table, COUNT)
        if name in ("lists", "structs"):
            path = folder / f"{name}.parquet"
            pq.write_table(table, path, compression="zstd", store_schema=False)
    return sorted(folder.iterdir())


TEXT = ("schema", "plain", "large", "text", "prefixes", "large_prefixes")
# Files are read in a process of their own, which says how much memory it took at most.
PROGRAM = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
from pathlib import Path
from tests.transforms.sources.test_row_sizes import KEPT, LINES, TEXT, summary
def peak():  # rusage has the peak of the process that started this one
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))
first, *paths = map(Path, sys.argv[1:])
summary(first, LINES), summary(first, KEPT)
before = peak()
for path in paths:
    found = summary(path, LINES if path.stem in TEXT else KEPT)
    print(json.dumps([path.name, *found, peak() - before]), flush=True)
"""


def summary(path: Path, spec: DocumentSpec) -> tuple[int, int, list[tuple[int, str]]]:
    """Reads a file; returns its documents, the bytes of the largest batch, and the rejects."""
    (source,) = list_sources([str(path)])
    documents, largest, rejects = 0, 0, []
    for batch in read_documents(source, spec):
        documents += len(batch.keys)
        largest = max(largest, batch.lines.buffer.nbytes)
        rejects += [(each.position, each.reason) for each in batch.rejects]
    return documents, largest, rejects


@pytest.mark.slow
def test_text_that_rows_share_takes_little_memory_and_is_limited(tmp_path: Path) -> None:
    small = pa.table({"text": ["a b"] * 9, "kept": ["c"] * 9})
    pq.write_table(small, tmp_path / "small.parquet")
    paths = write_bombs(tmp_path / "bombs")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "small.parquet"), *map(str, paths)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(paths)
    for name, documents, largest, rejects, megabytes in found:
        size = (tmp_path / "bombs" / name).stat().st_size
        most = max(250 * size, 64 << 20) // MEGABYTE
        assert 0 <= documents <= most, name
        assert largest <= (50 * MEGABYTE if name.startswith("large") else 3 << 20), name
        assert [reason for _, reason in rejects] == ["decompression_bomb"], name
        assert rejects[0][0] == documents, name
        assert megabytes < 900, name  # eight rows of 50 MB, and the library's copy of them


@pytest.mark.parametrize("form", ["parquet", "shared.parquet", "feather", "shared.feather"])
def test_the_limit_depends_on_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    most_bytes = 1 << 20
    limits = replace(READ_LIMITS, unpacked_bytes=most_bytes)
    monkeypatch.setattr("recordmill.transforms.sources.row_sizes.READ_LIMITS", limits)
    path = tmp_path / f"a.{form}"
    texts = pa.array([f"{i % 7} " * 2000 for i in range(300)])  # 1.2 MB
    table = pa.table({"text": texts.dictionary_encode() if "shared" in form else texts})
    if form.endswith("parquet"):
        pq.write_table(table, path, compression="zstd", write_statistics=False)
    else:
        arrow_file(path, table, 300, "zstd")
    found = [
        read(path, LINES, limits=DocumentLimits(block_bytes=block)) for block in (1 << 21, 70_001)
    ]
    assert found[0] == found[1]
    documents, _, _, (reject,) = found[0]
    assert len(documents) == most_bytes // 4001
    assert (reject.position, reject.reason) == (len(documents), "decompression_bomb")
    assert f"bytes unpack to more than {most_bytes} bytes; see --max_comp" in reject.detail
    more = read(path, msgspec.structs.replace(LINES, max_compression_ratio=10_000_000))
    assert len(more[0]) == 300
    assert not more[3]


@pytest.mark.parametrize("form", ["parquet", "feather", "avro"])
def test_a_file_without_the_column_is_not_millions_of_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """5 kB that say that they have 67 million rows took two minutes and a list of gigabytes."""
    limits = replace(READ_LIMITS, unpacked_bytes=64_000)
    monkeypatch.setattr("recordmill.transforms.sources.row_sizes.READ_LIMITS", limits)
    path = tmp_path / f"a.{form}"
    table = pa.table({"id": pa.array(np.zeros(200_000, np.int64))})
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "feather":
        arrow_file(path, table, 200_000, "zstd")
    else:
        avro(path, table, 200_000, "deflate")
    rejects = read(path, LINES)[3]
    assert {each.reason for each in rejects} == {"field_missing", "decompression_bomb"}
    assert 1000 < len(rejects) < 30_000  # blocks of Avro have a limit each
    assert rejects[-1].reason == "decompression_bomb"


def test_a_batch_of_shared_text_has_few_bytes(tmp_path: Path) -> None:
    table = pa.table({"text": dictionary(400, 100_000)})  # 40 MB
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False)
    pq.write_table(table, tmp_path / "b.parquet")
    arrow_file(tmp_path / "c.arrow", table, 400)
    for path in sorted(tmp_path.iterdir()):
        assert summary(path, LINES)[:2] == (400, 2_000_000)


LEAVES = ("text", "meta.text", "kept.list.element")


def mixed(count: int) -> pa.Table:
    """Returns texts of a dictionary that is too large for all of them, in fields and lists too."""
    draw = np.random.default_rng(3)
    texts = [
        None if draw.random() < 0.1 else f"{TEXTS[draw.integers(len(TEXTS))]} {draw.integers(99)}"
        for _ in range(count)
    ]
    return pa.table({
        "text": texts,
        "meta": [{"text": text, "n": 1} for text in texts],
        "kept": [[text, "a"] if text else None for text in texts],
    })  # fmt: skip


@pytest.mark.parametrize("most_held", [1 << 27, 100_000, 1])
@pytest.mark.parametrize(
    "options",
    [
        {"dictionary_pagesize_limit": 500},
        {"use_dictionary": False},
        {"use_dictionary": False, "column_encoding": dict.fromkeys(LEAVES, "DELTA_BYTE_ARRAY")},
        {
            "use_dictionary": False,
            "column_encoding": dict.fromkeys(LEAVES, "DELTA_LENGTH_BYTE_ARRAY"),
        },
        {
            "use_dictionary": list(LEAVES[2:]),
            "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY", "meta.text": "DELTA_BYTE_ARRAY"},
        },
        {
            "use_dictionary": list(LEAVES[1:]),
            "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"},
        },
    ],
)
@pytest.mark.parametrize("is_local", [True, False])
def test_how_parquet_is_read_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_held: int, options: dict[str, Any],
    is_local: bool,
) -> None:  # fmt: skip
    storage = SimpleNamespace(open_read=files.open_read, is_local=lambda path: is_local)
    monkeypatch.setattr(parquet_rows, "files", storage)
    table = mixed(3000)
    pq.write_table(
        table, tmp_path / "a.parquet", row_group_size=2000, data_page_size=2000, **options
    )
    arrow_file(tmp_path / "a.arrow", table, 2000)
    for spec in (KEPT, msgspec.structs.replace(LINES, text_field="meta.text")):
        wanted: Read = read(tmp_path / "a.arrow", spec)
        monkeypatch.setattr(parquet_rows, "_MOST_HELD_BYTES", most_held)
        found = read(tmp_path / "a.parquet", spec)
        assert [lines for lines, *_ in found[0]] == [lines for lines, *_ in wanted[0]]
        assert [carried for *_, carried in found[0]] == [carried for *_, carried in wanted[0]]
        assert found[1] == wanted[1]
        assert [(r.position, r.reason) for r in found[3]] == [
            (r.position, r.reason) for r in wanted[3]
        ]


def test_a_row_that_is_too_large_to_be_unpacked_is_left_out(tmp_path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0, 1], pa.int8()), ["a", "x" * (65 << 20)]
    )
    arrow_file(tmp_path / "a.arrow", pa.table({"text": values}), 9)
    documents, _, _, rejects = read(tmp_path / "a.arrow", LINES)
    assert [lines for lines, *_ in documents] == [[b"a"], [b"a"]]
    assert [(each.position, each.reason) for each in rejects] == [
        (1, "line_too_long"), (3, "line_too_long"),
    ]  # fmt: skip


def test_columns_keep_their_types(tmp_path: Path) -> None:
    table = mixed(100)
    pq.write_table(table, tmp_path / "a.parquet")
    (source,) = list_sources([str(tmp_path / "a.parquet")])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parquet_rows, "_MOST_HELD_BYTES", 1)
        with open_rows(source) as opened:
            for rows in opened.rows(["text", "meta", "kept"], 500):
                assert not rows.rejects
                for name, array in rows.columns.items():
                    assert array.type == table.schema.field(name).type
                    assert array.to_pylist() == table[name][rows.first :][: rows.count].to_pylist()


def plain_size(value: Any) -> int:
    """Returns what `row_sizes` should for a value of Python."""
    if isinstance(value, (str, bytes)):
        return len(value.encode() if isinstance(value, str) else value)
    if isinstance(value, dict):
        return 1 + sum(map(plain_size, value.values()))
    if isinstance(value, list):
        return sum(map(plain_size, value))
    return 1


WORDS = ["", "a", "bc" * 9, "def" * 40, "ghij"]
LISTS = [[WORDS[i % 5]] * (i % 4) for i in range(20)]
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([3, 4, 11, 20], pa.int32()), WORDS[1:])
ARRAYS: dict[str, pa.Array] = {
    "string": pa.array(WORDS * 4),
    "large": pa.array(WORDS * 4, pa.large_string()),
    "views": pa.array(WORDS * 4, pa.string_view()),
    "binary": pa.array([word.encode() for word in WORDS * 4]),
    "fixed": pa.array([b"abc"] * 20, pa.binary(3)),
    "dictionary": pa.array(WORDS * 4).dictionary_encode(),
    "runs": RUNS,
    "lists": pa.array(LISTS),
    "large_lists": pa.array(LISTS, pa.large_list(pa.string())),
    "list_views": pa.array(LISTS, pa.list_view(pa.string())),
    "fixed_lists": pa.array([["a", word] for word in WORDS * 4], pa.list_(pa.string(), 2)),
    "lists_of_runs": pa.ListArray.from_arrays(pa.array([0, 2, 2, 9, 20], pa.int32()), RUNS),
    "lists_of_nulls": pa.array([[None] * i for i in range(5)], pa.list_(pa.null())),
    "structs": pa.array([{"a": word, "n": 1} for word in WORDS * 4]),
    "maps": pa.array([[(word, 1)] for word in WORDS * 4], pa.map_(pa.string(), pa.int64())),
    "numbers": pa.array(range(20)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_sizes_are_those_of_values(name: str) -> None:
    array = ARRAYS[name]
    for begin, end in ((0, len(array)), (1, 3), (2, len(array)), (2, 2)):
        part = array.slice(begin, end - begin)
        wanted = [plain_size(value) for value in part.to_pylist()]
        if name == "maps":
            wanted = [sum(2 + len(key) for key, _ in value) for value in part.to_pylist()]
        assert row_sizes(part).tolist() == wanted


def test_sizes_of_unions() -> None:
    codes = pa.array([0, 1, 0, 1], pa.int8())
    fields = [pa.array(["aaa", "b"]), pa.array([1, 2])]
    dense = pa.UnionArray.from_dense(codes, pa.array([0, 0, 0, 1], pa.int32()), fields)
    assert row_sizes(dense).tolist() == [4, 2, 4, 2]
    assert row_sizes(dense.slice(1, 2)).tolist() == [2, 4]
    fields = [pa.array(["aaa", "", "b", ""]), pa.array([1, 2, 3, 4])]
    assert row_sizes(pa.UnionArray.from_sparse(codes, fields)).tolist() == [5, 2, 3, 2]


def test_null_values_of_dictionaries_have_no_size() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), ["abc", None])
    assert row_sizes(array).tolist() == [3, 0, 0]
    assert row_sizes(pa.array([None, None]).dictionary_encode()).tolist() == [0, 0]


def test_types_that_share() -> None:
    for name, array in ARRAYS.items():
        shares = name in ("views", "dictionary", "runs", "list_views") or "_of_" in name
        assert is_shared(array.type) == shares, name


def test_texts_that_lists_share_are_unpacked_part_by_part() -> None:
    """A part of a few rows was given all values of its batch: 10 kB of Parquet took 4 GB."""
    indices = pa.array(np.arange(6000, dtype=np.int32) % 2)
    texts = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 1000, "y"]))
    tags = pa.ListArray.from_arrays(pa.array(np.arange(0, 6001, 2, dtype=np.int32)), texts)
    kinds = {"tags": pa.list_(pa.string())}
    parts = list(LimitedRows(1, 10**9).parts(Rows(0, 3000, {"tags": tags}), 50_000, kinds))
    assert len(parts) > 20
    found = [part.columns["tags"] for part in parts]
    assert {array.type for array in found} == {kinds["tags"]}
    assert sum(len(array.values) for array in found) == 6000
    assert pa.concat_arrays(found).to_pylist() == tags.to_pylist()


def test_nulls_before_plain_pages_show_no_dictionary(tmp_path: Path) -> None:
    """A dictionary comes even if the page in its indices has nulls alone."""
    path = tmp_path / "a.parquet"
    texts = [None] * 20 + ["x" * 1000] * 20
    pq.write_table(pa.table({"text": texts}), path, data_page_size=1, write_batch_size=20)
    (batch, *_) = pq.ParquetFile(path, read_dictionary=["text"]).iter_batches(16)
    assert len(batch["text"].dictionary) == 1


@pytest.mark.parametrize("rubbish", [2**31 - 1, -MEGABYTE])
def test_what_lies_below_nulls_of_views_does_not_count(rubbish: int) -> None:
    spans = np.array([[9, 0, 0, 0], [rubbish, 0, 0, 0], [9, 0, 0, 0]], np.int32)
    valid, data = pa.py_buffer(b"\x05"), pa.py_buffer(b"")
    texts = pa.Array.from_buffers(pa.string_view(), 3, [valid, pa.py_buffer(spans.tobytes()), data])
    texts.validate(full=True)
    assert row_sizes(texts).tolist() == [9, 0, 9]
    assert row_sizes(texts.slice(1)).tolist() == [0, 9]


def test_lists_below_nulls_of_views_do_not_count() -> None:
    spans = [pa.py_buffer(np.array(each, np.int32)) for each in ([0, 0, 1], [1, 3, 2])]
    lists = pa.Array.from_buffers(
        pa.list_view(pa.string()), 3, [pa.py_buffer(b"\x05"), *spans],
        children=[pa.array(["ab", "cde", "f"])],
    )  # fmt: skip
    lists.validate(full=True)
    assert row_sizes(lists).tolist() == [2, 0, 4]
    assert row_sizes(lists.slice(1)).tolist() == [0, 4]
