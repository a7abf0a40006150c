"""Dataflow: what is submitted, what is said of it, and what is refused before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.internal.gcp import auth
from apache_beam.io.filesystems import FileSystems
from gcp_storage_emulator.server import create_server

from recordmill.pipelines import remote, templates
from recordmill.pipelines.command_line import main
from recordmill.pipelines.dataflow import choose_machines
from recordmill.pipelines.engines import choose_engine, parse_arguments
from recordmill.pipelines.local import JobSize
from recordmill.records.arguments import Parser
from recordmill.records.errors import UsageError
from recordmill.transforms import files

from .conftest import Written
from .dataflow_service import JOB_ID, DataflowService, dataflow_service, read_graph

IMAGE = "somewhere/recordmill:1"
PLACE = ("--project=my-project", "--region=europe-west1", "--temp_location=gs://bucket/temp")
FLAGS = ("--runner=dataflow", *PLACE, f"--sdk_container_image={IMAGE}")
LINK = f"https://console.cloud.google.com/dataflow/jobs/europe-west1/{JOB_ID}?project=my-project"


@pytest.fixture(scope="module", autouse=True)
def storage() -> Iterator[None]:
    """An empty bucket."""
    server = create_server("localhost", 0, in_memory=True, default_bucket="bucket")
    server.start()
    port = server._api._httpd.server_port
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://localhost:{port}")
        # Beam looks for credentials for 20 s otherwise.
        patch.setattr(auth._Credentials, "_credentials_init", True)
        yield
    server.stop()


@pytest.fixture(scope="module")
def uploaded(small: Written) -> Written:
    """Puts the input of the small jobs on the bucket."""
    for path in small.source.rglob("*"):
        if path.is_file():
            name = path.relative_to(small.source)
            files.write_bytes(f"gs://bucket/{small.case.command}/{name}", path.read_bytes())
    return small


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataflowService]:
    monkeypatch.setattr(remote, "REMOTE_POLL_SECONDS", 0.1)
    with dataflow_service() as started:
        yield started


def line(job: Written, output: str, *flags: str) -> list[str]:
    folder = f"gs://bucket/{job.case.command}"
    own = [flag.format(folder=folder) for flag in job.flags]
    return [job.case.command, f"--input={folder}/{job.case.pattern}", f"--output={output}", *own, *flags]


def shards(output: str) -> dict[str, bytes]:
    paths = [path for path in files.list_files(output) if path.endswith(".tfrecords")]
    return {path[len(output) + 1 :]: files.read_bytes(path) for path in paths}


def test_submitted_and_done(
    uploaded: Written, service: DataflowService, capsys: pytest.CaptureFixture[str]
) -> None:
    output = f"gs://bucket/done-{uploaded.case.command}"
    service.states = ["JOB_STATE_RUNNING"]
    passed_through = [
        "--no_use_public_ips", "--service_account_email=me@my-project", "--labels=team=vision",
        "--subnetwork=regions/europe-west1/subnetworks/sub", "--dataflow_kms_key=key",
        "--network=net", "--worker_zone=europe-west1-b",
    ]  # fmt: skip
    endpoint = f"--dataflow_endpoint={service.url}"
    assert main(line(uploaded, output, *FLAGS, endpoint)) == 0
    assert shards(output) == uploaded.shards
    assert files.exists(f"{output}/_SUCCESS")
