"""The process that workers of this machine are forked from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]


def run(text: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program; a process of tests has a process to fork from already."""
    return subprocess.run(
        [sys.executable, "-c", text, *arguments],
        timeout=120,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | variables,
    )


_TWO_AND_NONE = """
import os
import psutil
from recordmill.pipelines.engines.preloading import preloading
from recordmill.transforms.dataset.worker_pool import WorkerPool

def parents():
    return set(WorkerPool(2).map(lambda _: os.getppid(), range(4)))

before = os.environ.copy()
with preloading(["json"]) as one, preloading(["csv"]) as same:
    one.warm_up(None)
    print(one is same, one.is_own, len(parents()), os.getpid() in parents())
    first = parents()
print(os.path.exists(one.folder), os.environ == before)
with preloading() as other:
    other.warm_up(None)
    print(first.isdisjoint(parents()))
    (process,) = map(psutil.Process, parents())
    other.end()
    print(other.is_own, process.status())
"""


def test_workers_are_forked_from_it_and_from_another_one_afterwards() -> None:
    shown = run(_TWO_AND_NONE)
    first, *lines = shown.stdout.splitlines()
    assert first == "True True 1 False", shown.stderr
    assert lines == ["False True", "True", "False zombie"]


_LEFT = """
import os
from recordmill.pipelines.engines.preloading import Preloading, preloading
from recordmill.transforms.dataset.worker_pool import WorkerPool

end, Preloading.end = Preloading.end, lambda self: None
with preloading(["json"]) as one:
    pass  # a job that planning refused
Preloading.end = end
with preloading() as other:
    other.warm_up(None)
    print(other.is_own, len(set(WorkerPool(2).map(lambda _: os.getppid(), range(4)))))
"""


def test_one_that_was_not_ended_serves_the_next_job() -> None:
    shown = run(_LEFT)
    assert shown.stdout == "False 1\n", shown.stderr


_KILLED_AT_A_START = """
import os, signal
from multiprocessing import forkserver
from recordmill.pipelines.engines.preloading import preloading
from recordmill.transforms.dataset.worker_pool import WorkerDiedError, WorkerPool

read_signed = forkserver.read_signed

def after_a_kill(descriptor):  # what answers that there is a worker
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    return read_signed(descriptor)

forkserver.read_signed = after_a_kill
with preloading() as one:
    one.warm_up(None)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGSTOP)
    try:
        list(WorkerPool(2).map(lambda _: 0, range(4)))
    except WorkerDiedError as error:
        print(error)
"""


def test_one_that_dies_before_a_worker_is_there_is_told() -> None:
    shown = run(_KILLED_AT_A_START)
    assert shown.stdout == (
        "the process that workers are forked from died before a worker was there; run the same "
        "command again\n"
    ), shown.stderr


_MAKING_FILES = """
import os, sys, time
from recordmill.pipelines.engines.preloading import preloading
from recordmill.pipelines.temporary_folders import make_folder

made = os.path.join(sys.argv[1], "made")

def warm_up():
    folder = make_folder()
    with open(made + "-", "w") as file:
        file.write(folder)
    os.rename(made + "-", made)
    time.sleep(300)

with preloading() as one:
    one.warm_up(warm_up)
    while not os.path.exists(made):
        time.sleep(0.01)
print(os.path.exists(open(made).read()), *os.listdir(os.environ["TMPDIR"]))
"""


def test_nothing_is_left_of_one_that_is_ended_while_it_warms_up(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    shown = run(_MAKING_FILES, str(tmp_path), TMPDIR=str(temporary))
    first, *left = shown.stdout.split()
    assert first == "False", shown.stderr
    assert not [name for name in left if name.startswith("recordmill-")]


# It begins to load while the program has not loaded Beam, and waits for the job then.
_KILLED = """
import os, signal, sys, time
import psutil
from recordmill.pipelines.command_line import main
from recordmill.pipelines.command_table import COMMANDS, Call
from recordmill.pipelines.faces import Given

call = Call(command=COMMANDS["text"], given=Given({}, beam=[]))
with call.preloading() as found:
    print(found.is_own, "apache_beam" in sys.modules, found.folder, flush=True)
    (process,) = [p for p in psutil.Process().children() if "forkserver" in str(p.cmdline())]
    while not any("libarrow" in each.path for each in process.memory_maps()):
        time.sleep(0.1)
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one process is enough for one core")
def test_one_of_a_killed_launcher_ends() -> None:
    shown = run(_KILLED)
    assert shown.returncode == -signal.SIGKILL, shown.stderr
    told, number = shown.stdout.splitlines()
    assert told.split()[:2] == ["True", "False"]
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(number)).wait(20)
