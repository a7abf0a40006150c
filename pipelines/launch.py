"""A job from plan to end: one run at a time, and what the user is told of it."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from apache_beam.io.filesystem import BeamIOError

from recordmill.pipelines.engines import Engine, choose_engine
from recordmill.pipelines.local import JobSize, processes_for
from recordmill.pipelines.planning import Plan, Planner, is_ours, plan_job
from recordmill.pipelines.progress import Progress
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import SUCCESS_PATH
from recordmill.transforms import files
from recordmill.transforms.commit import clean_up, read_manifest
from recordmill.transforms.job import Job


@contextmanager
def only_run(output: str) -> Iterator[None]:
    """Keeps a second run on this machine from planning or writing the same output meanwhile.

    The lock is a file outside of the output, for all that lies there may be deleted by a new run.
    """
    whole = os.path.abspath(output) if files.is_local(output) else output
    digest = hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()
    path = files.join(tempfile.gettempdir(), f"recordmill-{digest}.lock")
    try:
        try:
            handle = _locked(path)
        except PermissionError:  # another user's: their run, or what one left
            path = f"{path}.{os.getuid()}"
            handle = _locked(path)
    except BlockingIOError as error:
        raise UsageError(
            f"another run is writing to {output}; wait for its end, or stop it"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be locked: {error.strerror}; set TMPDIR") from error
    with handle:
        try:
            yield
        finally:
            with suppress(OSError):
                os.unlink(path)


def _locked(path: str) -> IO[str]:
    import fcntl

    while True:
        handle = open(path, "a+")  # noqa: SIM115
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle.fileno()), os.stat(path)):
                return handle
        except FileNotFoundError:
            pass  # its last holder has just taken it away
        except BaseException:
            handle.close()
            raise
        handle.close()


def one_line(error: BaseException) -> str:
    """Returns what went wrong, from an engine's error with all its tracebacks."""
    text = re.sub(r" \[while running '[^']*'\]", "", str(error))  # Beam's name of the stage
    if "No space left on device" in text:
        return "no space left on the device; free some, or choose another --temp_dir"
    # REST services quote the line ends of a trace.
    lines = [line.strip() for line in text.replace("\\n", "\n").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception): ", line)]
    return (errors or lines or [type(error).__name__])[-1].removeprefix("Caused by: ")


def plan_and_run(planner: Planner[Any, Any], options: Any, flags: list[str]) -> None:
    """Plans a job, runs it and prints its summary, alone on its output.

    Raises:
      UsageError: the job cannot be run as it was asked for.
      RunError: one line: why the run ended.
    """
    engine = choose_engine(options, flags)
    engine.check(planner.paths())
    with engine.started(planner.worker_modules), only_run(planner.job.output):
        try:
            plan = plan_job(planner, workers=engine.workers)
        except (UsageError, RunError):
            raise
        except (OSError, ValueError, BeamIOError) as error:
            raise UsageError(f"the job cannot be planned: {one_line(error)}") from error
        _run_job(planner, plan, engine)


def _run_job(planner: Planner[Any, Any], plan: Plan[Any], engine: Engine) -> None:
    began = time.monotonic()
    job = plan.job
    if plan.complete:
        if is_ours(job.staging):
            clean_up(job)  # what a run left that was killed in its last moment
        print(f"{job.output} is complete: nothing to do")
        return
    if plan.resumed:
        print(f"finishing the run that was begun in {job.output}", file=sys.stderr)
    finished_before = _is_finished(plan)
    progress = Progress(job.work, lambda: planner.phases(plan))
    with progress:
        files.delete_quietly([job.failure_path])
        try:
            engine.run(
                lambda p: planner.build(p, plan),
                folder=job.staging,
                failure_path=job.failure_path,
                size=JobSize(
                    int(plan.details["tasks"]), plan.input_bytes, processes_for(plan.input_bytes)
                ),
            )
        except Exception as error:
            # An engine may fail while it ends a job whose dataset is already whole.
            if finished_before or not _is_finished(plan):
                if isinstance(error, RunError):
                    raise
                raise RunError(_reason(job, error)) from error
        if not engine.wait:
            print(f"{job.output}/_SUCCESS will tell that the job is done")
            return
        if not _is_finished(plan):
            raise RunError(
                f"the job ended, and {job.output} is not complete; run the same command again"
            )
        clean_up(job)
    _summary(planner, plan, time.monotonic() - began, progress.peak_bytes)


def _is_finished(plan: Plan[Any]) -> bool:
    """Tells whether the dataset at the output is the one that was planned."""
    manifest = read_manifest(plan.job.output)
    return (
        manifest is not None
        and manifest.fingerprint == plan.commit.fingerprint
        and files.exists(files.join(plan.job.output, SUCCESS_PATH))
    )


def _reason(job: Job, error: BaseException) -> str:
    with suppress(RunError):  # the storage may be what failed
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
    with suppress(OSError):  # the terminal may be closed
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
