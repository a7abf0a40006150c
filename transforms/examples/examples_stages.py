"""The stages of a job of existing records, in order."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from recordmill.transforms.dataset.commit import CommitDataset, CommitSpec
from recordmill.transforms.examples.build_examples import BuildRecordShards
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_shard_plan import PlanRecordShards
from recordmill.transforms.examples.scatter import RECORD_LIMITS, RecordLimits, ScatterRecords
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import RegroupRuns


def build_examples(
    pipeline: beam.Pipeline,
    job: ExamplesJob,
    *,
    tree: MergeTree,
    commit: CommitSpec,
    limits: RecordLimits = RECORD_LIMITS,
) -> beam.PCollection[dict[str, Any]]:
    """Applies the stages of a job of existing records; only small descriptions pass."""
    return (
        pipeline
        | "WorkItems" >> beam.Create(range(tree.work_items), reshuffle=False)
        | "SpreadWorkItems" >> beam.Reshuffle()
        | "Scatter" >> ScatterRecords(job, limits)  # work item
        | "Regroup" >> RegroupRuns(job, tree)  # run file
        | "PlanShards" >> PlanRecordShards(job, tree)  # (split, shard)
        | "Build" >> BuildRecordShards(job, tree)  # examples in a shard
        | "SumExamples" >> beam.CombineGlobally(sum)
        | "CommitDataset" >> CommitDataset(job, commit)
    )
