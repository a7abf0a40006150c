"""A job from its plan to its summary, alone on its output."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any

from apache_beam.io.filesystem import BeamIOError

from recordmill.pipelines.engines.choice import Engine, EngineOptions, choose_engine
from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.engines.local import JobSize, processes_for
from recordmill.pipelines.planning.plan_job import plan_job
from recordmill.pipelines.planning.work_plan import Planner, WorkPlan
from recordmill.pipelines.progress import Progress
from recordmill.pipelines.run_lock import only_run
from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.dataset.statistics_report import describe_statistics
from recordmill.transforms.dataset.workspace import Workspace, read_manifest
from recordmill.transforms.storage import files


def plan_and_run(planner: Planner[Any, Any, Any], options: EngineOptions, flags: list[str]) -> None:
    """Plans a job, runs it and prints its summary, alone on its output.

    Raises:
      UsageError: the job cannot be run as it was asked for.
      RunError: one line: why the run failed.
    """
    engine = choose_engine(options, flags)
    engine.check(planner.paths())
    workspace = planner.job.workspace
    with engine.started(planner.worker_modules), only_run(workspace.output):
        try:
            plan = plan_job(planner, workers=engine.workers)
        except (UsageError, RunError):
            raise
        except (OSError, ValueError, BeamIOError) as error:
            raise UsageError(f"the job cannot be planned: {one_line(error)}") from error
        if plan is None:
            if workspace.is_claimed:
                workspace.clean_up()  # a run that was killed in its last moment left files
            print(f"{workspace.output} is complete: nothing to do")
            return
        _run_job(planner, plan, engine)


def _run_job(planner: Planner[Any, Any, Any], plan: WorkPlan[Any, Any], engine: Engine) -> None:
    began = time.monotonic()
    workspace = plan.job.workspace
    if plan.resumed:
        print(f"resuming the run that was begun in {workspace.output}", file=sys.stderr)
    progress = Progress(workspace.work, lambda: planner.phases(plan))
    with progress:
        _run_engine(planner, plan, engine)
        if not engine.wait:
            print(f"the job is done when {workspace.output}/_SUCCESS exists")
            return
        if not workspace.is_complete(plan.commit.fingerprint):
            raise RunError(
                f"the job ended, and {workspace.output} is not complete; run the same command again"
            )
        workspace.clean_up()
    _summary(planner, plan, time.monotonic() - began, progress.peak_bytes)


def _run_engine(planner: Planner[Any, Any, Any], plan: WorkPlan[Any, Any], engine: Engine) -> None:
    workspace = plan.job.workspace
    is_complete = partial(workspace.is_complete, plan.commit.fingerprint)
    finished_before = is_complete()
    files.delete_quietly([workspace.failure_path])
    try:
        engine.run(
            lambda p: planner.build(p, plan),
            folder=workspace.staging,
            failure_path=workspace.failure_path,
            size=JobSize(plan.stages.tasks, plan.input_bytes, processes_for(plan.input_bytes)),
        )
    except Exception as error:
        # An engine may fail after the commit, when the dataset is already complete.
        if is_complete() and not finished_before:
            return
        if isinstance(error, RunError):
            raise
        raise RunError(_reason(workspace, error)) from error


def _reason(workspace: Workspace, error: BaseException) -> str:
    with suppress(RunError):  # the storage itself may have failed
        if files.exists(workspace.failure_path):
            return files.read_bytes(workspace.failure_path).decode()
    return one_line(error)


def _summary(
    planner: Planner[Any, Any, Any],
    plan: WorkPlan[Any, Any],
    seconds: float,
    peak_bytes: int | None,
) -> None:
    output = plan.job.workspace.output
    manifest = read_manifest(output)
    if manifest is None:
        raise RunError(f"{output} has no manifest at the end of the run")
    parts = [
        f"{name}: {sum(s.records for s in shards)} examples in {len(shards)} shards"
        for name, shards in manifest.split_shards().items()
    ]
    rejected = manifest.counts["rejected"]
    reasons = ", ".join(f"{reason} {count}" for reason, count in rejected.items()) or "none"
    print(f"{output}  {'; '.join(parts)}")
    print(f"{planner.summary(manifest.counts)}; rejected: {reasons}")
    statistics = json.loads(files.read_bytes(files.join(output, m.STATISTICS_PATH)))
    for name, value in describe_statistics(statistics):
        print(f"{name}: {value}")
    speed = f"{seconds:.1f} s, {plan.input_bytes / 1e6 / seconds:.1f} MB/s of input"
    if peak_bytes:
        speed += f", peak memory {peak_bytes / 1e6:.0f} MB in all processes of this machine"
    print(speed)
    if plan.job.warnings != "none":
        for warning in statistics["warnings"]:
            print(f"recordmill: warning: {warning['text']}", file=sys.stderr)
