"""`recordmill text`: raw text to masked, sharded TFRecords."""

from __future__ import annotations

from recordmill.pipelines.arguments import Parser
from recordmill.pipelines.engines.choice import parse_arguments
from recordmill.pipelines.launch import plan_and_run
from recordmill.pipelines.planning.text_planner import TextPlanner
from recordmill.pipelines.text_options import add_text_arguments, text_request


def make_parser() -> Parser:
    """Returns the parser of the job's own flags."""
    parser = Parser(
        prog="recordmill text",
        description="Raw text to masked, sharded TFRecords. Beam's own flags pass through.",
    )
    add_text_arguments(parser)
    return parser


def main(arguments: list[str]) -> int:
    """Runs `recordmill text`; returns 0; the command line turns errors into a status.

    Raises:
      UsageError: wrong flags, or an input or output that cannot be used.
      RunError: the run failed, or went over the error budget.
    """
    options, engine = parse_arguments(make_parser(), arguments)
    plan_and_run(TextPlanner(text_request(options)), engine)
    return 0
