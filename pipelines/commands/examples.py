"""`recordmill examples`, and `recordmill index`: existing TFRecords written anew, or left."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from recordmill.pipelines.examples_request import InPlaceRequest, any_request, in_place_request
from recordmill.pipelines.planning.examples_planner import ExamplesPlanner
from recordmill.pipelines.planning.in_place_planner import InPlacePlanner
from recordmill.pipelines.planning.planner import Planner
from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.examples.examples_spec import ExamplesSpec, IndexSpec
from recordmill.transforms.storage import files


def planner(spec: ExamplesSpec, functions: Sequence[UserFunction] = ()) -> Planner[Any, Any, Any]:
    """Returns what plans the job of some options, as that of `text`."""
    request = any_request(spec, functions)
    if isinstance(request, InPlaceRequest):
        command = f"recordmill index {request.job.workspace.output}"
        print(f"--in_place_metadata is another name of `{command}`", file=sys.stderr)
        return InPlacePlanner(request)
    return ExamplesPlanner(request)


def index_planner(
    spec: IndexSpec, functions: Sequence[UserFunction] = ()
) -> Planner[Any, Any, Any]:
    """Returns what plans the job of `recordmill index`.

    Raises:
      UsageError: there is no such folder.
    """
    if files.is_local(spec.dataset) and not os.path.isdir(spec.dataset):
        found = "is none" if os.path.exists(spec.dataset) else "does not exist"
        raise UsageError(
            f"DIR must be the folder above all TFRecords, and {spec.dataset} {found}; --input "
            "names some files of a folder"
        )
    return InPlacePlanner(in_place_request(spec.examples, functions))
