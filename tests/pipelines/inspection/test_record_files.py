"""Records of datasets of ours and of files that another tool wrote, by number and by condition."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from recordmill.pipelines.inspection.found_files import open_records
from recordmill.pipelines.inspection.overview import inferred_schema
from recordmill.pipelines.inspection.record_files import read_description
from recordmill.records.conditions import parse_condition
from recordmill.records.errors import RunError, UsageError
from recordmill.records.example_values import parse_any
from recordmill.records.manifest import MANIFEST_PATH, Manifest

from ...reader.small_datasets import NUMBERS, UNEVEN, write_numbers


def number(data: bytes) -> int:
    return int(parse_any(data)["id"][0])


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_each_record_by_its_number(tmp_path: Path, compression: str) -> None:
    records = open_records(str(write_numbers(tmp_path, UNEVEN, compression, test=[2, 3])))
    assert {name: len(files) for name, files in records.splits.items()} == {"train": 7, "test": 2}
    total = sum(UNEVEN)
    assert [number(r.data) for r in records.all_records("train")] == list(range(total))
    assert [number(records.record("train", i).data) for i in range(0, total, 13)] == [
        *range(0, total, 13)
    ]
    assert number(records.record("test", 4).data) == total + 4
    with pytest.raises(UsageError, match=f"less than the number of records, {total} in train"):
        records.record("train", total)
    with pytest.raises(UsageError, match="did you mean 'train'"):
        records.split("tran")


def test_some_records_are_from_all_over_the_split(tmp_path: Path) -> None:
    records = open_records(str(write_numbers(tmp_path, [50, 50])))
    chosen = [r.number for r in records.some_records("train", 4)]
    assert chosen[0] == 0
    assert [number // 25 for number in chosen] == [0, 1, 2, 3]
    assert chosen == [r.number for r in records.some_records("train", 4)]
    # Of records that alternate, steps of the same length would take more of one kind.
    odd = sum(r.number % 2 for r in records.some_records("train", 50))
    assert 15 <= odd <= 35
    assert [r.number for r in records.some_records("train", 1000)] == list(range(100))


def test_some_records_of_many_files_are_from_sixteen(tmp_path: Path) -> None:
    records = open_records(str(write_numbers(tmp_path, [0, *[7] * 40])))
    chosen = list(records.some_records("train", 100))
    assert len({r.file for r in chosen}) == 16
    assert [number(r.data) for r in chosen] == [r.number for r in chosen]
    assert chosen[0].number == 0
    assert chosen[-1].number > 250


def foreign(folder: Path, wrap: str = "") -> Path:
    """The shards of a dataset under the names of other tools, and nothing else of it."""
    source = write_numbers(folder / "source", [3, 4], test=[2])
    shards = {
        "train-00000-of-00002": "train/train-00000-of-00002.tfrecords",
        "train-00001-of-00002": "train/train-00001-of-00002.tfrecords",
        "my_test.record": "test/test-00000-of-00001.tfrecords",
    }
    (folder / "other").mkdir()
    for name, path in shards.items():
        data = (source / path).read_bytes()
        data = {"GZIP": gzip.compress, "ZLIB": zlib.compress}.get(wrap, bytes)(data)
        (folder / "other" / name).write_bytes(data)
    (folder / "other/README.txt").write_text("not a file of records, but longer than a header")
    return folder / "other"


@pytest.mark.parametrize("wrap", ["", "GZIP", "ZLIB"])
def test_files_of_other_tools(tmp_path: Path, wrap: str) -> None:
    folder = foreign(tmp_path, wrap)
    records = open_records(str(folder))
    assert list(records.splits) == ["test", "train"]
    assert records.manifest is None
    assert records.splits["train"][0].compression == wrap
    assert [number(r.data) for r in records.all_records("train")] == list(range(7))
    found = records.record("train", 5)
    assert (number(found.data), found.position) == (5, 2)
    # Nobody has counted the records of the first file, so the second one's have no number.
    some = [(r.number, r.position, r.name) for r in records.some_records("train", 4)]
    assert some[:2] == [(0, 0, "train:0"), (1, 1, "train:1")]
    assert [each[:2] for each in some[2:]] == [(None, 0), (None, 1)]
    assert some[3][2] == "train-00001-of-00002, record 1"
    # The first file is read to its end, so these have.
    whole = list(records.some_records("train", 100))
    assert [r.number for r in whole] == list(range(7))
    assert [number(r.data) for r in whole] == list(range(7))
    named = {f.name: (f.dtype, f.shape) for f in inferred_schema(records).features}
    assert named == {f.name: (f.dtype, f.shape) for f in NUMBERS.features}
    one = open_records(str(folder / "train-00001-of-00002"))
    assert [number(r.data) for r in one.all_records("train")] == [3, 4, 5, 6]
    both = open_records(str(folder / "train-*"))
    assert len(both.splits["train"]) == 2


def test_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no record at all, but a text")
    with pytest.raises(UsageError, match="none of its 1 files has TFRecords"):
        open_records(str(tmp_path))
    with pytest.raises(UsageError, match="there is no file"):
        open_records(str(tmp_path / "nothing"))


@pytest.mark.parametrize("place", [3, 20, -2])
def test_a_damaged_record_is_named(tmp_path: Path, place: int) -> None:
    folder = foreign(tmp_path)
    path = folder / "train-00001-of-00002"
    data = bytearray(path.read_bytes())
    data[place] ^= 16
    path.write_bytes(data)
    if place == 3:  # its first bytes do not show records any more, but its name does
        found = open_records(str(folder))
        assert len(found.splits["train"]) == 1
        (problem,) = found.problems
        assert problem.startswith(f"{path} is TFRecords by its name, and does not begin as one")
        return
    with pytest.raises(RunError, match=r"00001-of-00002: record \d cannot be read: the check"):
        list(open_records(str(folder)).all_records("train"))


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    folder = foreign(tmp_path)
    path = folder / "train-00001-of-00002"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(RunError, match="record 3 cannot be read: the file ends inside a record"):
        list(open_records(str(folder)).all_records("train"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id==3", [3]),
        ("id >= 5", [5, 6]),
        ("row==4", [2, 3, 4]),
        ("id<3 and row==4", [2]),
        ("text~'record [12]$'", [1, 2]),
        ("text=='record 6'", [6]),
        ("len(row)!=3", []),
        ("len(row)==3 and id!=0", [1, 2, 3, 4, 5, 6]),
    ],
)
def test_conditions(tmp_path: Path, text: str, expected: list[int]) -> None:
    records = open_records(str(write_numbers(tmp_path, [7])))
    holds = parse_condition(text, records.schema)
    values = [parse_any(record.data) for record in records.all_records("train")]
    assert [int(each["id"][0]) for each in values if holds(each)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id", "--where must be FEATURE OPERATOR VALUE"),
        ("ix==3", "--where must name a feature, got 'ix'; there are id, row, text"),
        ("id==three", "id has numbers, and 'three' is none"),
        ("text~(", "is no regular expression"),
    ],
)
def test_wrong_conditions(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        parse_condition(text, NUMBERS)({"id": np.array([1]), "text": [b"a"]})


def test_an_index_of_another_shard_is_named(tmp_path: Path) -> None:
    path = write_numbers(tmp_path, [5, 4])
    shards = Manifest.from_bytes((path / MANIFEST_PATH).read_bytes()).shards
    first, second = (path / shard.name.index_path for shard in shards)
    second.write_bytes(first.read_bytes()[:-4])
    records = open_records(str(path))
    with pytest.raises(UsageError, match="see what is broken with `recordmill verify`"):
        records.record("train", 7)


def test_a_manifest_that_disagrees_with_itself_is_named(tmp_path: Path) -> None:
    manifest = write_numbers(tmp_path, [5, 4]) / MANIFEST_PATH
    content = json.loads(manifest.read_bytes())
    content["shards"][1]["file_bytes"] += 1
    manifest.write_text(json.dumps(content))
    with pytest.raises(UsageError, match="is not compressed, so its file must have") as raised:
        open_records(str(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", ["{", "[]", '{"train": '])
def test_statistics_that_are_cut_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(UsageError, match=r"s\.json cannot be used: "):
        read_description(str(tmp_path / "s.json"))
    assert read_description(str(tmp_path / "none.json")) == {}


def test_what_is_no_regular_file_is_passed_over(tmp_path: Path) -> None:
    written = write_numbers(tmp_path / "dataset", [5])
    shard = Manifest.from_bytes((written / MANIFEST_PATH).read_bytes()).shards[0].name.path
    (tmp_path / "train-a.tfrecord").write_bytes((written / shard).read_bytes())
    (tmp_path / "b.tfrecord").symlink_to("nothing")
    os.mkfifo(tmp_path / "c.tfrecord")
    assert len(list(open_records(f"{tmp_path}/*.tfrecord").all_records("train"))) == 5
    with pytest.raises(UsageError, match="a fifo, and only regular files are read"):
        open_records(f"{tmp_path}/c.tfrecord")
