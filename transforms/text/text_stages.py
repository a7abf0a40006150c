"""The stages of a text job, in order."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from recordmill.transforms.dataset.commit import CommitDataset, CommitSpec
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import RegroupRuns
from recordmill.transforms.text.build_text_shards import BuildShards
from recordmill.transforms.text.cleaning.find_duplicates import FindDuplicates
from recordmill.transforms.text.scatter import SCATTER_LIMITS, ScatterDocuments, ScatterLimits
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_shard_plan import PlanShards


def build_text(
    pipeline: beam.Pipeline,
    job: TextJob,
    *,
    tree: MergeTree,
    commit: CommitSpec,
    limits: ScatterLimits = SCATTER_LIMITS,
) -> beam.PCollection[dict[str, Any]]:
    """Applies the stages of a text job; only small descriptions pass between them."""
    return (
        pipeline
        | "WorkItems" >> beam.Create(range(tree.work_items), reshuffle=False)
        | "SpreadWorkItems" >> beam.Reshuffle()
        | "FindDuplicates" >> FindDuplicates(job, tree.work_items, limits.documents)
        | "Scatter" >> ScatterDocuments(job, limits)  # work item
        | "Regroup" >> RegroupRuns(job, tree)  # run file
        | "PlanShards" >> PlanShards(job, tree)  # (split, shard)
        | "Build" >> BuildShards(job, tree)  # examples in a shard
        | "SumExamples" >> beam.CombineGlobally(sum)
        | "CommitDataset" >> CommitDataset(job, commit)
    )
