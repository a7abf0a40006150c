"""The local engine: what it adds to Beam's runner."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam as beam
import pytest

from recordmill.pipelines.beam_internals import BEAM_WORKER_THREAD, servers_on_sockets
from recordmill.pipelines.engines.local import WorkerDiedError, run_local
from recordmill.records.errors import RunError
from recordmill.transforms.dataset.error_budget import OverBudgetError


def _too_many(_: int) -> None:
    raise OverBudgetError("2 of 3 inputs rejected")


def _divide(number: int) -> float:
    return 1 / number


def run(function: object, tmp_path: Path) -> None:
    def build(pipeline: beam.Pipeline) -> object:
        return pipeline | beam.Create([0]) | "DoIt" >> beam.Map(function)

    run_local(build, [], workers=1, log=str(tmp_path / "log"))


def test_our_errors_end_without_the_name_of_a_stage(tmp_path: Path) -> None:
    with pytest.raises(OverBudgetError) as error:
        run(_too_many, tmp_path)
    assert str(error.value) == "2 of 3 inputs rejected"
    assert isinstance(error.value, RunError)


def test_a_job_leaves_hooks_and_streams_as_they_were(tmp_path: Path) -> None:
    before = threading.excepthook, sys.stderr
    run(str, tmp_path)
    with pytest.raises(ZeroDivisionError, match="while running 'DoIt'"):
        run(_divide, tmp_path)
    assert (threading.excepthook, sys.stderr) == before


# A program, because its functions go to the workers by value, as those of a user's program do.
_LIST_SOCKETS = """
import json, os, stat, sys
import apache_beam as beam
from recordmill.pipelines.engines.local import run_local, start_fork_server

def list_sockets(number, driver, folder):
    import psutil
    driver = psutil.Process(driver)
    processes = [driver, *driver.children(recursive=True)]
    inet = [c for p in processes for c in p.net_connections(kind="inet")]
    report = {
        "processes": len(processes),
        "ports": [str(c.laddr) for c in inet if c.status == psutil.CONN_LISTEN],
        "sockets": [c.laddr for c in driver.net_connections(kind="unix") if c.laddr[:1] == "/"],
    }
    with open(f"{folder}/{number}.json", "w") as handle:
        json.dump(report, handle)

server = start_fork_server()
print(json.dumps([server.folder, stat.S_IMODE(os.stat(server.folder).st_mode)]))
arguments = os.getpid(), sys.argv[1]
run_local(
    lambda p: p | beam.Create([0, 1]) | beam.Map(list_sockets, *arguments),
    [], workers=2, log=sys.argv[1] + "/log", fork_server=server,
)
"""


def test_no_other_user_can_reach_a_job_of_several_workers(tmp_path: Path) -> None:
    """Looks at every process of a job from within the job, while it runs."""
    program = [sys.executable, "-c", _LIST_SOCKETS, str(tmp_path)]
    shown = subprocess.run(program, check=True, timeout=120, capture_output=True, text=True)
    folder, mode = json.loads(shown.stdout.splitlines()[0])
    assert mode == 0o700
    reports = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert len(reports) == 2
    for report in reports:
        assert report["processes"] > 2
        assert report["ports"] == []
        assert len(report["sockets"]) >= 4
        assert all(path.startswith(folder) for path in report["sockets"])


def test_files_of_this_user_are_not_handed_out() -> None:
    import grpc
    from apache_beam.portability.api import beam_artifact_api_pb2 as messages
    from apache_beam.portability.api import beam_artifact_api_pb2_grpc as artifacts
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        with servers_on_sockets(folder):
            server = worker_handlers.grpc.server(ThreadPoolExecutor(1))
            artifacts.add_ArtifactRetrievalServiceServicer_to_server(
                artifacts.ArtifactRetrievalServiceServicer(), server
            )
            number = server.add_insecure_port("[::]:0")
        server.start()
        with grpc.insecure_channel(f"unix:{folder}/{number}") as channel:
            stub = artifacts.ArtifactRetrievalServiceStub(channel)
            with pytest.raises(grpc.RpcError) as error:
                stub.ResolveArtifacts(messages.ResolveArtifactsRequest())
        server.stop(None)
    assert "Method not found" in error.value.details()


# In a process of its own: a job that fails leaves threads of Beam's that wait for workers.
_FORK_SERVER_DIES = """
import os, signal, sys, threading, time
import apache_beam as beam
from recordmill.pipelines.engines.local import WorkerDiedError, run_local, start_fork_server

how, log = sys.argv[1:]
if how.startswith("new"):  # as where the driver has threads: it is not forked
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
module = ("no_such_module",) if how.endswith("import") else ()
server = start_fork_server(module)
if how.endswith("kill"):
    os.kill(server._pid, signal.SIGKILL)
began = time.monotonic()
try:
    build = lambda p: p | beam.Create([0, 1]) | beam.Map(str)
    run_local(build, [], workers=2, log=log, fork_server=server)
except WorkerDiedError as error:
    print(time.monotonic() - began, error, sep="|", flush=True)
    print(os.path.exists(server.folder))
os._exit(0)
"""


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("fork import", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("new import", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("fork kill", "signal 9 killed it"),
        ("new kill", "signal 9 killed it"),
    ],
)
def test_the_death_of_the_fork_server_is_told_at_once(
    tmp_path: Path, how: str, reason: str
) -> None:
    program = [sys.executable, "-c", _FORK_SERVER_DIES, how, str(tmp_path / "log")]
    shown = subprocess.run(program, timeout=120, capture_output=True, text=True)
    told, left = shown.stdout.splitlines()
    seconds, line = told.split("|")
    assert line == (
        f"the process that workers are forked from died: {reason}; finished work is kept, run the "
        "same command again to go on"
    )
    assert float(seconds) < 20
    assert left == "False"
    assert "Traceback" not in shown.stderr
    assert not (tmp_path / "log").read_text()


def test_a_fork_server_that_dies_after_its_forks_ends_no_job(tmp_path: Path) -> None:
    program = [sys.executable, "-c", _FORK_SERVER_DIES_LATE, str(tmp_path)]
    shown = subprocess.run(program, timeout=120, capture_output=True, text=True)
    assert shown.stdout == "done\n", shown.stderr


_FORK_SERVER_DIES_LATE = """
import os, signal, sys
import apache_beam as beam
from recordmill.pipelines.engines.local import run_local, start_fork_server

def kill(number, server):
    import os, signal, time
    time.sleep(1)  # both workers are there
    try:
        os.kill(server, signal.SIGKILL)
    except ProcessLookupError:
        pass
    time.sleep(0.5)

server = start_fork_server()
build = lambda p: p | beam.Create([0, 1]) | beam.Map(kill, server._pid)
run_local(build, [], workers=2, log=sys.argv[1] + "/log", fork_server=server)
print("done")
"""


# What Beam started for the worker is stopped: Beam hears of the death by the connection first, as
# where a busy machine does not let that program run. It may wait for that program's end as well.
_WORKER_DIES = """
import os, signal, sys
import apache_beam as beam
from recordmill.pipelines.engines.local import WorkerDiedError, run_local, start_fork_server

def die(number, driver):
    import os, signal, subprocess, time
    import psutil
    time.sleep(1)  # both workers are there
    for child in psutil.Process(driver).children(recursive=True):
        is_client = any(part.endswith("worker_client.py") for part in child.cmdline())
        if is_client and child.environ()["WORKER_ID"] == os.environ["WORKER_ID"]:
            child.suspend()
            subprocess.Popen(["sh", "-c", f"sleep 30; kill -CONT {child.pid}"])
    os.kill(os.getpid(), signal.SIGKILL)

server = start_fork_server()
try:
    # Beam waits for the output of this stage, on that connection.
    build = lambda p: p | beam.Create([0]) | beam.ParDo(die, os.getpid()) | beam.GroupByKey()
    run_local(build, [], workers=2, log=sys.argv[1], fork_server=server)
except WorkerDiedError as error:
    print(error, flush=True)
os.killpg(0, signal.SIGKILL)  # what is stopped, too
"""


def test_the_death_of_a_worker_is_told_where_only_its_connection_tells_it(tmp_path: Path) -> None:
    program = [sys.executable, "-c", _WORKER_DIES, str(tmp_path / "log")]
    shown = subprocess.run(
        program, timeout=120, capture_output=True, text=True, start_new_session=True
    )
    assert shown.stdout.startswith("a worker died: "), shown.stderr
    assert shown.stdout.endswith("run the same command again to go on\n")


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("", "a worker died: its connection was closed"),
        ("return code 1", "a worker died: return code 1"),
    ],
)
def test_the_end_of_a_connection_is_the_death_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, line: str
) -> None:
    def tell() -> None:
        time.sleep(0.05)
        raise RuntimeError(told)

    def build(_: beam.Pipeline) -> None:
        if told:
            threading.Thread(target=tell, name=BEAM_WORKER_THREAD).start()
        raise RuntimeError("Channel closed prematurely.")

    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # put back at the end
    with pytest.raises(WorkerDiedError) as error:
        run_local(build, [], workers=1, log=str(tmp_path / "log"))
    assert str(error.value) == f"{line}; finished work is kept, run the same command again to go on"


_WARMS_UP = """
import os, sys, threading, time
import apache_beam as beam
from recordmill.pipelines.engines.local import run_local, start_fork_server

how, folder = sys.argv[1:]
loaded = []

def warm_up():
    loaded.append(os.getpid())

def write(number):
    import os, time
    from recordmill.pipelines.engines import local
    with open(f"{folder}/{number}", "w") as handle:
        handle.write(f"{os.getppid()} {local.loaded}")
    time.sleep(0.5)  # the other worker has the other one

if how == "new":
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
from recordmill.pipelines.engines import local
local.loaded = loaded
server = start_fork_server((), warm_up)
print(server.is_warm, server._pid)
if how == "fork":
    build = lambda p: p | beam.Create([0, 1]) | beam.Map(write)
    run_local(build, [], workers=2, log=folder + "/log", fork_server=server)
else:
    server.close()
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize("how", ["fork", "new"])
def test_a_fork_server_warms_up_once_for_all_workers(tmp_path: Path, how: str) -> None:
    program = [sys.executable, "-c", _WARMS_UP, how, str(tmp_path)]
    shown = subprocess.run(program, timeout=120, capture_output=True, text=True)
    is_warm, pid = shown.stdout.split()
    assert is_warm == str(how == "fork"), shown.stderr
    if how == "fork":
        assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text() == f"{pid} [{pid}]"
