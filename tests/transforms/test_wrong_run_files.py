"""Files of a run that are cut or of wrong types count as none, or end in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.errors import RunError
from recordmill.records.manifest import ShardInfo
from recordmill.records.state import FormatError, decode
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.dataset.run_state import parse_state
from recordmill.transforms.dataset.shard_writer import ShardDescription
from recordmill.transforms.examples.examples_state import PlannedRecords, ReadResult, RecordPlan
from recordmill.transforms.examples.schema_survey import FeatureFacts, SchemaSurvey
from recordmill.transforms.images.image_shard_plan import ImageShardPlan, ImageSplit
from recordmill.transforms.images.reference_files import ReferenceFiles, write_references
from recordmill.transforms.images.references import ImageReference, StoredBytes
from recordmill.transforms.images.statistics import ImageStatistics
from recordmill.transforms.shuffle.run_files import RunFileInfo
from recordmill.transforms.shuffle.shuffle_state import run_files_from_json
from recordmill.transforms.sources.work_item_files import read_work_item, write_work_items
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.text.text_state import (
    PlannedSplit,
    ScatterResult,
    ShardPlan,
)

from ..mutations import wrong_bytes, wrong_json

SCATTERED = ScatterResult(
    runs=(RunFileInfo("a/b", 100, 20, 2),), chunks=(5, 1), tokens=(50, 10), documents_read=7,
    documents_used=6, rejected={"not_utf8": 1}, rejected_file=(90, 7), labels=("cat", "dog"),
    contents={"train": ContentSample(6, names={"00ff": (2, "a.txt at byte 7")}, limit="00ff")},
)  # fmt: skip
PLAN = ShardPlan(
    splits=(PlannedSplit("train", 2, 5, 50, 900),), documents_read=7, documents_used=6,
    rejected={"not_utf8": 1}, rejected_files={3: (90, 7)}, classes=("cat", "dog"),
    shared_contents=({"splits": ["train", "test"], "shared": 2},),
)  # fmt: skip
SURVEY = SchemaSurvey(9, "example", "", {"id": FeatureFacts("int64", 1), "x": FeatureFacts("", 0)})
READ = ReadResult(
    runs=(RunFileInfo("a/b", 100, 20, 2),), counts={"records_read": 9, "duplicates": 1},
    records=(5, 3), sizes=(500, 300), rejected={"broken_record": 1}, rejected_file=(90, 7),
    survey=SURVEY, contents={"train": ContentSample(6, names={"00ff": (2, "a at byte 7")})},
)  # fmt: skip
RECORDS = RecordPlan(
    splits=(PlannedRecords("train", 2, 5, 900),), counts={"records_read": 9},
    rejected={"broken_file": 1}, rejected_files={3: (90, 7)}, survey=SURVEY,
    shared_contents=({"splits": ["train", "test"], "records": 2},), sums=(7, 8),
)  # fmt: skip
IMAGES = ImageShardPlan((ImageSplit("train", 6, 1, (0, 3, 6)),), {}, None, {"mask": 2}, {})
DONE = {
    "shard": {
        "split": "train", "index": 0, "count": 1, "records": 3, "file_bytes": 90,
        "record_bytes": 90, "crc32c": 5, "template": "{SPLIT}-{SHARD_X_OF_Y}.tfrecord",
    },
    "index": [12, 5],
    "statistics": {"counts": {}},
}  # fmt: skip
TOKEN = "0123456789abcdef"
KINDS: dict[str, tuple[Any, Callable[[dict[str, Any]], Any]]] = {
    "scatter": (SCATTERED.to_json(), lambda c: ScatterResult.from_json(c, "a")),
    "regroup": ({"runs": SCATTERED.to_json()["runs"]}, lambda c: run_files_from_json(c, "a")),
    "plan of text": (PLAN.to_json(), ShardPlan.from_json),
    "plan of images": (IMAGES.to_json(), ImageShardPlan.from_json),
    "shard": (DONE, ShardDescription.from_json),
    "reading of records": (READ.to_json(), lambda c: ReadResult.from_json(c, "a")),
    "plan of records": (RECORDS.to_json(), RecordPlan.from_json),
}


def read(kind: str, data: bytes) -> Any:
    return parse_state(data, TOKEN, KINDS[kind][1])


def stored(kind: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(KINDS[kind][0]))
    return content | {"run": TOKEN}


def one_line(error: Exception) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 1500


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("scatter", SCATTERED), ("regroup", SCATTERED.runs), ("plan of text", PLAN),
     ("plan of images", IMAGES), ("reading of records", READ), ("plan of records", RECORDS)],
)  # fmt: skip
def test_what_was_written_is_read(kind: str, expected: Any) -> None:
    assert read(kind, json.dumps(stored(kind)).encode()) == expected


def test_a_shard_says_what_it_is() -> None:
    found = read("shard", json.dumps(stored("shard")).encode())
    assert found.info == ShardInfo(**DONE["shard"])  # type: ignore[arg-type]
    assert found.index == (12, 5)


def test_a_sample_of_an_older_run_has_no_limit() -> None:
    content = ImageStatistics().to_json()
    content["contents"] = [2, "00", "ff", {"00": [1, "a.jpg"]}]
    expected = ContentSample(2, "00", "ff", {"00": (1, "a.jpg")})
    assert ImageStatistics.from_json(content).contents == expected
    content["contents"] = [2, "00", "ff", {"00": [1, "a.jpg"]}, 7]
    with pytest.raises(RunError, match="the statistics of a shard are not what this run wrote"):
        ImageStatistics.from_json(content)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_file_counts_as_none(kind: str) -> None:
    for data in (b"", json.dumps(stored(kind)).encode()[:-9], b"[]", b"null", b"[" * 100_000):
        assert read(kind, data) is None


@settings(max_examples=100)
@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)))
def test_any_wrong_description_is_read_or_counts_as_none(data: st.DataObject, kind: str) -> None:
    try:
        read(kind, data.draw(wrong_json(stored(kind))))
    except RunError as error:  # a path that leads outside of the run's folder
        one_line(error)


@settings(max_examples=100)
@given(data=st.data())
def test_any_wrong_statistics(data: st.DataObject) -> None:
    try:
        ImageStatistics.from_json(
            decode(data.draw(wrong_json(json.loads(json.dumps(ImageStatistics().to_json())))), dict)
        )
    except RunError as error:
        one_line(error)
    except FormatError:
        pass  # no JSON: what is read as state fails before


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
