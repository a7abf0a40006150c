"""The stages of an image job, in order."""

from __future__ import annotations

from typing import Any

from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.images.build_image_shards import BuildImages, JoinParts
from recordmill.transforms.images.channel_statistics import AnalyzePixels, CountPixels
from recordmill.transforms.images.image_job import ImageJob


def image_stages(
    job: ImageJob, *, parts: int | None = None, input_bytes: int = 0
) -> list[Stage[Any]]:
    """Returns the stages of an image job whose shard plan is written when they begin.

    Args:
      job: the job.
      parts: how many work items share a shard; None leaves it to the shard plan.
      input_bytes: of all images, for progress.
    """
    statistics: list[Stage[Any]] = [CountPixels(job), AnalyzePixels(job)]
    return [
        *(statistics if job.statistics_images != 0 else ()),
        BuildImages(job, parts, input_bytes),
        JoinParts(job, parts),
    ]
