"""Raw text to masked, sharded TFRecords: the pipeline, and `python -m
recordmill.pipelines.text`."""

from __future__ import annotations

import sys
from typing import Any

import apache_beam as beam

from recordmill.transforms.build import BuildShards
from recordmill.transforms.commit import CommitDataset, CommitSpec
from recordmill.transforms.plan import RunTree
from recordmill.transforms.regroup import RegroupRuns
from recordmill.transforms.scatter import ScatterDocuments
from recordmill.transforms.shard_plan import PlanShards
from recordmill.transforms.text_job import TextJob


def build_text(
    pipeline: beam.Pipeline, job: TextJob, *, tree: RunTree, commit: CommitSpec
) -> beam.PCollection[dict[str, Any]]:
    """Applies the stages of a text job; only small descriptions pass between them."""
    return (
        pipeline
        | "Tasks" >> beam.Create(range(tree.tasks), reshuffle=False)
        | "SpreadTasks" >> beam.Reshuffle()
        | "Scatter" >> ScatterDocuments(job)  # task
        | "Regroup" >> RegroupRuns(job, tree)  # run
        | "PlanShards" >> PlanShards(job, tree)  # (split, shard)
        | "Build" >> BuildShards(job, tree)  # examples in a shard
        | "SumExamples" >> beam.CombineGlobally(sum)
        | "CommitDataset" >> CommitDataset(job, commit)
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs `recordmill text`; returns the exit status."""
    from recordmill.pipelines.command_line import main as command_line

    return command_line(["text", *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
