"""Every use of private parts of Beam, and how argparse names the flags of its options.

`tests/pipelines/test_compat.py` has a canary for each of them, which fails when a release changes
it. Beam is imported late: some commands do without it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recordmill.records.errors import UsageError, did_you_mean

# The program of Beam's worker processes, and of the container images.
BEAM_WORKER_MODULE = "apache_beam.runners.worker.sdk_worker_main"
# Beam's logger of the job servers that it starts.
BEAM_SERVER_LOGGER = "apache_beam.utils.subprocess_server"
# Options of Flink that only the job server knows, as far as they matter to a batch job.
JOB_SERVER_FLAGS = (
    "disable_metrics",
    "execution_mode_for_batch",
    "flink_conf_dir",
    "max_bundle_size",
    "object_reuse",
    "operator_chaining",
    "use_data_stream_for_batch",
)


def add_beam_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of all loaded pipeline options to a parser that resolves conflicts."""
    from apache_beam.options.pipeline_options import PipelineOptions

    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)


def refuse_unknown(flags: Sequence[str], ours: Iterable[str]) -> None:
    """Refuses a flag that the text of Beam's options does not name: to import Beam takes seconds.

    Args:
      flags: of a command line, those that are not ours.
      ours: the names of our flags, without dashes, for the hint.

    Raises:
      UsageError: names the first unknown flag, and the nearest known one.
    """
    theirs = _named_flags() if flags and "apache_beam" not in sys.modules else set()
    given = flags[: flags.index("--")] if "--" in flags else flags
    for number, flag in enumerate(given):
        is_flag = flag.startswith("--")  # or a value
        if theirs and (is_flag or not number) and flag.partition("=")[0] not in theirs:
            raise unknown_flag(flag, [*(f"--{name}" for name in ours), *sorted(theirs)])


def unknown_flag(flag: str, known: Iterable[str]) -> UsageError:
    """Returns the error that a flag is neither ours nor Beam's."""
    if not flag.startswith("-"):
        return UsageError(f"no flag before {flag}; for a second input write --input again")
    hint = did_you_mean(flag.partition("=")[0], known, otherwise="see --help")
    return UsageError(f"unknown flag {flag}{hint}")


def _named_flags() -> set[str]:
    """Returns all flags in the text of Beam's options, set() where Beam is not found."""
    found = find_spec("apache_beam")
    for folder in (found and found.submodule_search_locations) or ():
        with suppress(OSError, UnicodeDecodeError):
            text = Path(folder, "options/pipeline_options.py").read_text(encoding="utf-8")
            named = re.findall(r"""['"](--[\w-]+)['"]""", text)
            return {*named, *(f"--{name}" for name in JOB_SERVER_FLAGS)}
    return set()


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
