"""`recordmill plan JOB`: estimate what a job does, takes and costs; write nothing."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from apache_beam.io.filesystem import BeamIOError

from recordmill.pipelines.arguments import Parser
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.choice import parse_arguments
from recordmill.pipelines.engines.error_text import one_line
from recordmill.pipelines.examples_options import add_examples_arguments, examples_request
from recordmill.pipelines.flags import Flags
from recordmill.pipelines.image_options import add_image_arguments, image_request
from recordmill.pipelines.planning.estimate import JOBS, Estimate
from recordmill.pipelines.planning.examples_estimate import estimate_examples
from recordmill.pipelines.planning.image_estimate import estimate_images
from recordmill.pipelines.planning.text_estimate import estimate_text
from recordmill.pipelines.text_options import add_text_arguments, text_request
from recordmill.records.errors import RunError, UsageError, at_least, one_of

_USAGE = """\
usage: recordmill plan text | images | examples [flags]   (recordmill plan text --help)

Estimates what the job does, takes and costs with the same flags; writes nothing."""


@dataclass(frozen=True)
class PlanFlags(Flags):
    """Of `recordmill plan`, beside most of those of the job."""

    plan_workers: int
    price_per_worker_hour: float | None
    warnings: str


def _estimate(kind: str, namespace: argparse.Namespace, workers: int) -> Estimate:
    if kind == "examples":
        return estimate_examples(examples_request(namespace), workers=workers)
    if kind == "text":
        return estimate_text(text_request(namespace), workers=workers)
    return estimate_images(image_request(namespace), workers=workers)


def make_parser(kind: str) -> Parser:
    """Returns the parser of `recordmill plan KIND`."""
    parser = Parser(
        prog=f"recordmill plan {kind}",
        description=f"Estimates what `recordmill {kind}` does, takes and costs with these flags; "
        "writes nothing.",
    )
    group = parser.add_argument_group("plan")
    group.add_argument(
        "--plan_workers", type=int, default=usable_cores(),
        help="The number of workers that the estimate is for; the cores of this machine are usual.",
    )  # fmt: skip
    group.add_argument(
        "--price_per_worker_hour", type=float,
        help="The price of a worker for an hour, in any currency; without it no cost is estimated.",
    )  # fmt: skip
    add_arguments = {
        "text": add_text_arguments, "images": add_image_arguments,
        "examples": add_examples_arguments,
    }  # fmt: skip
    add_arguments[kind](parser)
    parser.add_full_help()
    return parser


def main(arguments: list[str]) -> int:
    """Runs `recordmill plan`; returns the exit status.

    Raises:
      UsageError: wrong flags, or an input that cannot be used.
      RunError: the sample cannot be processed.
    """
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return 0
    kind = one_of("recordmill plan: the job", (arguments or [""])[0], JOBS)
    namespace, _ = parse_arguments(make_parser(kind), arguments[1:])
    options = PlanFlags.read(namespace)
    at_least("--plan_workers", options.plan_workers, 1)
    price = options.price_per_worker_hour
    if price is not None and not 0 <= price < float("inf"):
        raise UsageError(f"--price_per_worker_hour must be a price, got {price}")
    try:
        estimate = _estimate(kind, namespace, options.plan_workers)
    except (UsageError, RunError):
        raise
    except (OSError, ValueError, BeamIOError) as error:
        raise UsageError(f"the job cannot be planned: {one_line(error)}") from error
    lines = list(estimate.lines(options.plan_workers, price))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")
    warnings = estimate.warnings() if options.warnings != "none" else []
    for warning in warnings:
        print(f"recordmill: warning: {warning.text}", file=sys.stderr)
    return 1 if warnings and options.warnings == "error" else 0
