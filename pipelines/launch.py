"""A job from its plan to its summary, alone on its output."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from recordmill.pipelines.command_table import Call, load
from recordmill.pipelines.config_files import settings_text
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.choice import check_beam_flags, choose_engine
from recordmill.pipelines.engines.engine_spec import EngineSpec
from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.engines.local import JobSize
from recordmill.pipelines.engines.preloading import is_preloading
from recordmill.pipelines.engines.processes import processes_for
from recordmill.pipelines.faces import aliases_of
from recordmill.pipelines.planning.outline import show_bytes
from recordmill.pipelines.planning.plan_job import plan_job
from recordmill.pipelines.planning.planner import (
    InventoryT,
    JobT,
    Planner,
    StagesT,
    WorkPlan,
)
from recordmill.pipelines.progress import Progress
from recordmill.pipelines.run_facts import RunFacts, write_report_of, write_run
from recordmill.pipelines.run_lock import only_run
from recordmill.pipelines.temporary_folders import remove_leftovers
from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError, visible
from recordmill.records.spec import options_of
from recordmill.transforms.dataset.run_state import LostFoldersError
from recordmill.transforms.dataset.stages import Stage, phases_of
from recordmill.transforms.dataset.statistics_report import read_statistics, summary_lines
from recordmill.transforms.dataset.worker_note import left_notes
from recordmill.transforms.dataset.workspace import Workspace, read_manifest
from recordmill.transforms.storage import files

if TYPE_CHECKING:
    from recordmill.pipelines.engines.choice import Engine

_SHOWN_NOTES = 3


def plan_and_run(
    planner: Planner[JobT, StagesT, InventoryT], spec: EngineSpec, beam: list[str]
) -> None:
    """Plans a job, runs it and prints its summary, alone on its output.

    Args:
      planner: of the job.
      spec: where it runs.
      beam: flags that are Beam's.

    Raises:
      UsageError: the job cannot be run as it was asked for.
      RunError: one line: why the run failed.
    """
    started = _Start(time.monotonic(), datetime.now(timezone.utc))
    engine = choose_engine(spec, beam)
    remove_leftovers()
    engine.check(planner.paths())
    workspace = planner.job.workspace
    at_once = is_preloading() or not planner.is_compiled
    with engine.started(planner.warm_up(), at_once=at_once), only_run(workspace.output):
        try:
            plan = plan_job(planner, workers=engine.workers)
        except (UsageError, RunError):
            raise
        except (OSError, ValueError) as error:
            raise UsageError(f"the job cannot be planned: {one_line(error)}") from error
        if plan is None:
            # A run that was killed in its last moment left files.
            workspace.clean_up()
            workspace.remove_revived(claimed=False)
            print(f"{workspace.output} is complete: nothing to do")
            report = files.join(workspace.output, m.REPORT_PATH)
            if spec.report and not files.exists(report):
                _report(planner, workspace)
            return
        _run_job(planner, plan, engine, spec, started)


def engine_of(call: Call) -> EngineSpec:
    """Returns where a command runs, and gives Beam the flags of its storage.

    Raises:
      UsageError: an option is wrong, or a flag is neither ours nor Beam's.
    """
    check_beam_flags(call.given.beam, aliases_of(call.command.options()))
    return call.make(EngineSpec)


def run_job(call: Call) -> str:
    """Runs a job; returns the folder of the dataset.

    Raises:
      UsageError: wrong options, or an input or output that cannot be used.
      RunError: the run failed, or went over the error budget.
    """
    command, engine = call.command, engine_of(call)
    kind = command.kinds()[0]
    planner = load(command.function)(call.make(kind), call.functions)
    planner.settings = settings_text(command.name, call.given, options_of(kind), call.functions)
    with call.preloading():
        plan_and_run(planner, engine, call.given.beam)
    output: str = planner.job.workspace.output
    return output


@dataclass(frozen=True, slots=True)
class _Start:
    """When the command was started: on a clock that only goes forward, and in UTC."""

    seconds: float
    time: datetime


def _run_job(
    planner: Planner[JobT, StagesT, InventoryT],
    plan: WorkPlan[JobT, StagesT],
    engine: Engine,
    spec: EngineSpec,
    started: _Start,
) -> None:
    began = time.monotonic()
    workspace = plan.job.workspace
    if plan.resumed:
        print(f"resuming the run that was begun in {workspace.output}", file=sys.stderr)
    stages = planner.stages(plan)
    progress = Progress(workspace.work, partial(phases_of, stages), spec.progress)
    processes = processes_for(plan.input_bytes)
    if plan.job.map:  # how long the user's functions take is not known
        processes = max(processes, min(usable_cores(), plan.stages.work_items))
    size = JobSize(plan.stages.work_items, plan.input_bytes, processes)
    engine.prepare(size, planner.compile_kernels, planner.release)
    with progress:
        counters = _run_engine(stages, plan, engine, size)
        if not engine.wait:
            print(f"the job is done when {workspace.output}/_SUCCESS exists")
            return
        if not workspace.is_complete(plan.commit.fingerprint):
            raise RunError(
                f"the job ended, and {workspace.output} is not complete; run the same command again"
            )
        workspace.clean_up()
        progress.is_done = True
    ended = time.monotonic()
    manifest = read_manifest(workspace.output)
    if manifest is None:
        raise RunError(f"{workspace.output} has no manifest at the end of the run")
    facts = RunFacts(
        command=planner.kind,
        engine=engine.name,
        workers=engine.workers_for(size),
        resumed=plan.resumed,
        began=started.time.isoformat(timespec="seconds"),
        plan_seconds=began - started.seconds,
        seconds=ended - started.seconds,
        input_bytes=plan.input_bytes,
        input_modified=plan.modified,
        counters=counters,
        notes=planner.notes,
    )
    write_run(workspace, facts.to_json(progress, manifest))
    _summary(plan, manifest, ended - began, progress.peak_bytes)
    if spec.report:
        _report(planner, workspace)
    workspace.remove_revived()  # where the commit has removed the folder, its worker or ours


def _report(planner: Planner[JobT, StagesT, InventoryT], workspace: Workspace) -> None:
    path = write_report_of(workspace, planner.vocab_file)
    if path:
        print(f"report: {path}")


def _run_engine(
    stages: Sequence[Stage[Any]],
    plan: WorkPlan[JobT, StagesT],
    engine: Engine,
    size: JobSize,
) -> dict[str, int]:
    """Runs the job; returns its counters, {} where it failed after the commit."""
    workspace = plan.job.workspace
    is_complete = partial(workspace.is_complete, plan.commit.fingerprint)
    finished_before = is_complete()
    files.delete_quietly([workspace.failure_path, *files.list_files(workspace.notes_folder)])
    try:
        return engine.run(
            stages,
            plan.commit,
            folder=workspace.staging,
            failure_path=workspace.failure_path,
            size=size,
        )
    except Exception as error:
        # An engine may fail after the commit, when the dataset is already complete.
        if is_complete() and not finished_before:
            return {}
        raise _failure(plan, error) from error


def _failure(plan: WorkPlan[JobT, StagesT], error: Exception) -> RunError:
    """Returns why a run failed, in one line."""
    workspace = plan.job.workspace
    try:
        workspace.check_own()
    except LostFoldersError as lost:
        workspace.remove_revived()
        lost.leaves_threads = getattr(error, "leaves_threads", False)
        return lost
    except (RunError, OSError):  # the storage itself failed
        return error if isinstance(error, RunError) else RunError(one_line(error))
    if isinstance(error, RunError):
        return error
    with suppress(RunError):
        if files.exists(workspace.failure_path):
            return RunError(files.read_bytes(workspace.failure_path).decode())
    if plan.resumed:  # what it was resumed from may be the reason
        with suppress(RunError, OSError):
            files.write_bytes(workspace.over_budget_path, b"\n")
    noted = left_notes(workspace)
    if not noted:
        return RunError(one_line(error))
    return RunError(
        f"{one_line(error)}; workers were reading {' and '.join(noted[:_SHOWN_NOTES])}: if one of "
        "these ends them, leave it out by --skip_files and start anew with --overwrite"
    )


def _summary(
    plan: WorkPlan[JobT, StagesT],
    manifest: m.Manifest,
    seconds: float,
    peak_bytes: int | None,
) -> None:
    statistics = read_statistics(plan.job.workspace.output)
    print("\n".join(map(visible, summary_lines(plan.job, manifest, statistics))))
    speed = f"{seconds:.1f} s, {show_bytes(plan.input_bytes / seconds)}/s of input"
    if peak_bytes:
        speed += f", peak memory {peak_bytes / 1e6:.0f} MB in all processes of this machine"
    print(speed)
    if plan.job.warnings != "none":
        for warning in statistics["warnings"]:
            print(f"recordmill: warning: {visible(warning['text'])}", file=sys.stderr)
