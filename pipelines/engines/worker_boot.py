"""`recordmill-worker-boot`: the command by which an engine without containers starts a worker.

With `--environment_type=PROCESS` a Flink task manager runs this command once for each of its
workers, with the address that serves the job's options. Beam has such a program in its container
images only. A worker uses what is installed beside this command: nothing is downloaded, so a job's
`--requirements_file`, `--extra_package` and main session have no effect.
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

from recordmill.pipelines.engines.preloading import ENVIRONMENT

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
    """Ends this worker when the process that started it is gone."""
    while os.getppid() == engine:
        time.sleep(_WATCH_EVERY_SECONDS)
    os._exit(1)


def harness_environment(info: api.ProvisionInfo, worker_id: str, folder: str) -> dict[str, str]:
    """Returns the variables that Beam's Python worker reads.

    Args:
      info: the job's options, as the engine sends them.
      worker_id: the name that the engine gave this worker.
      folder: the folder for staged files.
    """
    return {
        "WORKER_ID": worker_id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "SEMI_PERSISTENT_DIRECTORY": folder,
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.control_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the flags by which an engine starts this command."""
    parser = argparse.ArgumentParser(prog="recordmill-worker-boot", allow_abbrev=False)
    parser.add_argument("--id", required=True, help="The name of the worker.")
    parser.add_argument(
        "--provision_endpoint", required=True, help="The address that the job's options come from."
    )
    parser.add_argument("--semi_persist_dir", default="/tmp", help="The folder for staged files.")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Runs one worker until the engine stops it or is gone."""
    options, _ = make_parser().parse_known_args(arguments)
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
