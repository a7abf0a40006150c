"""The stages of an image job, in order."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from recordmill.transforms.dataset.commit import CommitDataset, CommitSpec
from recordmill.transforms.images.build_image_shards import BuildImageShards
from recordmill.transforms.images.channel_statistics import AnalyzeImages
from recordmill.transforms.images.image_job import ImageJob


def _numbers(
    pipeline: beam.Pipeline, label: str, count: int, after: beam.PCollection[int] | None
) -> beam.PCollection[int]:
    """Returns the numbers up to a count, once there is an element of what must come before."""
    if after is None:
        return pipeline | label >> beam.Create(range(count), reshuffle=False)
    return after | label >> beam.FlatMap(_count_up, count).with_output_types(int)


def _count_up(_: int, count: int) -> range:
    return range(count)


def build_images(
    pipeline: beam.Pipeline,
    job: ImageJob,
    *,
    work_items: int,
    parts: int,
    statistics_work_items: int,
    commit: CommitSpec,
    packs: int = 0,
    unpack: beam.PTransform[Any, Any] | None = None,
) -> beam.PCollection[dict[str, Any]]:
    """Applies the stages of an image job; only small descriptions pass between them.

    Args:
      pipeline: they are applied to it.
      job: the job.
      work_items: the shards, or parts of shards.
      parts: how many of them make a shard.
      statistics_work_items: of the channel statistics, 0 for none.
      commit: what the manifest says.
      packs: that `unpack` writes before all else, 0 for none.
      unpack: numbers of packs -> the same.
    """
    unpacked: beam.PCollection[int] | None = None
    if packs and unpack is not None:
        unpacked = (
            pipeline
            | "Packs" >> beam.Create(range(packs), reshuffle=False)
            | "SpreadPacks" >> beam.Reshuffle()
            | "UnpackImages" >> unpack
            | "AwaitPacks" >> beam.CombineGlobally(sum)
        )
    examples = (
        _numbers(pipeline, "WorkItems", work_items, unpacked)
        | "SpreadWorkItems" >> beam.Reshuffle()
        | "Build" >> BuildImageShards(job, parts)  # examples in a shard
    )
    if statistics_work_items:
        analyzed = (
            _numbers(pipeline, "StatisticsWorkItems", statistics_work_items, unpacked)
            | "SpreadStatisticsWorkItems" >> beam.Reshuffle()
            | "Statistics" >> AnalyzeImages(job)  # no examples: the commit awaits it
        )
        examples = (examples, analyzed) | "AwaitStatistics" >> beam.Flatten()
    return (
        examples
        | "SumExamples" >> beam.CombineGlobally(sum)
        | "CommitDataset" >> CommitDataset(job, commit)
    )
