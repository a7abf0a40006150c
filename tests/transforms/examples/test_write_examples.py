"""`WriteExamples` and `ReadExamples` in pipelines of users' own."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import (
    FixedWindows,
    SlidingWindows,
    TimestampedValue,
    WindowFn,
)

from recordmill.pipelines.command_line import main
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import Manifest
from recordmill.transforms import WriteExamples
from recordmill.transforms.dataset.element_sink import SpoolFile
from recordmill.transforms.dataset.pipeline_run import begin_run
from recordmill.transforms.examples.example_elements import encode_elements
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.schema_survey import parse_features
from recordmill.transforms.shuffle import regroup as regrouping
from recordmill.transforms.shuffle import shuffle_stages
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import drop_runs, regroup
from recordmill.transforms.sources.element_items import ShuffledElements

from ...pipelines.jobs import shard_bytes
from ..user_pipelines import in_small_items, write_elements
from .record_files import example, unframed


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": i, "text": f"row {i}", "weights": np.ones(i % 3), "ids": [i, i + 1]}
        for i in range(count)
    ]


def row_id(element: Any) -> int:
    return int(element["id"])


def records(output: Path) -> list[bytes]:
    return [record for data in shard_bytes(output).values() for record in unframed(data)]


def write(
    output: Path,
    elements: list[Any],
    *,
    bundles: int = 1,
    workers: int = 1,
    max_runs: int = 0,
    **options: Any,
) -> dict[str, bytes]:
    """Runs a pipeline in which the elements are in so many bundles."""
    writing = WriteExamples(str(output), **options)
    if max_runs:
        in_small_items(writing, max_runs=max_runs)
    write_elements(writing, elements, bundles=bundles, workers=workers)
    return shard_bytes(output)


def test_any_bundles_and_any_order_give_the_same_shards(tmp_path: Path) -> None:
    options = {"num_shards": 3, "splits": {"train": 0.8, "test": 0.2}}
    elements: list[Any] = [*rows(300), *(example(id=i, other=1.5) for i in range(50))]
    first = write(tmp_path / "a", elements, **options)
    assert len(first) >= 4
    assert write(tmp_path / "b", elements[::-1], bundles=7, run_bytes=2000, **options) == first
    assert write(tmp_path / "c", elements, bundles=4, workers=2, **options) == first
    counts = Manifest.from_bytes((tmp_path / "a/_meta/manifest.json").read_bytes()).counts
    assert (counts["records_read"], counts["examples"]) == (350, 350)
    assert not (tmp_path / "a/_tmp").exists()
    for name in "abc":
        assert main(["verify", str(tmp_path / name)]) == 0
    ids = {parse_features(record) is not None for record in records(tmp_path / "a")}
    assert ids == {True}


@pytest.mark.parametrize("deduplicate", [False, True])
def test_many_run_files_are_regrouped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deduplicate: bool
) -> None:
    regrouped: list[str] = []
    built_from: list[bool] = []

    def regroup_twice(job: ExamplesJob, tree: MergeTree, level: int, number: int) -> None:
        regroup(job, tree, level, number)
        regroup(job, tree, level, number)  # as an engine that repeats it
        folder = job.runs_folder(level)
        regrouped.extend(run.path(folder) for run in job.read_run_infos(level, number) or ())

    def drop(job: ExamplesJob, level: int) -> None:
        drop_runs(job, level)
        scattered = list(Path(job.workspace.work).glob("runs-0/*.bin"))
        built_from.append(not scattered and all(Path(path).exists() for path in regrouped))

    monkeypatch.setattr(regrouping, "regroup", regroup_twice)
    monkeypatch.setattr(shuffle_stages, "drop_runs", drop)
    options = {"num_shards": 3, "splits": {"train": 0.8, "test": 0.2}, "deduplicate": deduplicate}
    elements: list[Any] = [*rows(300), *rows(40)]
    first = write(tmp_path / "a", elements, **options)
    assert (regrouped, built_from) == ([], [])
    again = write(tmp_path / "b", elements, bundles=3, run_bytes=2000, max_runs=4, **options)
    assert again == first
    assert len(regrouped) >= 8  # groups x ranges of keys
    assert built_from == [True]
    counts = Manifest.from_bytes((tmp_path / "b/_meta/manifest.json").read_bytes()).counts
    assert counts["examples"] == (300 if deduplicate else 340)
    assert main(["verify", str(tmp_path / "b")]) == 0


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    elements = [bytes([i % 7]) * (i % 50) for i in range(200)]
    write(tmp_path / "ds", elements, num_shards=2, bundles=3)
    assert Counter(records(tmp_path / "ds")) == Counter(elements)
    assert main(["verify", str(tmp_path / "ds")]) == 0


def test_a_key_decides_position_and_split(tmp_path: Path) -> None:
    options = {"num_shards": 2, "key": row_id, "splits": {"train": 0.5, "test": 0.5}}
    first = write(tmp_path / "a", rows(100), **options)
    changed = [{**row, "text": "all the same"} for row in rows(100)]
    second = write(tmp_path / "b", changed, **options)
    order = [[r.split(b"ids")[0] for r in unframed(data)] for data in first.values()]
    assert [len(part) for part in order] == [len(unframed(data)) for data in second.values()]
    other = write(tmp_path / "c", rows(100), **(options | {"key": None}))
    assert other != first


def test_records_of_one_key_may_come_from_any_bundle(tmp_path: Path) -> None:
    def document(element: Any) -> int:
        return row_id(element) // 10

    options = {"num_shards": 2, "key": document, "splits": {"train": 0.5, "test": 0.5}}
    one = write(tmp_path / "a", rows(100), **options)
    assert write(tmp_path / "b", rows(100)[::-1], bundles=7, **options) == one


def test_deduplicate_across_bundles(tmp_path: Path) -> None:
    elements = [example(id=i % 30) for i in range(300)]
    one = write(tmp_path / "a", elements, deduplicate=True, num_shards=2)
    assert write(tmp_path / "b", elements, deduplicate=True, num_shards=2, bundles=9) == one
    assert len(records(tmp_path / "a")) == 30
    counts = json.loads((tmp_path / "b/_meta/manifest.json").read_bytes())["counts"]
    assert counts["dropped"] == {"duplicate": 270}


@pytest.mark.parametrize("windows", [FixedWindows(10), SlidingWindows(20, 20)])
def test_elements_in_windows_are_written_as_those_without(
    tmp_path: Path, windows: WindowFn
) -> None:
    expected = write(tmp_path / "a", rows(50))
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        elements = pipeline | beam.Create(rows(50))
        stamped = elements | "Stamp" >> beam.Map(lambda row: TimestampedValue(row, row["id"]))
        in_windows = stamped | "Windows" >> beam.WindowInto(windows)
        _ = in_windows | "Write" >> WriteExamples(str(tmp_path / "b"))
    assert shard_bytes(tmp_path / "b") == expected


def test_files_of_repeated_bundles_are_not_listed(tmp_path: Path) -> None:
    elements = rows(100)
    first = write(tmp_path / "a", elements, num_shards=2)
    options = PipelineOptions(direct_num_workers=1, direct_runner_bundle_repeat=2)
    with beam.Pipeline(runner="FnApiRunner", options=options) as pipeline:
        _ = pipeline | beam.Create(elements) | WriteExamples(str(tmp_path / "b"), num_shards=2)
    assert shard_bytes(tmp_path / "b") == first
    assert not (tmp_path / "b/_tmp").exists()


@pytest.mark.parametrize("suffix", ["", ".keys"])
def test_a_lost_file_of_elements_ends_the_pipeline(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ShuffledElements.plan

    def lose(sink: ShuffledElements[Any], spooled: list[SpoolFile]) -> None:
        Path(spooled[0].path(sink.job) + suffix).unlink()
        plan(sink, spooled)

    monkeypatch.setattr(ShuffledElements, "plan", lose)
    with pytest.raises(Exception, match=r"elements/\w* is missing or damaged; run the pipeline"):
        write(tmp_path / "ds", rows(20), key=row_id)
    assert not (tmp_path / "ds/_SUCCESS").exists()


def test_a_dataset_is_replaced_only_when_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "ds", rows(20))
    before = shard_bytes(tmp_path / "ds")
    with pytest.raises(UsageError, match="holds a dataset"):
        WriteExamples(str(tmp_path / "ds"))
    after = write(tmp_path / "ds", rows(30), overwrite=True)
    assert after != before
    assert len(records(tmp_path / "ds")) == 30
    assert main(["verify", str(tmp_path / "ds")]) == 0


def test_a_dataset_whose_manifest_is_damaged_is_replaced_only_when_asked_for(
    tmp_path: Path,
) -> None:
    output = tmp_path / "ds"
    write(output, rows(20), num_shards=3)
    manifest = output / "_meta/manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:100])
    with pytest.raises(RunError, match=r"manifest.json cannot be read: .*or overwrite=True$"):
        WriteExamples(str(output))
    notes = output / "train/notes.txt"
    notes.write_text("mine")
    with pytest.raises(UsageError, match=r"notes.txt; move them away"):
        write(output, rows(30), num_shards=2, overwrite=True)
    assert len(records(output)) == 20
    notes.unlink()
    write(output, rows(30), num_shards=2, overwrite=True)
    assert len(records(output)) == 30
    assert len(list(output.glob("**/*.tfrecord*"))) == 2
    assert main(["verify", str(output)]) == 0


def test_what_a_killed_pipeline_left_is_replaced(tmp_path: Path) -> None:
    job = WriteExamples(str(tmp_path / "ds"))._sink.job
    begin_run(job, "WriteExamples")
    begin_run(job, "WriteExamples")  # as an engine that repeats it
    (tmp_path / "ds/_tmp/elements").mkdir()
    (tmp_path / "ds/_tmp/elements/0").write_bytes(b"half of it")
    assert len(write(tmp_path / "ds", rows(20))) == 1
    assert len(records(tmp_path / "ds")) == 20
    assert not (tmp_path / "ds/_tmp").exists()


def test_an_unfinished_run_of_a_command_is_not_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "ds/_tmp").mkdir(parents=True)
    (tmp_path / "ds/_tmp/plan.json").write_text('{"fingerprint": "x"}')
    with pytest.raises(UsageError, match="an unfinished run of a command"):
        WriteExamples(str(tmp_path / "ds"))


@pytest.mark.parametrize(
    ("element", "message"),
    [(7, "takes bytes or dicts"), ({"a": object()}, "a"), ({"": 1}, "name must be printable"),
     ({"a": ["x", 1]}, "values of one type"),
     ({"a": [1, "x"]}, "values of one type, and has int"),
     ({"a": 1 << 64}, "feature a has a number beyond 64 bits with a sign: 1844"),
     ({"a": [1 << 63, -1]}, "feature a has a number beyond 64 bits with a sign: 9223"),
     ({"a": np.uint64(1 << 63)}, "feature a has a number beyond 64 bits with a sign: 922"),
     ({"a": [1 << 63]}, "feature a has a number beyond 64 bits with a sign: 922"),
     ({"a": [1.5, -1e300, math.inf]}, "feature a has a number beyond float32, .*: 1e[+]300")],
)  # fmt: skip
def test_elements_that_no_record_can_hold(element: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        encode_elements([element])


def test_integers_of_any_width_keep_their_last_bits() -> None:
    ids = [np.uint64((1 << 63) - 1), (1 << 53) + 1, np.int8(-3), [np.uint64((1 << 53) + 1)] * 2]
    ids += [[np.uint64((1 << 53) + 1), np.int64(-5)], [np.uint64(5), -(1 << 63)]]
    ((data, offsets, positions),) = encode_elements([{"id": each} for each in ids])
    found = [data[a + 12 : b - 4].tobytes() for a, b in itertools.pairwise(offsets)]
    assert [found[i] for i in positions] == [
        example(id=np.array(each, object).reshape(-1).astype(int).tolist()) for each in ids
    ]


def test_dicts_become_examples_as_protobuf_writes_them() -> None:
    given: list[tuple[dict[str, Any], bytes]] = [
        ({"b": 1, "a": "x"}, example(a="x", b=1)),
        ({"a": True}, example(a=1)),
        ({"a": np.array([[1, 2], [3, 4]])}, example(a=[1, 2, 3, 4])),
        ({"a": [0.5, 1]}, example(a=[0.5, 1.0])),
        ({"a": np.array(["x", "yz"])}, example(a=["x", "yz"])),
        ({"a": None, "b": -5}, example(b=-5)),
        ({"a": b"\xff"}, example(a=b"\xff")),
        ({}, b""),
    ]
    found: dict[int, bytes] = {}
    for data, offsets, positions in encode_elements([element for element, _ in given]):
        for at, position in enumerate(positions):
            found[position] = data[offsets[at] + 12 : offsets[at + 1] - 4].tobytes()
    assert [found[i] for i in range(len(given))] == [expected for _, expected in given]
