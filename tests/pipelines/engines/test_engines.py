"""Every engine writes the same bytes, and says in one line what it cannot do."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import psutil
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.portable_runner import PipelineResult
from apache_beam.runners.runner import PipelineState

from recordmill.pipelines import beam_internals as compat
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines import flink, flink_cluster, remote
from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.engines.flink_cluster import FlinkCluster, read_cluster
from recordmill.pipelines.engines.local import JobSize
from recordmill.pipelines.engines.remote import RemoteEngine, SubmittedJob, check_shared
from recordmill.records.errors import RunError, UsageError

from ..conftest import Written
from ..jobs import CASES, shard_bytes
from .engine_flags import engine_of

# What language models do with tokens is done by this machine's workers and by clusters alike.
_ELSEWHERE = ("text", "images", "examples", "gpt")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        *(pytest.param("direct", name) for name in CASES),
        *(pytest.param("prism", name, marks=pytest.mark.prism) for name in _ELSEWHERE),
        *(pytest.param("flink", name, marks=pytest.mark.flink) for name in _ELSEWHERE),
    ],
)
def test_same_bytes(
    engine: str,
    name: str,
    written: Callable[[str, str], Written],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    small = written(name, "small")
    flags = []
    if engine == "prism":
        flags = ["--runner=prism", f"--prism_location={request.getfixturevalue('prism')}"]
    elif engine == "flink":
        flags = request.getfixturevalue("flink").flags
    line = small.case.line(small.source, tmp_path / "ds", *small.flags, *flags, workers=2)
    subprocess.run(line, check=True, timeout=300, cwd=tmp_path)
    assert shard_bytes(tmp_path / "ds") == small.shards


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--runner=flnk"], "--runner must be one of direct, flink, dataflow, prism"),
        (["--runner=flink"], "--flink_master=HOST:PORT is required"),
        (["--runner=flink", "--flink_master=localhost:9"], "localhost:9 does not answer as one"),
        (["--runner=prism", "--prism_location=/none"], "--prism_location must be the program"),
        (["--runner=prism", "--no_wait"], "--no_wait has no meaning for --runner=prism"),
        (["--no_wait"], "--no_wait has no meaning for --runner=direct"),
        (["--direct_running_mode=multi_processing"], "--direct_running_mode has no meaning here"),
        (["--direct_runner_bundle_repeat=2"], "--direct_runner_bundle_repeat has no meaning here"),
        (["--direct_num_workers=-1"], "--direct_num_workers must be at least 0, got -1"),
        (["--stall_timeout=-1"], "--stall_timeout must be at least 0, got -1"),
        (["--report", "--runner=flink", "--no_wait"], "--report is written by the process that"),
        (["--stall_timeout=nan"], "--stall_timeout must be at least 0, got nan"),
        (["--runner=prism", "--stall_timeout=9"], "--stall_timeout has no meaning for --runner=pr"),
        (["--flink_mastr=x"], "unknown flag --flink_mastr=x; did you mean --flink_master?"),
        (["--runner=flink", "--parallelism=x"], "--parallelism: invalid int value: 'x'"),
    ],
)
def test_mistakes_are_one_line(flags: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        engine_of(flags)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_port_that_speaks_no_http_is_one_line() -> None:
    """Such as the gRPC port of a job server, next to the one that is meant."""
    with socket.create_server(("localhost", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as caller:
                caller.recv(1 << 16)
                caller.sendall(b"\x00\x00\x12\x04\x00\x00")

        threading.Thread(target=answer, daemon=True).start()
        master = f"localhost:{server.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"{master} does not answer as one: .* not by HTTP$"):
            read_cluster(master)


def test_engines_by_beams_names() -> None:
    engine = engine_of(["--runner=PrismRunner"])
    assert engine.workers == usable_cores()
    other = engine_of(["--runner=SparkRunner", "--parallelism=7"])
    assert other.workers == 7


def test_workers_elsewhere_need_shared_storage(tmp_path: Path) -> None:
    check_shared("flink", {"--output": "gs://bucket/ds"})
    with pytest.raises(UsageError, match=r"--output must be storage that all workers of flink"):
        check_shared("flink", {"--input": "gs://bucket/in", "--output": str(tmp_path)})


@pytest.mark.parametrize(
    "trace",
    [
        "Traceback (most recent call last):\n  File x, line 1\nValueError: no such thing\n\n",
        'status 400: {"errors":["A: B.\\n\\tat C\\nCaused by: ValueError: no such thing\\n"]}',
        "a.RuntimeException: x\nCaused by: a.FlinkException: y\nValueError: no such thing\n\tat",
    ],
)
def test_the_last_cause_of_a_trace_is_reported(trace: str) -> None:
    assert one_line(RuntimeError(trace)) == "ValueError: no such thing"


class _Jobs(BaseHTTPRequestHandler):
    """A cluster that lists no job."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"jobs": []}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.timeout(60)
def test_an_older_job_of_the_same_name_is_not_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [{"jid": "old", "name": "nightly", "start-time": 1}]
    monkeypatch.setattr(flink_cluster, "_get", lambda _: {"jobs": list(jobs)})
    cluster = FlinkCluster("http://cluster", "1.19", 1, 1, 1, "", elastic=False, is_here=True)
    find = flink._finder(cluster)
    listed = threading.Timer(1.0, jobs.append, [{"jid": "new", "name": "nightly", "start-time": 2}])
    listed.start()
    assert find(_Result(PipelineState.RUNNING), "nightly").where.endswith("/new")
    jobs.append({"jid": "newer", "name": "nightly", "start-time": 2})
    assert find(_Result(PipelineState.RUNNING), "nightly").where.endswith("/newer")


@dataclass
class _Result:
    """What Beam knows of a job that the cluster does not list."""

    state: str

    def wait_until_finish(self, duration: int) -> None:
        if self.state != PipelineState.DONE:
            raise RuntimeError("the job server's reason")


@pytest.mark.timeout(60)
def test_a_job_that_ended_before_it_was_listed_is_not_waited_for() -> None:
    with HTTPServer(("localhost", 0), _Jobs) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://localhost:{server.server_port}"
        find = flink._finder(FlinkCluster(url, "1.19", 1, 1, 1, "", elastic=False, is_here=True))
        job = find(_Result(PipelineState.DONE), "recordmill-1")
        assert job.where == f"{url} (the job has ended)"
        assert job.cancel() is None
        with pytest.raises(RuntimeError, match="the job server's reason"):
            find(_Result(PipelineState.FAILED), "recordmill-1")
        with pytest.raises(RunError, match="job server does not answer any more"):
            find(_Result(""), "recordmill-1")
        server.shutdown()


class _Told:
    """What Beam and an engine tell of a job, one after the other; the last ones again and again."""

    def __init__(self, beam: list[str], own: list[str]) -> None:
        self._beam, self._own = beam, own
        self.job = SubmittedJob("http://cluster/#/job", lambda: None, state=lambda: self._next(own))

    @staticmethod
    def _next(states: list[str]) -> str:
        return states.pop(0) if len(states) > 1 else states[0]

    @property
    def state(self) -> str:
        return self._next(self._beam)

    def metrics(self) -> None:
        raise NotImplementedError


_RUNS, _DONE, _FAILED = PipelineState.RUNNING, PipelineState.DONE, PipelineState.FAILED


@pytest.mark.parametrize(
    ("beam", "own", "error"),
    [
        ([_RUNS, _RUNS, _DONE], [""], ""),
        ([_RUNS, ""], [_RUNS, _RUNS, "", _RUNS, _RUNS, _RUNS, _DONE], ""),  # the server has gone
        ([_RUNS], [_DONE], ""),  # it failed at the end
        ([_RUNS], [_DONE, ""], ""),  # and then Flink forgets the job
        ([_RUNS], [_FAILED], "the job ended as FAILED: http://cluster/#/job"),
        ([_RUNS, ""], [_RUNS, ""], "flink does not answer any more; see http://cluster/#/job"),
        ([_RUNS, ""], [""], "flink does not answer any more; see http://cluster/#/job"),
    ],
)
@pytest.mark.timeout(60)
def test_the_end_of_a_job_is_told_by_its_engine_where_beam_does_not(
    beam: list[str], own: list[str], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "UNTOLD_SECONDS", 2)
    engine = RemoteEngine(
        name="flink", runner="FlinkRunner", workers=1, flags=(), is_here=True, outlives=True,
        find=remote.find_by_name,
    )  # fmt: skip
    told = _Told(beam, own)
    with pytest.raises(RunError) if error else nullcontext() as raised:
        assert engine._await(told, told.job, str(tmp_path / "failure")) == {}
    assert error == (str(raised.value) if raised else "")


def test_what_beam_started_for_a_job_ends_with_it(tmp_path: Path) -> None:
    flags = ("--job_endpoint=embed", "--environment_type=LOOPBACK")
    engine = RemoteEngine(
        name="portable", runner="PortableRunner", workers=1, flags=flags, is_here=True,
        outlives=True, find=remote.find_by_name,
    )  # fmt: skip
    engine.submit(
        lambda pipeline: pipeline | beam.Create([1]),
        folder=str(tmp_path),
        failure_path=str(tmp_path / "failure"),
        size=JobSize(work_items=1, input_bytes=0, processes=1),
    )
    kinds = psutil.CONN_LISTEN
    assert [c for c in psutil.Process().net_connections() if c.status == kinds] == []


@pytest.fixture
def job_server() -> Iterator[tuple[str, threading.Event]]:
    """The address of a job server that knows one job, and an event without which it is silent."""
    answers = threading.Event()

    class Service(beam_job_api_pb2_grpc.JobServiceServicer):
        def GetState(self, request: Any, context: Any) -> Any:
            answers.wait(30)
            return beam_job_api_pb2.JobStateEvent(state=beam_job_api_pb2.JobState.DONE)

        def Cancel(self, request: Any, context: Any) -> Any:
            answers.wait(30)
            return beam_job_api_pb2.CancelJobResponse()

        def GetJobMetrics(self, request: Any, context: Any) -> Any:
            answers.wait(30)
            return beam_job_api_pb2.GetJobMetricsResponse()

    server = grpc.server(ThreadPoolExecutor(4))
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    yield f"localhost:{port}", answers
    answers.set()
    server.stop(None).wait()


@pytest.mark.timeout(60)
def test_a_silent_job_server_is_not_waited_for(job_server: tuple[str, threading.Event]) -> None:
    where, answers = job_server
    with grpc.insecure_channel(where) as channel:
        result = PipelineResult(beam_job_api_pb2_grpc.JobServiceStub(channel), "job", (), ())
        assert compat.job_state(result, 0.5) == ""
        with pytest.raises(grpc.RpcError):
            compat.job_metrics(result, 0.5)
        with pytest.raises(grpc.RpcError):
            compat.cancel_job(result, 0.5)
        answers.set()
        compat.cancel_job(result, 30)
        assert compat.job_state(result, 30) == PipelineState.DONE
        assert compat.job_metrics(result, 30).query()["counters"] == []


def test_a_job_server_is_asked_before_anything_is_planned(
    job_server: tuple[str, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_CONNECT_SECONDS", 2)
    where, _ = job_server
    for runner in ("PortableRunner", "prism"):
        for endpoint in (where, ""):
            flags = [f"--runner={runner}", f"--job_endpoint={endpoint}"]
            assert engine_of(flags).workers >= 1
        for bad in ("localhost:1", "\udcff:1"):
            flags = [f"--runner={runner}", f"--job_endpoint={bad}"]
            with pytest.raises(UsageError, match=r"' does not answer as one within 2 s"):
                engine_of(flags)


@pytest.mark.parametrize("runner", ["flink", "prism"])
def test_a_job_server_in_this_process_is_another_engine(
    runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FlinkCluster("http://flink", "1.19", 1, 1, 1, "", elastic=False, is_here=True)
    monkeypatch.setattr(flink, "read_cluster", lambda url: cluster)
    flags = [f"--runner={runner}", "--flink_master=flink:8081", "--job_endpoint=embed"]
    with pytest.raises(UsageError, match=f"in this process, not on --runner={runner}; leave"):
        engine_of(flags)


def test_an_error_of_grpc_is_one_line(job_server: tuple[str, threading.Event]) -> None:
    with grpc.insecure_channel(job_server[0]) as channel:
        server = beam_job_api_pb2_grpc.JobServiceStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            server.GetPipeline(beam_job_api_pb2.GetJobPipelineRequest(job_id="job"))
    assert one_line(error.value) == "UNIMPLEMENTED: Method not implemented!"
