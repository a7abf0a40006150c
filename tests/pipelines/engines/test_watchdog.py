"""Runs in which nothing happens any more end, and say where; slow ones do not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from recordmill.pipelines.engines.activity import Activity
from recordmill.pipelines.engines.call_stacks import parse_calls, summarize_calls

ROOT = Path(__file__).parents[3]

# Programs, because a stalled job leaves threads that never end.
_PROGRAM = """
import sys
from functools import partial
from recordmill.pipelines.engines import local
from recordmill.pipelines.engines.watchdog import exit_now
from recordmill.records.errors import RunError
from tests.transforms.dataset.toy_stages import call

def wait_for_a_pipe(path, number):
    with open(path) as handle:
        return handle.read()

def stop(path, number):
    import os, signal
    with open(path + f".d/stopped-{number}", "w") as handle:
        handle.write(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)

def work_slowly(path, number):
    import time
    end = time.monotonic() + 9
    with open(path + ".out", "ab", buffering=0) as handle:
        while time.monotonic() < end:
            handle.write(b"x")  # a byte a second is enough
            time.sleep(1)

def compute(path, number):
    import time
    end = time.monotonic() + 9
    while time.monotonic() < end:
        pass

function, workers, path = sys.argv[1:]
engine = local.LocalEngine(int(workers), stall_seconds=4.0)
size = local.JobSize(2, 1, int(workers))
stages = call(path + ".d", partial(globals()[function], path))
try:
    with engine.started(()):
        engine.run(stages, folder=path + ".d", failure_path="", size=size)
except RunError as error:
    print(f"recordmill: {error}", file=sys.stderr)
    exit_now(1)
print("done")
"""


def _run(function: str, workers: int, folder: Path) -> subprocess.CompletedProcess[str]:
    os.mkfifo(folder / "pipe")
    (folder / "pipe.d").mkdir()
    line = [sys.executable, "-c", _PROGRAM, function, str(workers), str(folder / "pipe")]
    return subprocess.run(line, capture_output=True, text=True, timeout=90, cwd=ROOT)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_whose_workers_wait_for_a_pipe_ends_and_says_where(
    tmp_path: Path, workers: int
) -> None:
    shown = _run("wait_for_a_pipe", workers, tmp_path)
    assert shown.returncode == 1, shown.stderr
    lines = shown.stderr.splitlines()
    assert lines[0].startswith("recordmill: nothing happens any more; where each process stands")
    process = "worker" if workers == 2 else "process"
    standing = lines[1:-1]
    assert len(standing) == workers
    assert all(line.startswith(f"recordmill:   {process} ") for line in standing)
    assert all("wait_for_a_pipe (" in line for line in standing)
    assert lines[-1].startswith("recordmill: no process of this run has computed, read or written")
    assert "anything for 4 s" in lines[-1]
    assert "Traceback" not in shown.stderr


@pytest.mark.slow
def test_stopped_workers_end_with_the_run(tmp_path: Path) -> None:
    shown = _run("stop", 2, tmp_path)
    assert shown.returncode == 1, shown.stderr
    stopped = [int(path.read_text()) for path in (tmp_path / "pipe.d").glob("stopped-*")]
    standing = shown.stderr.splitlines()[1:-1]
    assert sorted(standing) == sorted(
        f"recordmill:   worker {each}: does not answer (its state is stopped)" for each in stopped
    )
    assert not any(psutil.pid_exists(each) for each in stopped)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "workers"), [("work_slowly", 2), ("compute", 1)])
def test_slow_work_is_no_stall(tmp_path: Path, function: str, workers: int) -> None:
    shown = _run(function, workers, tmp_path)
    assert (shown.returncode, shown.stdout) == (0, "done\n"), shown.stderr
    assert "nothing happens" not in shown.stderr


_PLANNING = """
import sys, time
from recordmill.pipelines.engines.watchdog import StalledError, Watchdog

began = time.monotonic()
try:
    with Watchdog(2.0):
        open(sys.argv[1]).read()
except StalledError as error:
    print("ended", error)
"""


def test_a_main_thread_that_waits_is_interrupted(tmp_path: Path) -> None:
    """As while a job is planned: there is no job yet that could be failed."""
    os.mkfifo(tmp_path / "pipe")
    line = [sys.executable, "-c", _PLANNING, str(tmp_path / "pipe")]
    shown = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert shown.stdout.startswith("ended no process of this run has computed"), shown.stderr


_DEAF = """
import sys, threading
from recordmill.pipelines.engines.watchdog import Watchdog

with Watchdog(2.0, grace_seconds=1.0):
    while True:
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
"""


def test_a_run_that_cannot_end_is_ended() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", _DEAF], capture_output=True, text=True, timeout=60
    )
    assert shown.returncode == 1
    assert "no process of this run has computed" in shown.stderr.splitlines()[-1]


def test_the_activity_of_onlookers_is_not_counted(tmp_path: Path) -> None:
    activity, stop = Activity(["onlooker"]), threading.Event()

    def look_on() -> None:
        while not stop.wait(0.01):
            Path("/proc/self/stat").read_bytes()

    assert activity.was_seen(0.5)  # all that was before
    onlooker = threading.Thread(target=look_on, name="onlooker")
    onlooker.start()
    answers: list[bool] = []

    def ask() -> None:
        # Threads that tests before have left may do something now and then.
        while len(answers) < 8 and False not in answers:
            activity.was_seen(0.5)
            time.sleep(0.5)
            answers.append(activity.was_seen(0.5))

    asker = threading.Thread(target=ask, name="onlooker")
    asker.start()
    asker.join()
    stop.set()
    onlooker.join()
    assert False in answers


def test_a_summary_names_the_thread_that_works() -> None:
    folder = str(Path(__file__).parents[3])
    text = f"""Thread 0x0001 (most recent call first):
  File "/lib/threading.py", line 331 in wait
  File "{folder}/pipelines/engines/local.py", line 170 in run

Current thread 0x0002 (most recent call first):
  File "/lib/zipfile.py", line 88 in read
  File "{folder}/transforms/storage/files.py", line 97 in open_read
  File "{folder}/transforms/images/preparing.py", line 12 in prepare
  File "{folder}/transforms/images/build.py", line 12 in build
  File "/lib/apache_beam/runners/worker/bundle_processor.py", line 9 in process_bundle
"""
    calls = parse_calls(text)
    assert [len(thread) for thread in calls] == [2, 5]
    assert summarize_calls(calls) == (
        "read (lib/zipfile.py:88) < open_read (transforms/storage/files.py:97) < "
        "prepare (transforms/images/preparing.py:12)"
    )
    assert summarize_calls([]) == "runs no Python"
