"""`recordmill plan JOB`: estimate what a job does, takes and costs; write nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable

from apache_beam.io.filesystem import BeamIOError

from recordmill.pipelines.command_specs import PlanSpec
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.planning.estimate import Estimate
from recordmill.records.errors import RunError, UsageError


def run(spec: PlanSpec, estimate: Callable[[int], Estimate], *, warnings: str) -> int:
    """Runs `recordmill plan`; returns the exit status.

    Args:
      spec: what the estimate is for.
      estimate: (number of workers) -> the estimate of the job.
      warnings: as in --warnings of the job.

    Raises:
      UsageError: an input that cannot be used.
      RunError: the sample cannot be processed.
    """
    workers = spec.plan_workers or usable_cores()
    try:
        found = estimate(workers)
    except (UsageError, RunError):
        raise
    except (OSError, ValueError, BeamIOError) as error:
        raise UsageError(f"the job cannot be planned: {one_line(error)}") from error
    lines = list(found.lines(workers, spec.price_per_worker_hour))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")
    given = found.warnings() if warnings != "none" else []
    for warning in given:
        print(f"recordmill: warning: {warning.text}", file=sys.stderr)
    return 1 if given and warnings == "error" else 0
