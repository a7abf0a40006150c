"""Every use of private parts of Beam, and how argparse names the flags of its options.

`tests/pipelines/test_compat.py` has a canary for each of them, which fails when a release changes
it. Beam is imported late: some commands do without it.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

# Beam's thread that starts a worker process and waits for it; it raises when the process fails.
BEAM_WORKER_THREAD = "run_worker"
# The program of Beam's worker processes, and of the container images.
BEAM_WORKER_MODULE = "apache_beam.runners.worker.sdk_worker_main"
# Beam's logger of the job servers that it starts.
BEAM_SERVER_LOGGER = "apache_beam.utils.subprocess_server"
# The end of the name of Beam's service that hands files to workers.
ARTIFACT_SERVICE = ".ArtifactRetrievalService"

_STAGE_NAME = re.compile(r" \[while running '[^']*'\]")


def without_stage_names(text: str) -> str:
    """Removes what Beam appends to the message of an error: the name of the stage."""
    return _STAGE_NAME.sub("", text)


def is_lost_worker(error: BaseException) -> bool:
    """Returns whether an error of FnApiRunner's is all that it knows of a worker's death.

    That is so where it waits for the output of a stage, and sees the end of the connection.
    """
    import grpc

    if type(error) is RuntimeError:
        return str(error) == "Channel closed prematurely."
    return type(error) is grpc.RpcError  # of a server; those of clients are of other types


def worker_environment(command: str) -> Any:
    """Returns the environment in which FnApiRunner starts workers by a shell command."""
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    return SubprocessSDKEnvironment.from_command_string(command)


class _SocketServer:
    """A gRPC server whose "ports" are Unix sockets in a folder, numbered from 1."""

    def __init__(self, server: Any, folder: str, numbers: Iterator[int]) -> None:
        self._server = server
        self._folder = folder
        self._numbers = numbers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def add_insecure_port(self, _: str) -> int:
        number = next(self._numbers)
        self._server.add_insecure_port(f"unix:{self._folder}/{number}")
        return number

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Adds services, without the one that hands out any file of this user: workers are forks
        and need no files."""
        kept = tuple(h for h in handlers if not h.service_name().endswith(ARTIFACT_SERVICE))
        if kept:
            self._server.add_generic_rpc_handlers(kept)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        if not service.endswith(ARTIFACT_SERVICE):
            self._server.add_registered_method_handlers(service, handlers)


class _SocketGrpc:
    """The grpc module for Beam's runner, with servers on Unix sockets."""

    def __init__(self, grpc: Any, folder: str) -> None:
        self._grpc = grpc
        self._folder = folder
        self._numbers = count(1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grpc, name)

    def server(self, *arguments: Any, **options: Any) -> _SocketServer:
        return _SocketServer(self._grpc.server(*arguments, **options), self._folder, self._numbers)


@contextmanager
def servers_on_sockets(folder: str) -> Iterator[None]:
    """Makes FnApiRunner's servers listen on Unix sockets in a folder, which must be private.

    Beam's own listen on all network addresses and let anyone in who can reach them: other users of
    the machine could read records, and any file of this user.
    """
    import grpc
    from apache_beam.runners.portability import local_job_service
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    modules = (worker_handlers, local_job_service)
    # One for both: sockets are numbered within their folder, whichever module opens a server.
    on_sockets = _SocketGrpc(grpc, folder)
    for module in modules:
        module.grpc = on_sockets
    try:
        yield
    finally:
        for module in modules:
            module.grpc = grpc


def connect_by_sockets(folder: str) -> None:
    """Makes this worker connect to the servers of `servers_on_sockets`."""
    from apache_beam.runners.worker.channel_factory import GRPCChannelFactory

    connect = GRPCChannelFactory.insecure_channel

    def insecure_channel(target: str, options: Any = None) -> Any:
        host, _, number = target.rpartition(":")
        return connect(f"unix:{folder}/{number}" if host == "localhost" else target, options)

    GRPCChannelFactory.insecure_channel = staticmethod(insecure_channel)


def move_pipeline_folder(pipeline: Any, folder: str) -> None:
    """Moves Beam's temporary folder of a new pipeline; it removes it only after a success."""
    os.rename(pipeline.local_tempdir, folder)
    pipeline.local_tempdir = folder


def add_beam_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of all loaded pipeline options to a parser that resolves conflicts."""
    from apache_beam.options.pipeline_options import PipelineOptions

    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)


def _job_server(result: Any) -> Any:
    """Returns the stub of the job server that a job was given to, None where there is none."""
    from apache_beam.portability.api import beam_job_api_pb2_grpc

    server = getattr(result, "_job_service", None)
    return server if isinstance(server, beam_job_api_pb2_grpc.JobServiceStub) else None


def job_state(result: Any, seconds: float) -> str:
    """Returns a job's state as Beam tells it, "" where the job server does not for so long."""
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2

    server = _job_server(result)
    if server is None:
        return str(result.state)
    try:  # Beam itself asks without a limit of time
        job = beam_job_api_pb2.GetJobStateRequest(job_id=result._job_id)
        answer = server.GetState(job, timeout=seconds)
    except grpc.RpcError:
        return ""
    return str(result.runner_api_state_to_pipeline_state(answer.state))


def cancel_job(result: Any, seconds: float) -> None:
    """Cancels a job, as `result.cancel()` does, which waits without a limit of time.

    Raises:
      grpc.RpcError: the job server does not answer in time.
    """
    from apache_beam.portability.api import beam_job_api_pb2

    server = _job_server(result)
    if server is None:
        result.cancel()
    else:
        server.Cancel(beam_job_api_pb2.CancelJobRequest(job_id=result._job_id), timeout=seconds)


def job_metrics(result: Any, seconds: float) -> Any:
    """Returns a job's metrics, as `result.metrics()` does, which waits without a limit of time.

    Raises:
      grpc.RpcError: the job server does not answer in time.
    """
    from apache_beam.portability.api import beam_job_api_pb2
    from apache_beam.runners.portability.portable_runner import PortableMetrics

    server = _job_server(result)
    if server is None:
        return result.metrics()
    job = beam_job_api_pb2.GetJobMetricsRequest(job_id=result._job_id)
    return PortableMetrics(server.GetJobMetrics(job, timeout=seconds))


def release_job(result: Any) -> None:
    """Stops what Beam started in this process for a job, such as the server of LOOPBACK workers.

    Beam itself does so only behind an endless wait for the job's end.
    """
    with suppress(Exception):
        getattr(result, "_cleanup", lambda: None)()


def dataflow_errors(result: Any) -> list[str]:
    """Returns the error messages that Dataflow has of a job, in order of time."""
    job, client = result.job_id(), result._runner.dataflow_client
    errors: list[str] = []
    token = None
    while True:
        messages, token = client.list_messages(
            job, page_token=token, minimum_importance="JOB_MESSAGE_ERROR"
        )
        errors += [message.message_text for message in messages]
        if not token:
            return errors


def option_actions(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Returns flag -> action of a parser, for every spelling of every flag."""
    return parser._option_string_actions
