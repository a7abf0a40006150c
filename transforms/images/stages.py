"""The stages of an image job, in order."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from recordmill.transforms.dataset.commit import CommitDataset, CommitSpec
from recordmill.transforms.images.build import BuildImageShards
from recordmill.transforms.images.channel_statistics import AnalyzeImages
from recordmill.transforms.images.job import ImageJob


def build_images(
    pipeline: beam.Pipeline,
    job: ImageJob,
    *,
    work_items: int,
    parts: int,
    statistics_work_items: int,
    commit: CommitSpec,
) -> beam.PCollection[dict[str, Any]]:
    """Applies the stages of an image job; only small descriptions pass between them."""
    examples = (
        pipeline
        | "WorkItems" >> beam.Create(range(work_items), reshuffle=False)
        | "SpreadWorkItems" >> beam.Reshuffle()
        | "Build" >> BuildImageShards(job, parts)  # examples in a shard
    )
    if statistics_work_items:
        analyzed = (
            pipeline
            | "StatisticsWorkItems" >> beam.Create(range(statistics_work_items), reshuffle=False)
            | "SpreadStatisticsWorkItems" >> beam.Reshuffle()
            | "Statistics" >> AnalyzeImages(job)  # no examples: the commit awaits it
        )
        examples = (examples, analyzed) | "AwaitStatistics" >> beam.Flatten()
    return (
        examples
        | "SumExamples" >> beam.CombineGlobally(sum)
        | "CommitDataset" >> CommitDataset(job, commit)
    )
