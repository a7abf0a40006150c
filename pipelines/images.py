"""Images to sharded TFRecords: the pipeline, and `python -m recordmill.pipelines.images`."""

from __future__ import annotations

import sys
from typing import Any

import apache_beam as beam

from recordmill.transforms.commit import CommitDataset, CommitSpec
from recordmill.transforms.image_build import BuildImageShards
from recordmill.transforms.image_job import ImageJob
from recordmill.transforms.image_statistics import AnalyzeImages


def build_images(
    pipeline: beam.Pipeline,
    job: ImageJob,
    *,
    tasks: int,
    parts: int,
    statistics_tasks: int,
    commit: CommitSpec,
) -> beam.PCollection[dict[str, Any]]:
    """Applies the stages of an image job; only small descriptions pass between them."""
    examples = (
        pipeline
        | "Tasks" >> beam.Create(range(tasks), reshuffle=False)
        | "SpreadTasks" >> beam.Reshuffle()
        | "Build" >> BuildImageShards(job, parts)  # examples in a shard
    )
    if statistics_tasks:
        analyzed = (
            pipeline
            | "StatisticsTasks" >> beam.Create(range(statistics_tasks), reshuffle=False)
            | "SpreadStatisticsTasks" >> beam.Reshuffle()
            | "Statistics" >> AnalyzeImages(job)  # no examples: the commit awaits it
        )
        examples = (examples, analyzed) | "AwaitStatistics" >> beam.Flatten()
    return (
        examples
        | "SumExamples" >> beam.CombineGlobally(sum)
        | "CommitDataset" >> CommitDataset(job, commit)
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs `recordmill images`; returns the exit status."""
    from recordmill.pipelines.command_line import main as command_line

    return command_line(["images", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
