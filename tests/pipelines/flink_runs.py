"""Programs on a Flink cluster, one of whose task managers is killed while they run."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from recordmill.pipelines.engines.flink import flink_engine
from recordmill.pipelines.engines.flink_cluster import cancel_job

from .clusters import ENDED, Flink, flink_cluster

_LIMIT_SECONDS = 400.0  # longer than Flink itself waits for a slot, so that its error is shown


def wait_for(condition: Callable[[], Any], seconds: float = 240) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"nothing happened in {seconds:.0f} s")


@contextmanager
def running(
    line: list[str], stderr: int | IO[str] = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, which is gone at the end with all that it started."""
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}  # SIGABRT shows where it stands
    with subprocess.Popen(
        line, stderr=stderr, text=True, cwd="/", start_new_session=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """Two task managers that work and one to spare, of one slot each.

    `run_with_a_kill` leaves it as it found it, so that any number of tests may use it.
    """
    folder = tmp_path_factory.mktemp("flink-kills") / "cluster"
    with flink_cluster(folder, "--task_managers=3", "--slots=1") as found:
        yield found


def program_flags(cluster: Flink) -> list[str]:
    """Returns the flags of Beam for a user's own program."""
    engine = flink_engine(cluster.flags[1:], wait=True)  # which asks the cluster for the rest
    return [f"--runner={engine.runner}", *engine.flags]


def run_with_a_kill(cluster: Flink, line: list[str], begun: Path) -> None:
    """Runs a program, and kills a task manager of its job once there is a file in a folder.

    Afterwards the cluster has all of its task managers again, and no job.

    Raises:
      AssertionError: the program fails, does not end, or ends before a task manager is lost. The
        message has the job's state, its last exception, and what the program wrote to stderr.
    """
    with tempfile.TemporaryFile("w+") as shown, explained(cluster, shown):
        with running(line, shown) as process:
            wait_for(lambda: process.poll() is not None or _has_files(begun), _LIMIT_SECONDS)
            assert process.poll() is None, f"nothing was killed: it ended with {process.poll()}"
            os.kill(_working_task_manager(cluster), signal.SIGKILL)
            try:
                status = cluster.await_end(process, _LIMIT_SECONDS, needed=2)
            except subprocess.TimeoutExpired:
                if not waits_in_beam(cluster, shown):
                    raise
                status = 0
        assert status == 0
        job = cluster.jobs()[0]
        assert _exceptions(cluster, job), "the job had ended before its task manager did"
    cluster.revive()


def waits_in_beam(cluster: Flink, shown: IO[str]) -> bool:
    """Returns whether a user's own program that was ended waited in Beam for a finished job.

    Beam's job server can fail while it handles the end of a job: a program waits for ever then. It
    is Beam's to tell (docs/guides/engines.md), and the dataset is complete. What the job server
    says is printed.

    Args:
      shown: the program's stderr, to which Python wrote where it stood.
    """
    shown.seek(0)
    waits = "portable_runner.py" in (stacks := shown.read()) and "in _observe_state" in stacks
    if waits and cluster.jobs()[0]["state"] == "FINISHED":
        print(stacks[-3000:], cluster.tell_job_server())
        return True
    return False


@contextmanager
def explained(cluster: Flink, shown: IO[str]) -> Iterator[None]:
    """Adds to an error what Flink tells of its newest job, and what a program has written.

    The jobs are cancelled then: they hold slots that other tests need.
    """
    try:
        yield
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        told = [str(error)]
        try:
            told += [_tell(cluster), cluster.tell_job_server()]
            for job in cluster.jobs():
                if job["state"] not in ENDED:
                    cancel_job(cluster.url, job["jid"])
            cluster.revive()
        except (OSError, subprocess.SubprocessError) as other:
            told.append(f"the cluster does not answer: {other}")
        shown.seek(0)
        told.append(f"stderr:\n{shown.read()[-10_000:]}")
        raise AssertionError("\n".join(told)) from error


def _tell(cluster: Flink) -> str:
    """Returns the state of the newest job, and the newest of its failures."""
    slots = cluster.get("/overview")
    free = f"{slots['slots-available']} of {slots['slots-total']} slots are free"
    jobs = cluster.jobs()
    if not jobs:
        return f"Flink has no job; {free}"
    failures = _exceptions(cluster, jobs[0])
    last = failures[0]["stacktrace"][:3000] if failures else "none"
    state = f"{jobs[0]['name']} is {jobs[0]['state']} after {jobs[0]['duration'] / 1000:.0f} s"
    return f"{state}; {free}; {len(failures)} failures, the last one:\n{last}"


def _exceptions(cluster: Flink, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the failures of a job, the last one first."""
    return list(cluster.get(f"/jobs/{job['jid']}/exceptions")["exceptionHistory"]["entries"])


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _working_task_manager(cluster: Flink) -> int:
    """Returns the one that started a worker last: those of an earlier job live on for a while."""
    begun = {
        max(child.create_time() for child in children): pid
        for pid in cluster.task_managers()
        if (children := psutil.Process(pid).children())
    }
    assert begun, "no task manager has a worker"
    return begun[max(begun)]
