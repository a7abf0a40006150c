"""Engines: which one runs a pipeline, and what the user is told at the end."""

from __future__ import annotations

import argparse
import difflib
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from recordmill.pipelines.local import default_workers, run_local, start_nursery
from recordmill.pipelines.planning import Plan, Planner, is_ours, plan_job
from recordmill.pipelines.progress import Progress
from recordmill.pipelines.worker import Nursery
from recordmill.records.arguments import Parser
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import SUCCESS_PATH
from recordmill.transforms import files
from recordmill.transforms.commit import clean_up, read_manifest
from recordmill.transforms.job import Job

LOCAL_RUNNERS = ("direct", "DirectRunner", "FnApiRunner")


def add_engine_arguments(parser: Any) -> None:
    """Adds the flags that choose an engine; all others are passed on to Beam."""
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--runner", default="direct",
        help="direct: this machine, all cores; else a Beam runner, with Beam's own flags.",
    )  # fmt: skip
    group.add_argument(
        "--direct_num_workers", type=int, default=0,
        help="Processes of the direct runner; 0: one for a small input, else one a core.",
    )  # fmt: skip


def check_beam_flags(flags: list[str], ours: argparse.ArgumentParser) -> None:
    """Checks that what is no flag of ours is one of Beam's.

    Raises:
      UsageError: names the flag that nobody knows, and the nearest.
    """
    beam_parser = Parser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(beam_parser)
    _, unknown = beam_parser.parse_known_args(flags)
    if unknown:
        actions = [*ours._actions, *beam_parser._actions]
        names = [name for action in actions for name in action.option_strings]
        near = difflib.get_close_matches(unknown[0].partition("=")[0], names, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; see --help"
        raise UsageError(f"unknown flag {unknown[0]}{hint}")


def check_engine(options: Any) -> None:
    """Checks the flags of `add_engine_arguments`.

    Raises:
      UsageError: there is no such runner, or the number of workers is none.
    """
    if options.direct_num_workers < 0:
        raise UsageError(
            f"--direct_num_workers must be at least 0, got {options.direct_num_workers}"
        )
    if options.runner not in LOCAL_RUNNERS:
        try:
            create_runner(options.runner)
        except (ValueError, ImportError, AttributeError) as error:
            raise UsageError(f"--runner must be direct or one of Beam's: {error}") from error


def parse_arguments(parser: Parser, arguments: list[str] | None) -> tuple[Any, list[str]]:
    """Returns the checked flags of a command, with the engine's, and Beam's own for it."""
    add_engine_arguments(parser)
    options, flags = parser.parse_known_args(arguments)
    check_beam_flags(flags, parser)
    check_engine(options)
    return options, flags


@contextmanager
def only_run(output: str) -> Iterator[None]:
    """Keeps a second run on this machine from planning or writing the same output meanwhile.

    The lock is a file outside of the output, for all that lies there may be deleted by a new run.
    """
    import fcntl

    whole = os.path.abspath(output) if files.is_local(output) else output
    digest = hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()
    path = files.join(tempfile.gettempdir(), f"recordmill-{digest}.lock")
    try:
        handle = open(path, "a+")  # noqa: SIM115
    except PermissionError:  # another user's: their run, or what one left
        handle = open(f"{path}.{os.getuid()}", "a+")  # noqa: SIM115
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"another run is writing to {output}; wait for its end, or stop it"
            ) from error
        yield


def one_line(error: BaseException) -> str:
    """Returns what went wrong, from an engine's error with all its tracebacks."""
    text = str(error)
    if "No space left on device" in text:
        return "no space left on the device; free some, or choose another --temp_dir"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return (errors or lines or [type(error).__name__])[-1]


def plan_and_run(planner: Planner[Any, Any], options: Any, flags: list[str]) -> None:
    """Plans a job, runs it and prints its summary, alone on its output.

    Raises:
      UsageError: the job cannot be run as it was asked for.
      RunError: one line: why the run ended.
    """
    workers = options.direct_num_workers or default_workers(1 << 40)
    early = options.runner in LOCAL_RUNNERS and workers > 1
    nursery = start_nursery(planner.worker_modules) if early else None
    with only_run(planner.job.output), closing(nursery) if nursery else nullcontext():
        try:
            plan = plan_job(planner, workers=workers)
        except (UsageError, RunError):
            raise
        except (OSError, ValueError, BeamIOError) as error:
            raise UsageError(f"the job cannot be planned: {one_line(error)}") from error
        _run_job(planner, plan, options, flags, nursery)


def _run_job(
    planner: Planner[Any, Any],
    plan: Plan[Any],
    options: Any,
    flags: list[str],
    nursery: Nursery | None,
) -> None:
    began = time.monotonic()
    job = plan.job
    if plan.complete:
        if is_ours(job.staging):
            clean_up(job)  # what a run left that was killed in its last moment
        print(f"{job.output} is complete: nothing to do")
        return
    if plan.resumed:
        print(f"finishing the run that was begun in {job.output}", file=sys.stderr)
    if options.runner == "DirectRunner":
        print("--runner=DirectRunner: running on the direct engine", file=sys.stderr)
    progress = Progress(job.work, lambda: planner.phases(plan))
    with progress:
        files.delete_quietly([job.failure_path])
        try:
            _run_pipeline(lambda p: planner.build(p, plan), plan, options, flags, nursery)
        except RunError:
            raise
        except Exception as error:
            raise RunError(_reason(job, error)) from error
        if not _is_finished(plan):
            print(f"submitted; {job.output}/_SUCCESS will tell that it is done")
            return
        clean_up(job)
    _summary(planner, plan, time.monotonic() - began, progress.peak_bytes)


def _run_pipeline(
    build: Callable[[beam.Pipeline], object],
    plan: Plan[Any],
    options: Any,
    flags: list[str],
    nursery: Nursery | None,
) -> None:
    if options.runner in LOCAL_RUNNERS:
        workers = options.direct_num_workers or default_workers(plan.input_bytes)
        run_local(build, flags, workers=workers, log=_log_path(plan.job), nursery=nursery)
    else:
        run_on(options.runner, build, flags)


def _log_path(job: Job) -> str:
    """Where the workers of a local run print: removed with the other temporary files."""
    if files.is_local(job.staging):
        return files.join(job.staging, "workers.log")
    return files.join(tempfile.gettempdir(), f"recordmill-workers-{os.getpid()}.log")


def run_on(runner: str, build: Callable[[beam.Pipeline], object], flags: list[str]) -> None:
    """Builds a pipeline and runs it on any of Beam's engines, to its end."""
    pipeline = beam.Pipeline(options=PipelineOptions([f"--runner={runner}", *flags]))
    build(pipeline)
    pipeline.run().wait_until_finish()


def _is_finished(plan: Plan[Any]) -> bool:
    """Tells whether the dataset at the output is the one that was planned."""
    manifest = read_manifest(plan.job.output)
    return (
        manifest is not None
        and manifest.fingerprint == plan.commit.fingerprint
        and files.exists(files.join(plan.job.output, SUCCESS_PATH))
    )


def _reason(job: Job, error: BaseException) -> str:
    if files.exists(job.failure_path):
        return files.read_bytes(job.failure_path).decode()
    return one_line(error)


def _summary(planner: Planner[Any, Any], plan: Plan[Any], seconds: float, peak_bytes: int) -> None:
    manifest = read_manifest(plan.job.output)
    if manifest is None:
        raise RunError(f"{plan.job.output} has no manifest at the end of the run")
    parts = [
        f"{name}: {sum(s.records for s in shards)} examples in {len(shards)} shards"
        for name, shards in manifest.split_shards().items()
    ]
    rejected = manifest.counts["rejected"]
    reasons = ", ".join(f"{reason} {count}" for reason, count in rejected.items()) or "none"
    print(f"{plan.job.output}  {'; '.join(parts)}")
    print(f"{planner.summary(manifest.counts)}; rejected: {reasons}")
    print(
        f"{seconds:.1f} s, {plan.input_bytes / 1e6 / seconds:.1f} MB/s of input, "
        f"peak memory {peak_bytes / 1e6:.0f} MB in all processes"
    )


def exit_now(status: int) -> None:
    """Ends the process without waiting for threads of an engine that will never end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
