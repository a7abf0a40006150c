"""`--runner`: choose the engine that runs a job, from our options and from Beam's.

Beam is loaded where another engine than this machine is asked for, or a flag is not ours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from recordmill.pipelines.engines.engine_spec import LOCAL_RUNNERS, STALL_SECONDS, EngineSpec
from recordmill.pipelines.engines.local import LocalEngine
from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    from recordmill.pipelines.engines.remote import RemoteEngine

    Engine = LocalEngine | RemoteEngine


def check_beam_flags(flags: list[str], ours: Iterable[str]) -> None:
    """Checks that the flags which are not ours are Beam's; its storages know them from here on.

    Args:
      flags: of the command line.
      ours: the names of our flags, without dashes, for the hint.

    Raises:
      UsageError: names the first unknown flag, and the nearest known one.
    """
    if flags or "apache_beam" in sys.modules:  # whose storages have the flags of an earlier job
        from recordmill.pipelines.engines.remote_choice import set_beam_flags

        set_beam_flags(flags, ours)


def choose_engine(spec: EngineSpec, beam: list[str]) -> Engine:
    """Returns the engine of the options, checked as far as that goes without the job.

    Args:
      spec: our options.
      beam: all flags of the command line that are not ours.

    Raises:
      UsageError: there is no such engine, it does not answer, or its flags contradict each other.
    """
    if spec.runner in LOCAL_RUNNERS:
        if not spec.wait:
            raise UsageError(
                "--no_wait has no meaning for --runner=direct, whose job ends with this process; "
                "leave it out"
            )
        for flag in beam:
            if flag.startswith("--direct_"):
                raise UsageError(
                    f"{flag.partition('=')[0]} has no meaning here, where several workers are "
                    "always processes, and no runner of Beam's; leave it out, and see "
                    "--direct_num_workers"
                )
        return LocalEngine(spec.direct_num_workers, spec.stall_timeout)
    if spec.stall_timeout != STALL_SECONDS:
        raise UsageError(
            f"--stall_timeout has no meaning for --runner={spec.runner}, which watches its "
            "workers itself; leave it out"
        )
    from recordmill.pipelines.engines.remote_choice import remote_engine

    return remote_engine(spec.runner, beam, wait=spec.wait)
