"""The mechanism of all jobs, with toy stages."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.pipelines.engines.error_text import one_line
from recordmill.records.errors import RunError
from recordmill.transforms.dataset.run_state import LostFoldersError
from recordmill.transforms.dataset.stage_pipeline import DoStages
from recordmill.transforms.dataset.stages import Done, OnceStage, Stage, do_here
from recordmill.transforms.dataset.worker_note import left_notes, note, noted, notes_in
from recordmill.transforms.dataset.worker_pool import WorkerDiedError, WorkerPool

from .small_job import SmallJob, small_job

Run = Callable[..., Mapping[str, int]]


class Write(Stage[SmallJob]):
    """Writes a file for each item, with the number of the process that did it."""

    name = "Write"
    count = 6

    def items(self) -> int:
        return self.count

    def do(self, item: int) -> Done:
        path = Path(self.job.workspace.work) / f"{item}"
        if not path.exists():
            path.write_text(str(os.getpid()))
        return Done(item, {"examples_written": 1})

    def describe(self, item: int) -> str:
        return f"file {item}"


class Check(OnceStage[SmallJob]):
    """Sees all that the stage before has written."""

    name = "Check"

    def do(self, item: int) -> Done:
        written = os.listdir(self.job.workspace.work)
        assert len([name for name in written if name.isdigit()]) == Write.count
        return Done()


class Fail(OnceStage[SmallJob]):
    """Fails."""

    name = "Fail"

    def do(self, item: int) -> Done:
        raise RunError("the toy is broken; mend it")


class Die(Stage[SmallJob]):
    """Kills its process at item 2, while others wait."""

    name = "Die"

    def __init__(self, job: SmallJob, noted: str = "") -> None:
        super().__init__(job)
        self.noted = noted

    def items(self) -> int:
        return 4

    def do(self, item: int) -> Done:
        if item == 2:
            with noted("in/file 1"):
                pass
            note(self.noted)
            os.kill(os.getpid(), signal.SIGKILL)
        while item > 2:
            time.sleep(0.01)
        return Done()

    def describe(self, item: int) -> str:
        return f"file {item}"


@pytest.fixture
def job(tmp_path: Path) -> SmallJob:
    return small_job(tmp_path / "out", token="0" * 16)


def run(
    job: SmallJob, *stages: Stage[SmallJob], records: int, pool: WorkerPool | None = None
) -> Mapping[str, int]:
    done = do_here(stages, pool)
    assert done.records == records
    return done.counts


def run_in_beam(
    job: SmallJob, *stages: Stage[SmallJob], records: int, flags: tuple[str, ...] = ()
) -> Mapping[str, int]:
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(flags))
    total = pipeline | DoStages(stages)
    assert_that(total, equal_to([records]))
    result = pipeline.run()
    sums: Counter[str] = Counter()
    for each in result.metrics().query()["counters"]:
        sums[each.key.metric.name] += each.committed
    return sums


either = pytest.mark.parametrize("run", [run, run_in_beam])


def processes(job: SmallJob) -> set[int]:
    work = Path(job.workspace.work)
    return {int((work / str(item)).read_text()) for item in range(Write.count)}


@either
def test_stages_run_one_after_the_other(job: SmallJob, run: Run) -> None:
    counters = run(job, Write(job), Check(job), records=15)
    assert processes(job) == {os.getpid()}
    assert counters == {"work_items_started": 7, "work_items_finished": 7, "examples_written": 6}


def test_a_pool_does_the_items(job: SmallJob) -> None:
    with WorkerPool(2) as pool:
        counters = run(job, Write(job), Check(job), records=15, pool=pool)
    assert os.getpid() not in processes(job)
    assert counters == {"work_items_started": 7, "work_items_finished": 7, "examples_written": 6}


@either
def test_a_committed_run_does_nothing(job: SmallJob, run: Run) -> None:
    Path(job.workspace.plan_path).unlink()
    Path(job.workspace.success_path).write_text("{}")
    run(job, Write(job), records=0)
    assert not [name for name in os.listdir(job.workspace.work) if name.isdigit()]


@pytest.mark.parametrize("way", ["here", "pool", "beam"])
def test_an_error_is_one_line(job: SmallJob, way: str) -> None:
    with WorkerPool(2) as pool:
        in_pool = partial(run, pool=pool)
        do: Run = {"here": run, "pool": in_pool, "beam": run_in_beam}[way]
        with pytest.raises(RunError, match="the toy"):
            do(job, Write(job), Fail(job), Check(job), records=0)
    assert Path(job.workspace.failure_path).read_text() == "the toy is broken; mend it"


def test_a_dead_worker_is_told_with_its_item(job: SmallJob) -> None:
    pool = WorkerPool(2)
    with pytest.raises(WorkerDiedError, match=r"signal 9 killed it.* item 2 of Die, file 2;"):
        run(job, Die(job), records=0, pool=pool)
    with pytest.raises(WorkerDiedError) as died:
        run(job, Die(job, noted="in/ä 2"), records=0, pool=WorkerPool(2))
    end = "item 2 of Die, file 2, and read in/ä 2; run the same command again, or leave that file"
    assert f"{end} out by --skip_files" in str(died.value)
    with pytest.raises(RunError, match="interrupted"):
        list(pool.map(str, [1]))


def test_a_worker_of_an_engine_leaves_its_note_in_the_run(job: SmallJob) -> None:
    with notes_in(job.workspace), noted("in/a"), noted("in/b"):
        assert left_notes(job.workspace) == ["in/a", "in/b"]
    assert not left_notes(job.workspace)
    shutil.rmtree(job.workspace.output)
    with notes_in(job.workspace), noted("in/a"):
        assert not os.path.exists(job.workspace.output)


def test_a_repeated_bundle_changes_nothing(job: SmallJob) -> None:
    """Beam does each bundle three times, and keeps the last."""
    flags = ("--direct_runner_bundle_repeat=2",)
    run_in_beam(job, Write(job), Check(job), records=15, flags=flags)
    assert processes(job) == {os.getpid()}


@either
def test_a_run_that_was_cut_short_goes_on_where_it_stood(job: SmallJob, run: Run) -> None:
    with pytest.raises(RunError, match="the toy"):
        run(job, Write(job), Fail(job), records=0)
    before = {path.name: path.stat().st_ino for path in Path(job.workspace.work).glob("[0-9]")}
    run(job, Write(job), Check(job), records=15)
    after = {path.name: path.stat().st_ino for path in Path(job.workspace.work).glob("[0-9]")}
    assert after == before


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stage_keeps_nothing_of_what_it_has_loaded(job: SmallJob, workers: int) -> None:
    """Others look at it meanwhile, and after it. It is closed when its items are done."""
    closed: list[str] = []

    class Load(Stage[SmallJob]):
        name = "Load"

        def items(self) -> int:
            return 2

        def do(self, item: int) -> Done:
            self.loaded = bytes(100)
            return Done(1)

        def close(self) -> None:
            closed.append(self.name)

    stage = Load(job)
    with WorkerPool(2) if workers else nullcontext() as pool:
        run(job, stage, records=2, pool=pool)
    assert not hasattr(stage, "loaded")
    assert closed == ["Load"]


@either
def test_lost_folders_end_the_run(job: SmallJob, run: Run) -> None:
    """An item that writes state checks that the folders are still its run's."""

    class Lose(OnceStage[SmallJob]):
        name = "Lose"

        def do(self, item: int) -> Done:
            shutil.rmtree(self.job.workspace.staging)
            self.job.workspace.check_own()
            return Done()

    with pytest.raises(LostFoldersError, match="was deleted while the run worked"):
        run(job, Lose(job), records=0)
    assert not Path(job.workspace.staging).exists()


def test_a_full_disk_is_one_line(job: SmallJob) -> None:
    class Fill(OnceStage[SmallJob]):
        name = "Fill"

        def do(self, item: int) -> Done:
            Path("/dev/full").write_text("x" * 100_000)
            return Done()

    with WorkerPool(2) as pool, pytest.raises(OSError, match="No space left on device") as error:
        run(job, Fill(job), records=0, pool=pool)
    assert one_line(error.value).startswith("no space left on the device")


@either
def test_two_launchers_at_once_change_nothing(job: SmallJob, run: Run) -> None:
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(run, job, Write(job), Check(job), records=15) for _ in range(2)]
        assert [each.result()["examples_written"] for each in both] == [6, 6]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["here", "beam"])
def test_a_kill_at_any_step_leaves_what_the_next_run_finishes(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-m", "tests.transforms.dataset.killed_stages", str(tmp_path), how]
    found = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True).stdout
    runs = [json.loads(line) for line in found.splitlines()]
    # Each stage has a step where items are listed, and three for each item.
    assert [status for status, *_ in runs] == [-signal.SIGKILL] * 2 * (1 + 3 * 2) + [0]
    names = {f"{stage}-{item}" for stage in ("First", "Second") for item in range(2)}
    for _, before, status, after in runs:
        assert status == 0
        assert after.keys() == names
        assert all(text.startswith("True ") for text in after.values())
        assert before.items() <= after.items()  # what was whole is not done again
    assert [len(before) for _, before, *_ in runs] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4]
