"""Commit by itself: all of a dataset or nothing, however often it is begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline as BeamPipeline
from apache_beam.testing.util import assert_that, equal_to

from recordmill.records.errors import RunError
from recordmill.records.manifest import (
    MANIFEST_PATH,
    STATISTICS_PATH,
    SUCCESS_PATH,
    Manifest,
    check_success,
)
from recordmill.records.seqio_metadata import COMPLETED_PATH, seqio_names
from recordmill.records.shards import DEFAULT_TEMPLATE, NAMINGS
from recordmill.transforms.dataset.commit import CommitSpec, commit
from recordmill.transforms.dataset.stage_pipeline import CommitDataset
from recordmill.transforms.storage import files

from .small_job import PLAN, SmallJob, build, build_all, commit_spec, small_job

SHARDS = [
    "test/test-00000-of-00001.tfrecords",
    "train/train-00000-of-00002.tfrecords",
    "train/train-00001-of-00002.tfrecords",
]
COUNTS = {"examples": 6, "rejected": {}}


def tree(folder: Path) -> dict[str, bytes]:
    """The published files, and what is in them."""
    return {
        name: path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not (name := str(path.relative_to(folder))).startswith("_tmp/")
    }


def run(job: SmallJob, spec: CommitSpec, records: int, expected: list[dict[str, Any]]) -> None:
    """Runs the stage, and checks its exact output."""
    with BeamPipeline(runner=FnApiRunner()) as pipeline:
        counts = pipeline | beam.Create([records]) | CommitDataset(job, spec)
        assert_that(counts, equal_to(expected))


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """What a commit that nothing disturbs makes of the small job."""
    job = small_job(tmp_path / "whole")
    commit(job, commit_spec(), build_all(job))
    return tree(tmp_path / "whole")


class TestWhole:
    def test_stage(self, tmp_path: Path, whole: dict[str, bytes]) -> None:
        job = small_job(tmp_path / "ds")
        run(job, commit_spec(), build_all(job), [COUNTS])
        assert tree(tmp_path / "ds") == whole
        assert not (tmp_path / "ds/_tmp").exists()

    def test_what_lies_there(self, whole: dict[str, bytes]) -> None:
        manifest = Manifest.from_bytes(whole[MANIFEST_PATH])
        assert [shard.name.path for shard in manifest.shards] == SHARDS
        assert [shard.records for shard in manifest.shards] == [1, 3, 2]
        assert manifest.counts == COUNTS
        assert {*manifest.paths, MANIFEST_PATH, SUCCESS_PATH} == set(whole)
        assert set(whole) == {
            *SHARDS,
            *(shard.name.index_path for shard in manifest.shards),
            "_SUCCESS", "_meta/manifest.json", "_meta/statistics.json", "labels.txt",
            "features.json", "dataset_info.json",
        }  # fmt: skip
        assert b'"sum": 204' in whole[STATISTICS_PATH]  # 0 + 1 + 2 + 100 + 101
        assert check_success(whole[SUCCESS_PATH], whole[MANIFEST_PATH])

    def test_twice(self, tmp_path: Path, whole: dict[str, bytes]) -> None:
        job = small_job(tmp_path / "ds")
        records = build_all(job)
        manifest = commit(job, commit_spec(), records)
        assert commit(job, commit_spec(), records) == manifest
        assert tree(tmp_path / "ds") == whole

    def test_twice_after_temporary_files_are_removed(
        self, tmp_path: Path, whole: dict[str, bytes]
    ) -> None:
        """An engine may repeat the stage after it had done all its work."""
        job = small_job(tmp_path / "ds")
        records = build_all(job)
        for _ in range(2):
            run(job, commit_spec(), records, [COUNTS])
        assert tree(tmp_path / "ds") == whole


class TestRefused:
    def refused(self, job: SmallJob, records: int, why: str) -> None:
        """Neither the stage nor the function publishes anything, and both say why."""
        with pytest.raises(Exception, match=why):
            run(job, commit_spec(), records, [])
        assert why in files.read_bytes(job.workspace.failure_path).decode()
        with pytest.raises(RunError, match=why):
            commit(job, commit_spec(), records)
        assert tree(Path(job.workspace.output)) == {}

    def test_missing_shard(self, tmp_path: Path, whole: dict[str, bytes]) -> None:
        job = small_job(tmp_path / "ds")
        records = build(job, "train", 0) + build(job, "test", 0)
        self.refused(job, records, "train-00001-of-00002.json is missing; run the same command")
        records += build(job, "train", 1)
        run(job, commit_spec(), records, [COUNTS])
        assert tree(tmp_path / "ds") == whole

    @pytest.mark.parametrize("records", [5, 7])
    def test_wrong_count(self, tmp_path: Path, records: int) -> None:
        job = small_job(tmp_path / "ds")
        assert build_all(job) == 6
        self.refused(job, records, f"{records} examples built, 6 in the finished shards")

    @pytest.mark.parametrize("kept", [0, 10])
    def test_cut_shard(self, tmp_path: Path, kept: int) -> None:
        job = small_job(tmp_path / "ds")
        records = build_all(job)
        [path] = tmp_path.rglob("train-00001-of-00002.tfrecords")
        path.write_bytes(path.read_bytes()[:kept])
        self.refused(job, records, f"bytes, and has {kept}; check the storage and run the same")

    def test_shard_that_is_gone(self, tmp_path: Path) -> None:
        job = small_job(tmp_path / "ds")
        records = build_all(job)
        [path] = tmp_path.rglob("test-00000-of-00001.tfrecords")
        path.unlink()
        self.refused(job, records, "bytes, and has -1; check the storage")


class TestReplacing:
    def old(self, output: Path, template: str = DEFAULT_TEMPLATE) -> SmallJob:
        """A finished dataset of other shards beside a file of the user, and a job to replace it."""
        job = small_job(output, {"train": (1, 1, 1), "validation": (4,)}, template=template)
        commit(job, commit_spec(), build_all(job))
        job.workspace.clean_up()
        if template == DEFAULT_TEMPLATE:
            (output / "train/notes.txt").write_text("mine")
        return small_job(output, template=template)

    def test_old_files_go_and_others_stay(self, tmp_path: Path, whole: dict[str, bytes]) -> None:
        job = self.old(tmp_path / "ds")
        run(job, commit_spec(replaces=True), build_all(job), [COUNTS])
        assert tree(tmp_path / "ds") == {**whole, "train/notes.txt": b"mine"}
        assert not (tmp_path / "ds/validation").exists()

    def test_old_dataset_stays_while_shards_are_missing(self, tmp_path: Path) -> None:
        job = self.old(tmp_path / "ds")
        before = tree(tmp_path / "ds")
        records = build(job, "train", 0) + build(job, "test", 0)
        with pytest.raises(RunError, match="is missing"):
            commit(job, commit_spec(replaces=True), records)
        assert tree(tmp_path / "ds") == before


class MachineDiedError(RunError):
    """What a storage raises for the test."""


class TestBroken:
    """A commit that ends at any of its steps on storage, as if its machine had died there."""

    def commit_until(
        self, job: SmallJob, spec: CommitSpec, step: int, monkeypatch: pytest.MonkeyPatch
    ) -> bool:
        """Commits, and fails at a step; returns whether it came that far."""
        steps = 0

        def counted(act: Callable[..., Any]) -> Callable[..., Any]:
            def act_or_fail(*args: Any, **kwargs: Any) -> Any:
                nonlocal steps
                steps += 1
                if steps > step:
                    raise MachineDiedError
                return act(*args, **kwargs)

            return act_or_fail

        with monkeypatch.context() as patch:
            for name in ("rename", "write_bytes", "delete_quietly", "make_folder"):
                patch.setattr(files, name, counted(getattr(files, name)))
            try:
                commit(job, spec, sum(map(sum, PLAN.values())))
            except MachineDiedError:
                return True
        return False

    @pytest.mark.parametrize("replaces", [False, True])
    def test_nothing_is_half_published_and_the_next_finishes(
        self,
        tmp_path: Path,
        whole: dict[str, bytes],
        monkeypatch: pytest.MonkeyPatch,
        replaces: bool,
    ) -> None:
        step = 0
        while True:
            output = tmp_path / f"ds-{step}"
            job = TestReplacing().old(output) if replaces else small_job(output)
            before = tree(output)
            build_all(job)
            spec = commit_spec(replaces=replaces)
            if not self.commit_until(job, spec, step, monkeypatch):
                break
            there = tree(output)
            if there != before:
                assert SUCCESS_PATH not in there
            for name in set(there) & set(SHARDS):
                assert there[name] == whole.get(name), name
            commit(job, spec, 6)
            assert {**tree(output), "train/notes.txt": b""} == {**whole, "train/notes.txt": b""}
            step += 1
        assert step > 8

    @pytest.mark.parametrize("replaces", [False, True])
    def test_seqio_sees_a_whole_cache_or_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: bool
    ) -> None:
        """With the old and the new shards under the same names."""
        template = NAMINGS["seqio"]
        job = small_job(tmp_path / "whole", template=template)
        commit(job, commit_spec(), build_all(job))
        whole, step = tree(tmp_path / "whole"), 0
        assert {COMPLETED_PATH, *seqio_names(["train", "test"])} <= whole.keys()
        between = 0
        while True:
            output = tmp_path / f"ds-{step}"
            job = (
                TestReplacing().old(output, template)
                if replaces
                else small_job(output, template=template)
            )
            before = tree(output)
            build_all(job)
            spec = commit_spec(replaces=replaces)
            if not self.commit_until(job, spec, step, monkeypatch):
                break
            there = tree(output)
            if COMPLETED_PATH in there and there != before:
                assert there == {n: data for n, data in whole.items() if n != SUCCESS_PATH}
                between += 1
            commit(job, spec, 6)
            assert tree(output) == whole
            step += 1
        assert between
