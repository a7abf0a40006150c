"""`recordmill images`: images to sharded TFRecords."""

from __future__ import annotations

from recordmill.pipelines.arguments import Parser
from recordmill.pipelines.engines.choice import parse_arguments
from recordmill.pipelines.image_options import add_image_arguments, image_request
from recordmill.pipelines.launch import plan_and_run
from recordmill.pipelines.planning.image_planner import ImagePlanner


def make_parser() -> Parser:
    """Returns the parser of the job's own flags."""
    parser = Parser(
        prog="recordmill images",
        description="Images to sharded TFRecords. Beam's own flags pass through.",
    )
    add_image_arguments(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Runs `recordmill images`; returns 0; the command line turns errors into a status.

    Raises:
      UsageError: wrong flags, or an input or output that cannot be used.
      RunError: the run failed, or went over the error budget.
    """
    options, engine = parse_arguments(make_parser(), arguments)
    plan_and_run(ImagePlanner(image_request(options)), engine)
    return 0
