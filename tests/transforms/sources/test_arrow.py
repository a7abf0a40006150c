"""Arrow files and streams: damage, hostile offsets, memory, Hugging Face's folders."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.arrow_messages import read_beginning, walk_messages
from recordmill.transforms.sources.dataset_folders import expand_folder
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.input_spec import WHOLE_TEXT
from recordmill.transforms.sources.kept_fields import parse_fields
from recordmill.transforms.sources.row_fields import RowSpec
from recordmill.transforms.sources.work_items import list_sources

from .column_files import ranges, read, write

# With sums of its own; it lives as long as what it has allocated.
POOL = pa.proxy_memory_pool(pa.system_memory_pool())

ARROW = ["arrow", "lz4", "zstd", "stream"]
ROWS = [{"text": f"the text of row {i}", "id": i} for i in range(30)]
LINES = DocumentSpec(sentence_splitter="none")


def bodies(path: Path) -> list[tuple[int, int]]:
    """Returns where the bodies of the batches of a file are."""
    with path.open("rb") as handle:
        size = path.stat().st_size
        beginning = read_beginning(handle, size)
        walked = walk_messages(handle, beginning.end, size)
        return [(each.body, each.end) for each in walked if each.is_batch]


@pytest.mark.parametrize("form", ["arrow", "stream"])
def test_damaged_offsets_cost_one_batch(tmp_path: Path, form: str) -> None:
    path = write(form, tmp_path, ROWS, 10)
    data = bytearray(path.read_bytes())
    begin, _ = bodies(path)[1]
    data[begin + 4 : begin + 8] = struct.pack("<i", 1 << 30)
    path.write_bytes(data)
    _, positions, _, (reject,) = read(path, LINES)
    assert positions == [*range(10), *range(20, 30)]
    assert (reject.position, reject.reason) == (10, "broken_file")
    assert (
        reject.detail == "the batch of rows 10 to 19: the offsets of strings or lists are damaged"
    )


@pytest.mark.parametrize("form", ["lz4", "zstd"])
def test_a_damaged_compressed_batch_is_one_reject(tmp_path: Path, form: str) -> None:
    rows = [{"text": f"the text of row {i} " * 50} for i in range(30)]
    path = write(form, tmp_path, rows, 10)
    data = bytearray(path.read_bytes())
    begin, end = bodies(path)[1]
    data[begin + 8 : end] = b"\xaa" * (end - begin - 8)
    path.write_bytes(data)
    _, positions, _, (reject,) = read(path, LINES)
    assert positions == [*range(10), *range(20, 30)]
    assert (reject.position, reject.reason) == (10, "broken_file")
    assert "\n" not in reject.detail


@pytest.mark.parametrize("form", ARROW)
@pytest.mark.parametrize("target_bytes", [100, 1 << 25])
def test_a_cut_file_is_used_up_to_the_cut(tmp_path: Path, form: str, target_bytes: int) -> None:
    path = write(form, tmp_path, ROWS, 10)
    path.write_bytes(path.read_bytes()[: bodies(path)[2][1] - 20])
    _, positions, _, (reject,) = read(path, LINES, target_bytes=target_bytes)
    assert positions == list(range(20))
    assert (reject.position, reject.reason) == (20, "broken_file")
    assert reject.detail.startswith("the file ends within the message at byte ")


def test_what_is_no_arrow_file_is_one_reject(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"ARROW1\0\0 no schema follows")
    _, _, _, (reject,) = read(tmp_path / "a.arrow", LINES)
    assert (reject.reason, reject.position) == ("broken_file", 0)
    assert reject.detail == "there is no Arrow message at byte 8"


def without_stream(data: bytes) -> bytes:
    """Returns a file as Polars writes it: the schema at its beginning is no message."""
    assert data[8:12] == b"\xff\xff\xff\xff"
    return data[:8] + b"\4\0\0\0" + data[12:]


@pytest.mark.parametrize("kind", ["lz4", "text", "dictionary"])
@pytest.mark.parametrize("target_bytes", [100, 1 << 25])
def test_files_of_other_writers(tmp_path: Path, kind: str, target_bytes: int) -> None:
    """arrow-rs aligns all that follows the magic by 64 bytes; Polars leaves out the stream."""
    table = pa.table({"text": [row["text"] for row in ROWS]})
    if kind == "dictionary":
        table = table.cast(pa.schema([("text", pa.dictionary(pa.int32(), pa.string()))]))
    path = write("lz4" if kind == "lz4" else "arrow", tmp_path, table, 10)
    good, want = path.read_bytes(), read(path, LINES, target_bytes=target_bytes)
    assert len(want[0]) == 30
    for data in (without_stream(good), good[:8] + bytes(56) + good[8:]):
        path.write_bytes(data)
        assert read(path, LINES, target_bytes=target_bytes) == want


def test_a_footer_that_leaves_out_a_batch_is_refused(tmp_path: Path) -> None:
    path = write("arrow", tmp_path, ROWS, 10)
    data = bytearray(without_stream(path.read_bytes()))
    count = data.rindex(struct.pack("<I", 3))  # of the batches, before the first of them
    data[count : count + 4] = struct.pack("<I", 2)
    path.write_bytes(data)
    documents, _, _, (reject,) = read(path, LINES)
    assert not documents
    assert reject.reason == "broken_file"


@pytest.mark.parametrize("form", [*ARROW, "footer"])
def test_any_changed_byte_is_survived(tmp_path: Path, form: str) -> None:
    """No byte of a file makes reading end the process or raise: strings come, or rejects do."""
    rng = random.Random(8)
    rows = [{"text": f"row {i}", "tags": [f"t{i}"] * (i % 3), "m": {"n": i}} for i in range(12)]
    path = write("arrow" if form == "footer" else form, tmp_path, rows, 4)
    good = without_stream(path.read_bytes()) if form == "footer" else path.read_bytes()
    spec = DocumentSpec(row=RowSpec(keep_fields=parse_fields("tags,m")))
    for _ in range(100):
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 4])):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        path.write_bytes(data)
        documents, _, _, rejects = read(path, spec)
        assert documents or rejects


def test_columns_of_all_kinds_beside_the_text(tmp_path: Path) -> None:
    """Only asked-for columns are decoded; the buffers of all others are counted."""
    table = pa.table(
        {
            "n": pa.nulls(5),
            "b": [True, False, None, True, False],
            "big": pa.array(["x"] * 5, pa.large_binary()),
            "view": pa.array(["a longer text than a view holds"] * 5, pa.string_view()),
            "d": pa.array(["a", "b", "a", None, "b"]).dictionary_encode(),
            "l": pa.array([[1], [], None, [2, 3], [4]], pa.list_(pa.int16())),
            "fixed": pa.array([[1, 2]] * 5, pa.list_(pa.int8(), 2)),
            "map": pa.array([[("k", 1)]] * 5, pa.map_(pa.string(), pa.int32())),
            "s": pa.array([{"x": "q", "y": [True]}, None] + [{"x": None, "y": None}] * 3),
            "text": [f"text {i}" for i in range(5)],
            "day": pa.array([1, 2, 3, 4, None], pa.date32()),
        }
    )
    for form in ARROW:
        path = write(form, tmp_path, table, 3)
        assert [lines for lines, *_ in read(path, LINES)[0]] == [
            [f"text {i}".encode()] for i in range(5)
        ]
        spec = DocumentSpec(row=RowSpec(keep_fields=parse_fields("b,l,fixed,map,s,text")))
        got, want = read(path, spec), read(write("parquet", tmp_path, table), spec)
        assert got[:2] == want[:2]
        assert [(each.position, each.reason) for each in got[3]] == [
            (each.position, each.reason) for each in want[3]
        ]
        assert len(got[0]) == 3


@pytest.mark.parametrize("form", ["arrow", "zstd", "lz4"])
def test_memory_does_not_grow_with_the_batch(tmp_path: Path, form: str) -> None:
    rng = np.random.default_rng(0)
    text = [rng.bytes(2000).hex() for _ in range(8000)]  # 32 MB in one batch
    path = write(form, tmp_path, pa.table({"text": text, "id": range(8000)}))
    del text
    pool, before = POOL, pa.default_memory_pool()
    pa.set_memory_pool(pool)
    held = 0
    try:
        (source,) = list_sources([str(path)])
        spec = DocumentSpec(sentence_splitter=WHOLE_TEXT)
        count = 0
        for batch in read_documents(source, spec):
            count += len(batch.keys)
            held = max(held, batch.lines.buffer.nbytes)
        assert count == 8000
        assert held < 3 << 20
        assert pool.max_memory() < 8 << 20
    finally:
        pa.set_memory_pool(before)


def test_one_long_text_among_short_ones_comes_alone(tmp_path: Path) -> None:
    texts = ["a"] * 3000 + ["b" * 3_000_000] * 20 + ["c"] * 3000
    path = write("arrow", tmp_path, pa.table({"text": texts}))
    (source,) = ranges(path)
    batches = list(read_documents(source, DocumentSpec(sentence_splitter=WHOLE_TEXT)))
    assert sum(len(batch.keys) for batch in batches) == len(texts)
    assert max(batch.lines.buffer.nbytes for batch in batches) < 4_000_000


def save(folder: Path, name: str, count: int) -> None:
    """Writes what `save_to_disk` of Hugging Face's datasets writes."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{count:05d}.arrow" for i in range(count)]
    for number, each in enumerate(names):
        write("stream", folder, [{"text": f"{name} {number}"}]).rename(folder / each)
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))
    state = {"_data_files": [{"filename": each} for each in names], "_split": name}
    (folder / "state.json").write_text(json.dumps(state))


def test_a_saved_dataset_is_its_files(tmp_path: Path) -> None:
    save(tmp_path / "ds", "train", 2)
    (tmp_path / "ds/data-00000-of-00001.arrow").write_text("of an earlier save")
    assert expand_folder(f"{tmp_path}/ds/") == [
        ("", f"{tmp_path}/ds/data-0000{i}-of-00002.arrow") for i in range(2)
    ]
    assert expand_folder(f"{tmp_path}/ds/*.arrow") == [("", f"{tmp_path}/ds/*.arrow")]
    assert expand_folder(str(tmp_path)) == [("", str(tmp_path))]
    (tmp_path / "ds/data-00001-of-00002.arrow").unlink()
    with pytest.raises(UsageError, match=r"ds has no file 'data-00001-of-00002.arrow', which its"):
        expand_folder(f"{tmp_path}/ds")


def test_saved_splits_keep_their_names(tmp_path: Path) -> None:
    save(tmp_path / "ds/train", "train", 1)
    save(tmp_path / "ds/test", "test", 1)
    (tmp_path / "ds/dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    assert expand_folder(f"{tmp_path}/ds") == [
        (split, f"{tmp_path}/ds/{split}/data-00000-of-00001.arrow") for split in ("train", "test")
    ]
    (tmp_path / "ds/test/state.json").unlink()
    with pytest.raises(UsageError, match="has no dataset in its folder 'test'"):
        expand_folder(f"{tmp_path}/ds")


def test_what_follows_the_end_is_no_silence(tmp_path: Path) -> None:
    path = write("stream", tmp_path, ROWS, 10)
    path.write_bytes(path.read_bytes() * 2)
    _, positions, _, (reject,) = read(path, LINES)
    assert positions == list(range(30))
    assert (reject.reason, reject.position) == ("broken_file", 30)
    assert reject.detail.startswith("bytes follow the end mark at byte ")
