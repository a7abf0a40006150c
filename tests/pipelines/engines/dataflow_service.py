"""A stand-in for Dataflow's REST API, which runs what is submitted in this process.

It reads the graph from where the job says it was staged, as Dataflow does, and keeps what it was
sent.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

JOB_ID = "2026-01-02_03_04_05-6789"
_JOB = re.compile(r"/v1b3/projects/([^/]+)/locations/([^/]+)/jobs(?:/([^/?]+))?(/messages)?")


def read_graph(job: dict[str, Any]) -> beam_runner_api_pb2.Pipeline:
    """The staged graph of a job, as Dataflow gets it."""
    url = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
    with FileSystems.open(url) as staged:
        return beam_runner_api_pb2.Pipeline.FromString(staged.read())


def _run(job: dict[str, Any]) -> None:
    graph = read_graph(job)
    for environment in graph.components.environments.values():
        environment.CopyFrom(EmbeddedPythonEnvironment.default().to_runner_api(None))
    FnApiRunner().run_via_runner_api(graph, PipelineOptions([])).wait_until_finish()


@dataclass
class DataflowService:
    """What the service was sent, and how its next job ends.

    Attributes:
      runs: what it takes, where that shall not fail.
      error: of a job that fails.
      refuses: no job is taken.
      meanwhile: what happens at each question.
      states: that the job has before its end, one a question.
    """

    url: str
    runs: bool = True
    error: str = ""
    refuses: bool = False
    meanwhile: Callable[[], object] = str
    states: list[str] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)

    def create(self, job: dict[str, Any]) -> dict[str, Any]:
        self.jobs.append(job)
        if self.runs and not self.error:
            _run(job)
        return self.answer("JOB_STATE_PENDING")

    def answer(self, state: str) -> dict[str, Any]:
        return {"id": JOB_ID, "name": self.jobs[-1]["name"], "currentState": state}

    def state(self) -> dict[str, Any]:
        self.meanwhile()
        end = "JOB_STATE_FAILED" if self.error else "JOB_STATE_DONE"
        return self.answer(self.states.pop(0) if self.states else end)

    def messages(self) -> dict[str, Any]:
        texts = ["a task was attempted 4 times", self.error]
        return {
            "jobMessages": [
                {"id": str(i), "messageText": text, "messageImportance": "JOB_MESSAGE_ERROR"}
                for i, text in enumerate(texts)
            ]
        }


def _handler(service: list[DataflowService]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self, body: dict[str, Any], status: int = 200) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _body(self) -> dict[str, Any]:
            content: dict[str, Any] = json.loads(
                self.rfile.read(int(self.headers["Content-Length"]))
            )
            return content

        def do_POST(self) -> None:
            assert _JOB.match(self.path)
            if service[0].refuses:
                error = {"code": 403, "message": "no permission", "status": "PERMISSION_DENIED"}
                self._answer({"error": error}, 403)
            else:
                self._answer(service[0].create(self._body()))

        def do_PUT(self) -> None:
            service[0].updates.append(self._body())
            self._answer(service[0].answer("JOB_STATE_CANCELLING"))

        def do_GET(self) -> None:
            match = _JOB.match(self.path)
            assert match
            assert match[3] == JOB_ID
            self._answer(service[0].messages() if match[4] else service[0].state())

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@contextmanager
def dataflow_service() -> Iterator[DataflowService]:
    """A service on a port of its own."""
    holder: list[DataflowService] = []
    with ThreadingHTTPServer(("localhost", 0), _handler(holder)) as server:
        holder.append(DataflowService(f"http://localhost:{server.server_port}"))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield holder[0]
        finally:
            server.shutdown()
            thread.join()
