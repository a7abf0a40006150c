"""`recordmill examples`: existing TFRecords shuffled, resharded, merged or deduplicated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recordmill.pipelines.examples_request import InPlaceRequest, any_request
from recordmill.pipelines.planning.examples_planner import ExamplesPlanner
from recordmill.pipelines.planning.in_place_planner import InPlacePlanner
from recordmill.pipelines.planning.planner import Planner
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.examples.examples_spec import ExamplesSpec


def planner(spec: ExamplesSpec, functions: Sequence[UserFunction] = ()) -> Planner[Any, Any, Any]:
    """Returns what plans the job of some options, as that of `text`."""
    request = any_request(spec, functions)
    if isinstance(request, InPlaceRequest):
        return InPlacePlanner(request)
    return ExamplesPlanner(request)
