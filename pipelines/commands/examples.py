"""`recordmill examples`, and `recordmill index`: existing TFRecords written anew, or left."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from recordmill.pipelines.examples_request import InPlaceRequest, any_request, in_place_request
from recordmill.pipelines.planning.examples_planner import ExamplesPlanner
from recordmill.pipelines.planning.in_place_planner import InPlacePlanner
from recordmill.pipelines.planning.planner import Planner
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.examples.examples_spec import ExamplesSpec, IndexSpec


def planner(spec: ExamplesSpec, functions: Sequence[UserFunction] = ()) -> Planner[Any, Any, Any]:
    """Returns what plans the job of some options, as that of `text`."""
    request = any_request(spec, functions)
    if isinstance(request, InPlaceRequest):
        folder = request.job.workspace.output
        print(f"`recordmill index {folder}` does the same", file=sys.stderr)
        return InPlacePlanner(request)
    return ExamplesPlanner(request)


def index_planner(
    spec: IndexSpec, functions: Sequence[UserFunction] = ()
) -> Planner[Any, Any, Any]:
    """Returns what plans the job of `recordmill index`."""
    return InPlacePlanner(in_place_request(spec.examples, functions))
