"""`--runner`: choose the engine that runs a job, from our flags and from Beam's."""

from __future__ import annotations

import argparse
import difflib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import create_runner

from recordmill.pipelines.arguments import BooleanFlag, OneLineParser, Parser
from recordmill.pipelines.beam_internals import add_beam_arguments, option_actions
from recordmill.pipelines.config_files import with_config
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.dataflow import dataflow_engine
from recordmill.pipelines.engines.flink import JOB_SERVER_FLAGS, flink_engine
from recordmill.pipelines.engines.local import LocalEngine
from recordmill.pipelines.engines.remote import (
    RemoteEngine,
    check_job_server,
    find_by_name,
    given_options,
)
from recordmill.pipelines.progress_displays import PROGRESS_CHOICES
from recordmill.records.errors import UsageError

Engine = LocalEngine | RemoteEngine

_LOCAL = ("direct", "DirectRunner", "FnApiRunner")
STALL_SECONDS = 600.0
_EMBEDDED_FLINK = ("[local]", "[auto]")


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that choose an engine; Beam gets all other ones."""
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--runner", default="direct",
        help="direct (this machine, all cores), flink, dataflow, prism, or any of Beam's runners; "
        "Beam's own flags configure it.",
    )  # fmt: skip
    group.add_argument(
        "--direct_num_workers", type=int, default=0,
        help="Processes of the direct runner; 0 means one for a small input, else one per core.",
    )  # fmt: skip
    group.add_argument(
        "--stall_timeout", type=float, default=STALL_SECONDS, metavar="SECONDS",
        help="End a run of this machine, and print where each process stands, when none of them "
        "has computed, read or written anything for that long; 0: wait for ever.",
    )  # fmt: skip
    group.add_argument(
        "--wait", "--no_wait", action=BooleanFlag, default=True,
        help="Wait for the job's end; --no_wait submits the job, prints where it runs, and ends.",
    )  # fmt: skip
    group.add_argument(
        "--config", metavar="FILE.yaml",
        help="A file of flags, a line `name: value` each, such as _meta/config.yaml of a dataset; "
        "flags of the command line go before.",
    )  # fmt: skip
    group.add_argument(
        "--progress", default="auto", choices=PROGRESS_CHOICES,
        help="How progress is shown on standard error: a bar, a line each half minute (log), an "
        "object a line for machines (json), or not; auto is a bar in a terminal or notebook, else "
        "log.",
    )  # fmt: skip
    group.add_argument(
        "--report", action="store_true",
        help="Write a page about the dataset at the end of the run: _meta/report.html, see "
        "`recordmill report`.",
    )  # fmt: skip


def check_beam_flags(flags: list[str], ours: argparse.ArgumentParser) -> None:
    """Checks that the flags which are not ours are Beam's.

    Raises:
      UsageError: names the first unknown flag, and the nearest known one.
    """
    beam_parser = OneLineParser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    add_beam_arguments(beam_parser)
    for name in JOB_SERVER_FLAGS:
        beam_parser.add_argument(f"--{name}", nargs="?")
    _, unknown = beam_parser.parse_known_args(flags)
    if unknown:
        names = [*option_actions(ours), *option_actions(beam_parser)]
        if not unknown[0].startswith("-"):
            raise UsageError(f"no flag before {unknown[0]}; for a second input write --input again")
        near = difflib.get_close_matches(unknown[0].partition("=")[0], names, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; see --help"
        raise UsageError(f"unknown flag {unknown[0]}{hint}")


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """The parsed flags of `add_engine_arguments`, and Beam's own.

    Attributes:
      runner: as in --runner.
      direct_num_workers: as in --direct_num_workers, at least 0.
      stall_timeout: as in --stall_timeout, seconds, at least 0.
      wait: wait for the end of the job.
      progress: as in --progress.
      report: write a page about the dataset at the end.
      config: as in --config, whose flags are among the others already.
      beam: all flags of the command line that are not ours.
    """

    runner: str
    direct_num_workers: int
    stall_timeout: float
    wait: bool
    progress: str
    report: bool
    config: str | None
    beam: list[str]


def parse_arguments(
    parser: Parser, arguments: list[str] | None, *, has_functions: bool = False
) -> tuple[argparse.Namespace, EngineFlags]:
    """Parses and checks the flags of a command and of its engine.

    Args:
      parser: of the command's flags; those of the engine are added.
      arguments: of the command line; None for those of this process.
      has_functions: a program gives functions instead of --map.

    Returns what the parser gives of the command's own flags, and the flags of the engine.

    Raises:
      UsageError: a flag is unknown, or its value is wrong.
    """
    add_engine_arguments(parser)
    given = sys.argv[1:] if arguments is None else arguments
    given = with_config(parser, given, has_functions=has_functions)
    options, flags = parser.parse_known_args(given)
    check_beam_flags(flags, parser)
    FileSystems.set_options(
        PipelineOptions(flags)
    )  # the flags of a storage have an effect from here on
    if options.direct_num_workers < 0:
        raise UsageError(
            f"--direct_num_workers must be at least 0, got {options.direct_num_workers}"
        )
    if not options.stall_timeout >= 0:
        raise UsageError(f"--stall_timeout must be at least 0, got {options.stall_timeout}")
    engine = EngineFlags(
        options.runner, options.direct_num_workers, options.stall_timeout, options.wait,
        options.progress, options.report, options.config, flags,
    )  # fmt: skip
    if engine.report and not engine.wait:
        raise UsageError(
            "--report is written by the process that waits for the job's end; leave out --no_wait, "
            "or run `recordmill report` on the dataset"
        )
    return options, engine


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


def choose_engine(flags: EngineFlags) -> Engine:
    """Returns the engine of the flags, checked as far as that goes without the job.

    Raises:
      UsageError: there is no such engine, it does not answer, or its flags contradict each other.
    """
    if flags.runner in _LOCAL:
        if not flags.wait:
            raise UsageError(
                "--no_wait has no meaning for --runner=direct, whose job ends with this process; "
                "leave it out"
            )
        if any(flag.partition("=")[0] == "--direct_running_mode" for flag in flags.beam):
            raise UsageError(
                "--direct_running_mode has no meaning here, where several workers are always "
                "processes; leave it out, and see --direct_num_workers"
            )
        return LocalEngine(tuple(flags.beam), flags.direct_num_workers, flags.stall_timeout)
    if flags.stall_timeout != STALL_SECONDS:
        raise UsageError(
            f"--stall_timeout has no meaning for --runner={flags.runner}, which watches its "
            "workers itself; leave it out"
        )
    name = flags.runner.lower().removesuffix("runner")
    if name in _REMOTE:
        return _REMOTE[name](flags.beam, wait=flags.wait)
    return _engine_of_beam(flags.runner, flags.beam, wait=flags.wait)
