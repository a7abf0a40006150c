"""`recordmill images`: images to sharded TFRecords."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.pipelines.image_request import image_request
from recordmill.pipelines.planning.image_planner import ImagePlanner
from recordmill.transforms.dataset.user_functions import UserFunction
from recordmill.transforms.images.image_spec import ImagesSpec


def planner(spec: ImagesSpec, functions: Sequence[UserFunction] = ()) -> ImagePlanner:
    """Returns what plans the job of some options, as that of `text`."""
    return ImagePlanner(image_request(spec, functions))
