"""`recordmill examples`: existing TFRecords shuffled, resharded, merged or deduplicated."""

from __future__ import annotations

import argparse
from typing import Any

from recordmill.pipelines.examples_options import add_examples_arguments, any_request
from recordmill.pipelines.in_place_options import InPlaceRequest
from recordmill.pipelines.launch import JobCommand
from recordmill.pipelines.planning.examples_planner import ExamplesPlanner
from recordmill.pipelines.planning.in_place_planner import InPlacePlanner
from recordmill.pipelines.planning.planner import Planner


def _planner(namespace: argparse.Namespace) -> Planner[Any, Any, Any]:
    request = any_request(namespace)
    if isinstance(request, InPlaceRequest):
        return InPlacePlanner(request)
    return ExamplesPlanner(request)


COMMAND = JobCommand(
    "examples",
    "Existing TFRecords, shuffled, resharded, merged or deduplicated.",
    add_examples_arguments,
    _planner,
)
make_parser, main = COMMAND.make_parser, COMMAND.main
