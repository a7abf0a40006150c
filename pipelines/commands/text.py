"""`recordmill text`: raw text to masked, sharded TFRecords."""

from __future__ import annotations

from recordmill.pipelines.launch import JobCommand
from recordmill.pipelines.planning.text_planner import TextPlanner
from recordmill.pipelines.text_options import add_text_arguments, text_request

COMMAND = JobCommand(
    "text",
    "Raw text to masked, sharded TFRecords.",
    add_text_arguments,
    lambda options: TextPlanner(text_request(options)),
)
make_parser, main = COMMAND.make_parser, COMMAND.main
