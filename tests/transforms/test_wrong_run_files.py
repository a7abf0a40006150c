"""Files of a run that are cut or of wrong types count as none, or end in one line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.errors import RunError
from recordmill.records.manifest import ShardInfo
from recordmill.records.state import FormatError, decode, encode
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.dataset.element_sink import SpoolFile
from recordmill.transforms.dataset.rejects import RejectFile
from recordmill.transforms.dataset.run_state import (
    Nothing,
    parse_state,
    read_state,
    seal,
    write_state,
)
from recordmill.transforms.dataset.shard_writer import ShardDescription
from recordmill.transforms.examples.examples_state import ReadResult, RecordPlan, ShardRecords
from recordmill.transforms.examples.schema_survey import FeatureFacts, SchemaSurvey
from recordmill.transforms.examples.shard_scan import ShardDamage
from recordmill.transforms.examples.sort_keys import KeySplits
from recordmill.transforms.images.image_shard_plan import ImageShardPlan, ImageSplit
from recordmill.transforms.images.reference_files import ReferenceFiles, write_references
from recordmill.transforms.images.references import ImageReference, StoredBytes
from recordmill.transforms.images.statistics import ImageStatistics
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.run_files import RunFileInfo, RunFiles, read_run_file
from recordmill.transforms.shuffle.shard_ranges import PlannedShards, PlannedSplit
from recordmill.transforms.sources.work_item_files import read_work_item, write_work_items
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.text.cleaning.duplicates import FingerprintState, RowsState
from recordmill.transforms.text.text_state import ScatterResult, ShardPlan, TextShardStatistics

from ..mutations import paths_of, with_value, wrong_bytes, wrong_json

RUNS = (RunFileInfo("b", 100, 20, 2),)
SCATTERED = ScatterResult(
    runs=RUNS, chunks=(5, 1), tokens=(50, 10), documents_read=7, inputs_read=9, documents_used=6,
    rejected={"not_utf8": 1}, rejected_file=(90, 7), labels=("cat", "dog"),
    contents={"train": ContentSample(6, names={"00ff": (2, "a.txt at byte 7")}, limit="00ff")},
    dropped={"too_short": [1, 0]}, dropped_file=(80, 6),
)  # fmt: skip
PLAN = ShardPlan(
    splits=(PlannedSplit("train", 2, 5, 50, 900),), documents_read=7, documents_used=6,
    rejected={"not_utf8": 1}, rejected_files={3: (90, 7)}, classes=("cat", "dog"),
    shared_contents=({"splits": ["train", "test"], "shared": 2},), sums=(7, 8),
)  # fmt: skip
SURVEY = SchemaSurvey(9, "example", "", {"id": FeatureFacts("int64", 1), "x": FeatureFacts("", 0)})
READ = ReadResult(
    runs=RUNS, counts={"records_read": 9, "duplicates": 1}, records=(5, 3), sizes=(500, 300),
    rejected={"broken_record": 1}, rejected_file=(90, 7), survey=SURVEY,
    contents={"train": ContentSample(6, names={"00ff": (2, "a at byte 7")})},
)  # fmt: skip
RECORDS = RecordPlan(
    splits=(PlannedSplit("train", 2, 5, 900, 900),), counts={"records_read": 9},
    rejected={"broken_file": 1}, rejected_files={3: (90, 7)}, survey=SURVEY,
    shared_contents=({"splits": ["train", "test"], "records": 2},), sums=(7, 8),
)  # fmt: skip
IMAGES = ImageShardPlan(
    (ImageSplit("train", 6, 1, (0, 3, 6)),), {"no_image": 2}, RejectFile(0, 99, 7), {"mask": 2},
    {".txt": (1, "a.txt")}, 3,
)  # fmt: skip
IMAGE_SUMS = ImageStatistics(
    counts=Counter(masks=2), classes=Counter(dog=1), sides={"width": (3, 9)},
    rejected=Counter(broken_image=1), rejected_files=[RejectFile(1, 99, 7)],
    contents=ContentSample(2, "00", "ff", {"00": (1, "a.jpg")}),
)  # fmt: skip
SHARD = ShardInfo("train", 0, 1, 3, 90, 90, 5, "{SPLIT}-{SHARD_X_OF_Y}.tfrecord")
KEYS = KeySplits("id", "int64", (3, 1 << 63), (1, 2))
TEXTS = KeySplits("id", "bytes", (b"a", b"\xff"), (1, 2))
TEXT_SUMS = TextShardStatistics(counts={"masked": 2}, lengths=[0, 3], classes={"cat": 3})
TOKEN = "0123456789abcdef"
# What is written -> the type that it is read as.
STATES: dict[str, tuple[msgspec.Struct, Any]] = {
    "scatter": (SCATTERED, ScatterResult),
    "regroup": (RunFiles(runs=RUNS), RunFiles),
    "plan of text": (PLAN, ShardPlan),
    "plan of images": (IMAGES, ImageShardPlan),
    "shard of text": (
        ShardDescription(SHARD, TEXT_SUMS, (12, 5)), ShardDescription[TextShardStatistics]
    ),
    "shard of images": (ShardDescription(SHARD, IMAGE_SUMS), ShardDescription[ImageStatistics]),
    "shard of records": (
        ShardDescription(SHARD, ShardRecords(bytes=9)), ShardDescription[ShardRecords]
    ),
    "reading of records": (READ, ReadResult),
    "plan of records": (RECORDS, RecordPlan),
    "keys": (KEYS, KeySplits),
    "texts": (TEXTS, KeySplits),
    "merge tree": (MergeTree(9, 4, 8), MergeTree),
    "elements": (SpoolFile("a", 9, 90), SpoolFile),
    "hashes": (FingerprintState([3, 4], 9), FingerprintState),
    "pairs": (RowsState([3]), RowsState),
    "damage": (ShardDamage("a", 7, "cut", 1), ShardDamage),
}  # fmt: skip
_BELOW_0 = ("values",)  # of numbers that may be -1
_NOT_ONLY_NUMBERS = {"shared_contents"}


def read(kind: str, data: bytes) -> Any:
    return parse_state(data, TOKEN, STATES[kind][1])


def stored(kind: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(encode(STATES[kind][0]))
    return content | {"run": TOKEN}


def one_line(error: Exception) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 1500


@pytest.mark.parametrize("kind", STATES)
def test_what_was_written_is_read(kind: str, tmp_path: Path) -> None:
    written, kind_of = STATES[kind]
    write_state(f"{tmp_path}/state", TOKEN, written)
    assert read_state(f"{tmp_path}/state", TOKEN, kind_of) == written
    assert read_state(f"{tmp_path}/state", "f" * 16, kind_of) is None
    assert read_state(f"{tmp_path}/none", TOKEN, kind_of) is None


def test_a_part_of_a_description_can_be_read_alone() -> None:
    data = seal(encode(stored("scatter"), indent=None))
    assert parse_state(data, TOKEN, RunFiles) == RunFiles(runs=RUNS)
    assert parse_state(data, TOKEN, Nothing) == Nothing()
    assert parse_state(
        seal(encode(stored("plan of text"), indent=None)), TOKEN, PlannedShards
    ) == PlannedShards(splits=PLAN.splits, sums=(7, 8))


def numbers_in(kind: str) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each number, but for those of which anything may be."""
    for path in paths_of(json.loads(encode(STATES[kind][0]))):
        if isinstance(value_at(json.loads(encode(STATES[kind][0])), path), int) and not (
            {*path} & _NOT_ONLY_NUMBERS
        ):
            yield path


def value_at(content: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        content = content[key]
    return content


@pytest.mark.parametrize("kind", STATES)
def test_a_wrong_number_is_refused_by_the_name_of_its_field(kind: str) -> None:
    wrong: tuple[Any, ...] = ("7", 7.0, None, [7], -2, -1, 10**400)
    for path in numbers_in(kind):
        is_flag = isinstance(value_at(stored(kind), path), bool)
        for value in wrong:
            if value == -1 and path[-1] in _BELOW_0:
                continue
            data = with_value(stored(kind), path, value)
            with pytest.raises(FormatError) as raised:
                decode(data, STATES[kind][1])
            one_line(raised.value)
            assert str(raised.value).startswith(path[0]), (path, value)
            kinds = "must be|expected `int`|invalid base64|cannot be"
            assert is_flag or re.search(kinds, str(raised.value)), raised.value
            assert read(kind, data) is None


@pytest.mark.parametrize(
    ("kind", "path", "value", "message"),
    [
        ("scatter", ("chunks", 1), "5", "chunks[1] must be an integer, and is text"),
        ("scatter", ("documents_read",), -1, "documents_read expected `int` >= 0"),
        ("scatter", ("rejected_file", 1), 1 << 32, "rejected_file[1] expected `int` <= 42949"),
        ("scatter", ("rejected_file",), [1, 2, 3], "rejected_file expected `array` of length 2"),
        ("scatter", ("contents", "train", "items"), 1.0, "an integer, and is a number"),
        ("plan of text", ("dropped_files",), {"a": [1, 2]}, "a key of dropped_files must be"),
        ("regroup", ("runs", 0, "tail_bytes"), 1 << 63, "runs[0].tail_bytes expected `int` <= "),
        ("plan of text", ("splits", 0, "shards"), None, "splits[0].shards must be an integer"),
        ("plan of images", ("splits", 0, "copies"), 0, "splits[0].copies expected `int` >= 1"),
        ("plan of images", ("rejected_file", 2), -1, "rejected_file[2] expected `int` >= 0"),
        ("shard of text", ("index", 0), "x", "index[0] must be an integer, and is text"),
        ("shard of text", ("shard", "crc32c"), 1 << 32, "shard.crc32c expected `int` <= 42949672"),
        ("shard of images", ("statistics", "counts", "masks"), -1, "statistics.counts [...] expec"),
        ("shard of images", ("statistics", "sides", "width"), [1], "statistics.sides[...] exp"),
        ("plan of records", ("survey", "features", "id", "values"), -2, "expected `int` >= -1"),
        ("plan of records", ("survey", "features", "id", "dtype"), "int32", "invalid enum value"),
        ("keys", ("dtype",), "bytes", "values of bytes cannot be 3"),
        ("texts", ("values", 0), "?", "values[0] invalid base64"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(kind: str, path: tuple[Any, ...], value: Any, message: str) -> None:
    with pytest.raises(FormatError) as raised:
        decode(with_value(stored(kind), path, value), STATES[kind][1])
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "needed"),
    [
        ("scatter", {"runs", "chunks", "tokens", "documents_read", "documents_used", "rejected",
                     "rejected_file", "inputs_read"}),
        ("regroup", {"runs"}),
        ("plan of text", {"splits", "documents_read", "documents_used", "rejected",
                          "rejected_files"}),
        ("plan of images", {"splits"}),
        ("shard of text", {"shard", "statistics"}),
        ("reading of records", {"runs", "counts", "records", "sizes", "rejected", "rejected_file",
                                "survey"}),
        ("plan of records", {"splits", "counts", "rejected", "rejected_files", "survey"}),
        ("keys", {"feature", "dtype", "values", "counts"}),
        ("hashes", {"rows", "documents"}),
        ("damage", {"file", "position", "problem", "count"}),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(kind: str, needed: set[str]) -> None:
    whole = stored(kind)
    decode(encode({name: whole[name] for name in needed}), STATES[kind][1])
    for name in needed:
        with pytest.raises(FormatError, match=f"^{name} is missing$"):
            decode(encode({n: whole[n] for n in needed - {name}}), STATES[kind][1])


@pytest.mark.parametrize("kind", STATES)
def test_a_cut_file_counts_as_none(kind: str) -> None:
    for data in (b"", json.dumps(stored(kind)).encode()[:-9], b"[]", b"null", b"[" * 100_000):
        assert read(kind, data) is None


@settings(max_examples=200)
@given(data=st.data(), kind=st.sampled_from(sorted(STATES)))
def test_any_wrong_description_is_read_or_counts_as_none(data: st.DataObject, kind: str) -> None:
    read(kind, data.draw(wrong_json(stored(kind))))


@pytest.mark.parametrize("name", ["../b", "/etc/passwd", "c/../../b"])
def test_a_run_file_lies_in_the_folder_of_its_description(tmp_path: Path, name: str) -> None:
    info = RunFileInfo(name, 100, 20, 2)
    with pytest.raises(RunError, match="which is not inside of it"):
        read_run_file(str(tmp_path), info)


@settings(max_examples=100)
@given(data=st.data())
def test_any_wrong_work_item(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    work = tmp_path_factory.getbasetemp() / "work"
    source = SourceRange("a.txt", "a.txt", "text", "", 20)
    write_work_items(str(work), [[source], [source, source]])
    assert read_work_item(str(work), 1) == [source, source]
    name = data.draw(st.sampled_from(("items-000000.json", "items-000000.jsonl")))
    path = work / "work-items" / name
    path.write_bytes(data.draw(wrong_bytes(path.read_bytes())))
    for number in range(2):
        try:
            read_work_item(str(work), number)
        except RunError as error:
            one_line(error)


@settings(max_examples=100)
@given(data=st.data())
def test_any_wrong_reference(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    reference = ImageReference("a.jpg", StoredBytes("b/a.jpg", "range", 5, 90), ("dog",))
    line = data.draw(wrong_json(orjson.loads(reference.to_line()))).decode(errors="replace")
    work = str(tmp_path_factory.getbasetemp() / "images")
    write_references(work, 0, 0, [line])
    try:
        ReferenceFiles(work, 0).read(0, 0)
    except RunError as error:
        one_line(error)
