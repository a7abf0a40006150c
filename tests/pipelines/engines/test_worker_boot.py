"""The command that starts a worker; `test_flink.py` runs it for real."""

from __future__ import annotations

import json

from apache_beam.portability.api import beam_provision_api_pb2 as api
from google.protobuf import json_format, text_format

from recordmill.pipelines.engines.worker_boot import harness_environment

INFO = api.ProvisionInfo(runner_capabilities=["one", "two"])
json_format.ParseDict({"beam:option:runner:v1": "x"}, INFO.pipeline_options)
INFO.control_endpoint.url = "localhost:9"
INFO.logging_endpoint.url = "localhost:10"


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
