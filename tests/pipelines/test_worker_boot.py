"""The command that starts a worker, with the engine's side played by a real gRPC service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_provision_api_pb2 as api
from apache_beam.portability.api import beam_provision_api_pb2_grpc
from google.protobuf import json_format, text_format

from recordmill.pipelines.worker_boot import harness_environment

INFO = api.ProvisionInfo(runner_capabilities=["one", "two"])
json_format.ParseDict({"beam:option:runner:v1": "x"}, INFO.pipeline_options)
INFO.control_endpoint.url = "localhost:9"
INFO.logging_endpoint.url = "localhost:10"


class Engine(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    """Tells a worker of its job, and remembers which one asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def GetProvisionInfo(self, request: Any, context: Any) -> Any:
        self.asked.append(dict(context.invocation_metadata())["worker_id"])
        return api.GetProvisionInfoResponse(info=INFO)


def test_environment_is_what_beams_worker_reads() -> None:
    found = harness_environment(INFO, "7-1", "/staged")
    assert json.loads(found.pop("PIPELINE_OPTIONS")) == {"beam:option:runner:v1": "x"}
    control = type(INFO.control_endpoint)()
    text_format.Parse(found.pop("CONTROL_API_SERVICE_DESCRIPTOR"), control)
    assert control.url == "localhost:9"
    assert "localhost:10" in found.pop("LOGGING_API_SERVICE_DESCRIPTOR")
    assert found == {
        "WORKER_ID": "7-1",
        "SEMI_PERSISTENT_DIRECTORY": "/staged",
        "RUNNER_CAPABILITIES": "one two",
    }


@pytest.mark.slow
def test_it_asks_for_its_job_and_ends_with_the_engine(tmp_path: Path) -> None:
    engine = Engine()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(engine, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        # No worker can be had at the control endpoint: it must end by itself, and say why.
        boot = [sys.executable, "-m", "recordmill.pipelines.worker_boot", "--id=3-1"]
        command = [*boot, f"--provision_endpoint=localhost:{port}", "--logging_endpoint=ignored"]
        run = subprocess.run(
            command, capture_output=True, timeout=300, cwd=tmp_path, env={**os.environ}
        )
    finally:
        server.stop(None)
    assert engine.asked == ["3-1"]
    assert run.stdout == b""
    assert run.returncode != 0
