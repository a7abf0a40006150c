"""`recordmill examples`: existing TFRecords shuffled, resharded, merged or deduplicated."""

from __future__ import annotations

from recordmill.pipelines.examples_options import add_examples_arguments, examples_request
from recordmill.pipelines.launch import JobCommand
from recordmill.pipelines.planning.examples_planner import ExamplesPlanner

COMMAND = JobCommand(
    "examples",
    "Existing TFRecords, shuffled, resharded, merged or deduplicated.",
    add_examples_arguments,
    lambda options: ExamplesPlanner(examples_request(options)),
)
make_parser, main = COMMAND.make_parser, COMMAND.main
