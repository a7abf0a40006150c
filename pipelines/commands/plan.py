"""`recordmill plan JOB`: estimate what a job does, takes and costs; write nothing."""

from __future__ import annotations

import sys
from typing import Any

from recordmill.pipelines.command_specs import PlanSpec
from recordmill.pipelines.command_table import COMMANDS, Call, load
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.launch import engine_of
from recordmill.pipelines.planning.estimate import estimate
from recordmill.records.errors import RunError, UsageError, visible


def run(call: Call) -> int:
    """Runs `recordmill plan`; returns the exit status.

    Raises:
      UsageError: wrong flags, or an input that cannot be used.
      RunError: the sample cannot be processed.
    """
    kind = call.command.name.removeprefix("plan ")
    options = call.make(PlanSpec)
    engine_of(call)  # refuses flags that are not Beam's; those of a storage have an effect
    spec: Any = call.make(call.command.kinds()[1])
    workers = options.plan_workers or usable_cores()
    try:
        found = estimate(load(COMMANDS[kind].function)(spec), workers=workers)
    except (UsageError, RunError):
        raise
    except (OSError, ValueError) as error:
        raise UsageError(f"the job cannot be planned: {one_line(error)}") from error
    lines = list(found.lines(workers, options.price_per_worker_hour))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:<{width}}  {visible(value)}")
    what = spec.output.warnings
    warnings = found.warnings() if what != "none" else []
    for warning in warnings:
        print(f"recordmill: warning: {visible(warning.text)}", file=sys.stderr)
    return 1 if warnings and what == "error" else 0
