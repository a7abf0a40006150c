"""The local engine: what it adds to Beam's runner."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam as beam
import pytest

from recordmill.pipelines.compat import servers_on_sockets
from recordmill.pipelines.engines.local import run_local
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
