"""`recordmill-worker-boot`: what an engine starts a worker with, where there are no containers.

With `--environment_type=PROCESS` a Flink task manager runs this command once for each of its
workers and tells it where to ask for the job's options. Beam ships it as a program of its
container images only. What is installed beside this command is what the worker has: nothing is
downloaded, so a job's `--requirements_file`, `--extra_package` and main session do not arrive.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time

import grpc
from apache_beam.portability.api import beam_provision_api_pb2 as api
from apache_beam.portability.api import beam_provision_api_pb2_grpc
from google.protobuf import json_format, text_format

from recordmill.pipelines.local import ENVIRONMENT

_TIMEOUT_SECONDS = 60
_WATCH_EVERY_SECONDS = 0.5


def _provision(endpoint: str, worker_id: str) -> api.ProvisionInfo:
    with grpc.insecure_channel(endpoint) as channel:
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        response = stub.GetProvisionInfo(
            api.GetProvisionInfoRequest(),
            metadata=(("worker_id", worker_id),),
            timeout=_TIMEOUT_SECONDS,
            wait_for_ready=True,
        )
    return response.info


def _watch(engine: int) -> None:
    """Ends this worker when the process that started it is gone: nobody waits for its work."""
    while os.getppid() == engine:
        time.sleep(_WATCH_EVERY_SECONDS)
    os._exit(1)


def harness_environment(info: api.ProvisionInfo, worker_id: str, folder: str) -> dict[str, str]:
    """Returns the variables that Beam's Python worker reads, from what the engine says of the job.

    Args:
      info: the engine's answer.
      worker_id: the name that the engine gave this worker.
      folder: where staged files would lie.
    """
    return {
        "WORKER_ID": worker_id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "SEMI_PERSISTENT_DIRECTORY": folder,
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.control_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }


def main(arguments: list[str] | None = None) -> None:
    """Runs one worker until the engine is done with it, or gone."""
    parser = argparse.ArgumentParser(prog="recordmill-worker-boot", allow_abbrev=False)
    parser.add_argument("--id", required=True, help="The worker's name.")
    parser.add_argument("--provision_endpoint", required=True, help="Where the job is told of.")
    parser.add_argument("--semi_persist_dir", default="/tmp", help="Where staged files would lie.")
    options, _ = parser.parse_known_args(arguments)
    threading.Thread(target=_watch, args=(os.getppid(),), name="watch_engine", daemon=True).start()
    # Some engines keep what a worker prints in a pipe that nobody empties.
    os.dup2(2, 1)
    info = _provision(options.provision_endpoint, options.id)
    os.environ.update(harness_environment(info, options.id, options.semi_persist_dir))
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv[:1])
    # Everything is written and closed; taking a loaded interpreter apart takes half a second.
    os._exit(0)


if __name__ == "__main__":
    main()
