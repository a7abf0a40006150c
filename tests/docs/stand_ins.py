"""Stand-ins for what the documentation names and no test has: a Flink cluster with its job server,
which Prism shares, and the program `docker`.

A job goes to the job server by Beam's own API, as it does on a cluster. The server runs it in this
process, because the workers that the job asks for are not installed anywhere.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.local_job_service import BeamJob, LocalJobServicer
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

SLOTS = 2


class _Job(BeamJob):  # type: ignore[misc]
    """A job that runs in this process, whatever workers it asks for."""

    def _invoke_runner(self) -> Any:
        graph = self._pipeline_proto
        for environment in graph.components.environments.values():
            environment.CopyFrom(EmbeddedPythonEnvironment.default().to_runner_api(None))
        return FnApiRunner().run_via_runner_api(graph, PipelineOptions([]))

    def given_name(self) -> str:
        """Returns the value of --job_name, by which a Flink cluster lists a job."""
        return str(self.pipeline_options().view_as(GoogleCloudOptions).job_name)


@dataclass(frozen=True)
class FlinkStandIn:
    """The addresses of a cluster and of its job server."""

    master: str
    job_endpoint: str
    server: LocalJobServicer

    def submitted(self) -> int:
        """Returns how many jobs the server was given."""
        return len(self.server._jobs)


def _cluster_content(server: LocalJobServicer) -> dict[str, Any]:
    jobs = [
        {"jid": f"{number:032x}", "name": job.given_name(), "start-time": number}
        for number, job in enumerate(server._jobs.values())
    ]
    return {
        "/overview": {"flink-version": "1.19.1", "slots-total": SLOTS, "slots-available": SLOTS},
        "/taskmanagers": {
            "taskmanagers": [{"slotsNumber": SLOTS, "path": "pekko.tcp://flink@127.0.0.1:1/user"}]
        },
        "/jobmanager/config": [{"key": "restart-strategy.type", "value": "fixed-delay"}],
        "/jobs/overview": {"jobs": jobs},
    }


@contextmanager
def flink_stand_in() -> Iterator[FlinkStandIn]:
    """Serves what recordmill asks a cluster for, and Beam's job API, on ports of their own."""
    jobs = LocalJobServicer(beam_job_type=_Job)
    job_port = jobs.start_grpc_server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(_cluster_content(jobs)[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("localhost", 0), Handler) as rest:
        thread = threading.Thread(target=rest.serve_forever)
        thread.start()
        try:
            endpoint = f"localhost:{job_port}"
            yield FlinkStandIn(f"localhost:{rest.server_port}", endpoint, jobs)
        finally:
            rest.shutdown()
            thread.join()
            jobs.stop()


def write_docker(folder: Path) -> None:
    """Writes a program `docker` whose images all hold this machine's recordmill."""
    program = folder / "docker"
    module = "from recordmill.pipelines.command_line import main; main(['doctor', '--json'])"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{module}"\n')
    program.chmod(0o755)
