"""`recordmill text`: raw text to tokenized, masked, sharded TFRecords."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.pipelines.planning.text_planner import TextPlanner
from recordmill.pipelines.text_request import text_request
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.text.text_spec import TextSpec


def planner(spec: TextSpec, functions: Sequence[UserFunction] = ()) -> TextPlanner:
    """Returns what plans the job of some options.

    Args:
      spec: the options.
      functions: what a program gives instead of --map.

    Raises:
      UsageError: one line: the rule, what was found, what to do.
    """
    return TextPlanner(text_request(spec, functions))
