"""The engines other than this machine: those of modules here, and any other runner of Beam's."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from recordmill.pipelines.beam_internals import (
    JOB_SERVER_FLAGS,
    add_beam_arguments,
    option_actions,
    unknown_flag,
)
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.dataflow import dataflow_engine
from recordmill.pipelines.engines.flink import flink_engine
from recordmill.pipelines.engines.remote import (
    RemoteEngine,
    check_job_server,
    find_by_name,
    given_options,
)
from recordmill.pipelines.faces import Parser
from recordmill.records.errors import UsageError

_EMBEDDED_FLINK = ("[local]", "[auto]")


def set_beam_flags(flags: list[str], ours: Iterable[str]) -> None:
    """Checks that flags are Beam's, and gives them to its storages.

    Args:
      flags: of the command line.
      ours: the names of our flags, without dashes, for the hint.

    Raises:
      UsageError: names the first unknown flag, and the nearest known one.
    """
    beam_parser = Parser(conflict_handler="resolve")
    add_beam_arguments(beam_parser)
    for name in JOB_SERVER_FLAGS:
        beam_parser.add_argument(f"--{name}", nargs="?")
    _, unknown = beam_parser.parse_known_args(flags)
    if unknown:
        known = [*(f"--{name}" for name in ours), *option_actions(beam_parser)]
        raise unknown_flag(unknown[0], known)
    FileSystems.set_options(PipelineOptions(flags))


def _flink(flags: list[str], *, wait: bool) -> RemoteEngine:
    if given_options(flags).get("flink_master") in _EMBEDDED_FLINK:
        return _engine_of_beam("FlinkRunner", flags, wait=wait)
    return flink_engine(flags, wait=wait)


def _prism(flags: list[str], *, wait: bool) -> RemoteEngine:
    given = given_options(flags)
    check_job_server(given, "prism")
    location = given.get("prism_location")
    if location and "://" not in location and not shutil.which(location):
        raise UsageError(f"--prism_location must be the program itself or a URL, got {location}")
    return RemoteEngine(
        name="prism",
        runner="PrismRunner",
        workers=usable_cores(),
        flags=tuple(flags),
        find=find_by_name,
        is_here=True,
        outlives=False,
        wait=wait,
    )


def _engine_of_beam(runner: str, flags: list[str], *, wait: bool) -> RemoteEngine:
    """Returns an engine that only Beam knows: its flags are passed on without a check."""
    try:
        create_runner(runner)
    except (ValueError, ImportError, AttributeError) as error:
        names = ", ".join(["direct", *_REMOTE])
        raise UsageError(f"--runner must be one of {names}, or one of Beam's: {error}") from error
    given = given_options(flags)
    check_job_server(given)
    return RemoteEngine(
        name=runner,
        runner=runner,
        workers=int(given.get("parallelism", 0)) or usable_cores(),
        flags=tuple(flags),
        find=find_by_name,
        is_here=True,
        outlives=True,
        wait=wait,
    )


_REMOTE: dict[str, Callable[..., RemoteEngine]] = {
    "flink": _flink,
    "dataflow": dataflow_engine,
    "prism": _prism,
}


def remote_engine(runner: str, flags: list[str], *, wait: bool) -> RemoteEngine:
    """Returns an engine by its name, as --runner has it.

    Raises:
      UsageError: there is no such engine, it does not answer, or its flags contradict each other.
    """
    name = runner.lower().removesuffix("runner")
    if name in _REMOTE:
        return _REMOTE[name](flags, wait=wait)
    return _engine_of_beam(runner, flags, wait=wait)
