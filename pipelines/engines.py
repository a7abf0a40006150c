"""`--runner`: which engine runs a job, from the flags that are ours and those that are Beam's."""

from __future__ import annotations

import argparse
import difflib
import shutil
from collections.abc import Callable
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from recordmill.pipelines.dataflow import dataflow_engine
from recordmill.pipelines.flink import JOB_SERVER_FLAGS, flink_engine
from recordmill.pipelines.local import LocalEngine, default_workers
from recordmill.pipelines.remote import RemoteEngine, find_by_name, given_options
from recordmill.records.arguments import Parser
from recordmill.records.errors import UsageError

Engine = LocalEngine | RemoteEngine

_LOCAL = ("direct", "DirectRunner", "FnApiRunner")
_EMBEDDED_FLINK = ("[local]", "[auto]")


def add_engine_arguments(parser: Any) -> None:
    """Adds the flags that choose an engine; all others are passed on to Beam."""
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--runner", default="direct",
        help="direct: this machine, all cores; flink, dataflow, prism; or any of Beam's runners. "
        "Its flags are Beam's.",
    )  # fmt: skip
    group.add_argument(
        "--direct_num_workers", type=int, default=0,
        help="Processes of the direct runner; 0: one for a small input, else one a core.",
    )  # fmt: skip
    group.add_argument(
        "--wait", action="store_true", default=True, help="For the job's end; the default."
    )
    group.add_argument(
        "--no_wait", action="store_false", dest="wait",
        help="Only submit the job, print where it runs, and end.",
    )  # fmt: skip


def check_beam_flags(flags: list[str], ours: argparse.ArgumentParser) -> None:
    """Checks that what is no flag of ours is one of Beam's.

    Raises:
      UsageError: names the flag that nobody knows, and the nearest.
    """
    beam_parser = Parser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(beam_parser)
    for name in JOB_SERVER_FLAGS:
        beam_parser.add_argument(f"--{name}", nargs="?")
    _, unknown = beam_parser.parse_known_args(flags)
    if unknown:
        actions = [*ours._actions, *beam_parser._actions]
        names = [name for action in actions for name in action.option_strings]
        if not unknown[0].startswith("-"):
            raise UsageError(f"no flag before {unknown[0]}; for a second input write --input again")
        near = difflib.get_close_matches(unknown[0].partition("=")[0], names, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; see --help"
        raise UsageError(f"unknown flag {unknown[0]}{hint}")


def parse_arguments(parser: Parser, arguments: list[str] | None) -> tuple[Any, list[str]]:
    """Returns the flags of a command, with the engine's, and Beam's own, all known by name."""
    add_engine_arguments(parser)
    options, flags = parser.parse_known_args(arguments)
    check_beam_flags(flags, parser)
    FileSystems.set_options(PipelineOptions(flags))  # a storage's own flags hold from here on
    if options.direct_num_workers < 0:
        raise UsageError(
            f"--direct_num_workers must be at least 0, got {options.direct_num_workers}"
        )
    return options, flags


def _flink(flags: list[str], *, wait: bool) -> RemoteEngine:
    if given_options(flags).get("flink_master") in _EMBEDDED_FLINK:
        return _other("FlinkRunner", flags, wait=wait)
    return flink_engine(flags, wait=wait)


def _prism(flags: list[str], *, wait: bool) -> RemoteEngine:
    location = given_options(flags).get("prism_location")
    if location and "://" not in location and not shutil.which(location):
        raise UsageError(f"--prism_location must be the program itself or a URL, got {location}")
    return RemoteEngine(
        name="prism",
        runner="PrismRunner",
        workers=default_workers(),
        flags=tuple(flags),
        find=find_by_name,
        is_here=True,
        outlives=False,
        wait=wait,
    )


def _other(runner: str, flags: list[str], *, wait: bool) -> RemoteEngine:
    """Returns an engine of which only Beam knows: nothing is checked, all is passed through."""
    try:
        create_runner(runner)
    except (ValueError, ImportError, AttributeError) as error:
        names = ", ".join(["direct", *_REMOTE])
        raise UsageError(f"--runner must be one of {names}, or one of Beam's: {error}") from error
    return RemoteEngine(
        name=runner,
        runner=runner,
        workers=int(given_options(flags).get("parallelism", 0)) or default_workers(),
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


def choose_engine(options: Any, flags: list[str]) -> Engine:
    """Returns the engine of the flags, checked as far as that goes without the job.

    Args:
      options: what `add_engine_arguments` gave.
      flags: Beam's.

    Raises:
      UsageError: there is no such engine, it does not answer, or its flags do not fit it.
    """
    if options.runner in _LOCAL:
        if not options.wait:
            raise UsageError(
                "--no_wait has no meaning for --runner=direct, whose job ends with this process; "
                "leave it out"
            )
        return LocalEngine(tuple(flags), options.direct_num_workers)
    name = options.runner.lower().removesuffix("runner")
    if name in _REMOTE:
        return _REMOTE[name](flags, wait=options.wait)
    return _other(options.runner, flags, wait=options.wait)
