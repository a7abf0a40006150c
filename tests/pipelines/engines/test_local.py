"""The local engine, as programs use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from recordmill.pipelines.engines.local import STAGES_THREAD, run_here
from recordmill.records.errors import RunError
from recordmill.transforms.dataset.error_budget import OverBudgetError

from ...transforms.dataset.toy_stages import call

ROOT = Path(__file__).parents[3]


def _too_many(_: int) -> None:
    raise OverBudgetError("2 of 3 inputs rejected")


def _divide(number: int) -> float:
    return 1 / number


def _open(_: int) -> None:
    Path("/nowhere/at all").read_bytes()


def test_errors_are_raised_where_the_job_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(OverBudgetError) as error:
        run_here(call(str(tmp_path), _too_many))
    assert str(error.value) == "2 of 3 inputs rejected"
    assert isinstance(error.value, RunError)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        run_here(call(str(tmp_path), _divide))


def test_an_error_whose_text_needs_its_type_has_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as error:
        run_here(call(str(tmp_path), _open))
    assert str(error.value).startswith("FileNotFoundError: [Errno 2] No such file or directory")


def test_a_job_leaves_hooks_and_streams_as_they_were(tmp_path: Path) -> None:
    before = threading.excepthook, sys.stderr
    run_here(call(str(tmp_path), str))
    with pytest.raises(ZeroDivisionError):
        run_here(call(str(tmp_path), _divide))
    assert (threading.excepthook, sys.stderr) == before


def test_a_job_that_is_interrupted_begins_no_other_item(tmp_path: Path) -> None:
    """The item at which it is interrupted ends, where nothing ends the whole process."""
    done: list[int] = []
    goes_on = threading.Event()

    def interrupt(item: int) -> None:
        done.append(item)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert goes_on.wait(60)

    with pytest.raises(KeyboardInterrupt):
        run_here(call(str(tmp_path), interrupt, items=3))
    (thread,) = [each for each in threading.enumerate() if each.name == STAGES_THREAD]
    goes_on.set()
    thread.join(60)
    assert done == [0]


# Without a guard for `__main__`, as scripts of users are: workers must not run it again.
_PROGRAM = """
import os, sys
from recordmill.pipelines.engines.local import JobSize, LocalEngine
from recordmill.records.errors import RunError
from tests.transforms.dataset.toy_stages import call

folder = sys.argv[1]
print("program", flush=True)
{functions}
engine = LocalEngine(2)
try:
    with engine.started({warm_up}):
        engine.run(
            call(folder, {function}, {items}),
            folder=folder, failure_path="", size=JobSize(2, 1, 2),
        )
    print("done")
except RunError as error:
    print(error)
"""


def program(
    folder: Path, functions: str, *, items: int = 2, warm_up: str = "None"
) -> tuple[list[str], str]:
    """Lines of standard output behind the program's own first line, and standard error."""
    text = _PROGRAM.format(functions=functions, function="do", items=items, warm_up=warm_up)
    shown = subprocess.run(
        [sys.executable, "-c", text, str(folder)],
        timeout=120, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    first, *lines = shown.stdout.splitlines()
    assert first == "program", shown.stderr
    return lines, shown.stderr


_LIST_SOCKETS = """
def do(item):
    import json, psutil
    driver = psutil.Process(os.getppid()).parent()
    processes = [driver, *driver.children(recursive=True)]
    inet = [c for p in processes for c in p.net_connections(kind="inet")]
    unix = [c.laddr for p in processes for c in p.net_connections(kind="unix") if c.laddr]
    report = {
        "processes": len(processes),
        "ports": [str(c.laddr) for c in inet if c.status == psutil.CONN_LISTEN],
        "sockets": unix,
        "modes": [oct(os.stat(os.path.dirname(p)).st_mode & 0o777) for p in unix],
    }
    with open(f"{folder}/{item}.json", "w") as handle:
        json.dump(report, handle)
"""


def test_no_other_user_can_reach_a_job_of_several_workers(tmp_path: Path) -> None:
    """Looks at every process of a job from within the job, while it runs."""
    lines, error = program(tmp_path, _LIST_SOCKETS)
    assert lines == ["done"], error
    reports = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert len(reports) == 2
    for report in reports:
        assert report["processes"] > 2
        assert report["ports"] == []
        assert all(path.startswith("/") for path in report["sockets"])
        assert set(report["modes"]) <= {"0o700"}


_WARMS_UP = """
loaded = []
sys.loaded = loaded

def warm_up():
    import os, sys
    sys.loaded = [os.getpid()]

def do(item):
    with open(f"{folder}/{item}", "w") as handle:
        handle.write(f"{sys.loaded == [os.getppid()]}")
"""


@pytest.mark.parametrize("at_once", [True, False])
def test_what_workers_need_is_loaded_once_for_all(tmp_path: Path, at_once: bool) -> None:
    """Also where the job turns out to need workers that were not expected."""
    lines, error = program(tmp_path, _WARMS_UP, warm_up=f"warm_up, at_once={at_once}")
    assert lines == ["done"], error
    assert [(tmp_path / name).read_text() for name in "01"] == ["True", "True"]


_DIES = """
def do(item):
    import os, signal, time
    if item == 3:
        {how}
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "signal 9 killed it, which the system does where memory runs out",
        ),
        ("os.abort()", "signal 6 killed it"),
        ("os._exit(7)", "its exit status is 7"),
    ],
)
def test_the_death_of_a_worker_is_one_line(tmp_path: Path, how: str, told: str) -> None:
    lines, error = program(tmp_path, _DIES.format(how=how), items=5)
    assert lines == [
        f"a worker died: {told}, while it did item 3 of Call, toy 3; run the same command again"
    ]
    assert "Traceback" not in error


def test_workers_load_what_the_process_that_they_are_forked_from_could_not(tmp_path: Path) -> None:
    fails = "def warm_up():\n    raise ValueError\n\ndef do(item):\n    pass\n"
    assert program(tmp_path, fails, warm_up="warm_up")[0] == ["done"]


_ERROR = """
class OddError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

def do(item):
    raise OddError(1, 2)
"""


def test_an_error_that_cannot_be_sent_is_told(tmp_path: Path) -> None:
    _, error = program(tmp_path, _ERROR)
    assert "OddError: 1 and 2" in error.splitlines()[-1]


def test_a_worker_of_a_killed_launcher_ends(tmp_path: Path) -> None:
    """It holds the end of a pipe, which is closed when the last of them has ended."""
    pause = """
def do(item):
    import os, signal, time
    print("working", flush=True)
    os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)
    time.sleep(600)

import psutil
"""
    text = _PROGRAM.format(functions=pause, function="do", items=2, warm_up="None")
    # Standard error is theirs until their log is open, so it is a pipe of theirs alone here.
    shown = subprocess.run(
        [sys.executable, "-c", text, str(tmp_path)], timeout=60, capture_output=True, cwd=ROOT
    )
    assert shown.returncode == -9
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True)
    assert not left.stdout
