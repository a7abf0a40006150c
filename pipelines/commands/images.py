"""`recordmill images`: images to sharded TFRecords."""

from __future__ import annotations

from recordmill.pipelines.image_options import add_image_arguments, image_request
from recordmill.pipelines.launch import JobCommand
from recordmill.pipelines.planning.image_planner import ImagePlanner

COMMAND = JobCommand(
    "images",
    "Images to sharded TFRecords.",
    add_image_arguments,
    lambda options: ImagePlanner(image_request(options)),
)
make_parser, main = COMMAND.make_parser, COMMAND.main
