"""The stages of a text job, in order."""

from __future__ import annotations

from typing import Any

from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.shuffle_stages import shuffle_stages
from recordmill.transforms.text.build_text_shards import TextShardBuilder
from recordmill.transforms.text.cleaning.find_duplicates import (
    CollectDuplicates,
    Compare,
    Fingerprint,
)
from recordmill.transforms.text.scatter import SCATTER_LIMITS, ScatterDocuments, ScatterLimits
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.text_shard_plan import plan_shards


def text_stages(
    job: TextJob,
    tree: MergeTree | None,
    *,
    input_bytes: int = 0,
    limits: ScatterLimits = SCATTER_LIMITS,
) -> list[Stage[Any]]:
    """Returns the stages of a planned text job.

    Args:
      job: whose work items are written when they begin.
      tree: of its run files; None for one that is written when they begin.
      input_bytes: of all work items, for progress.
      limits: the sizes in which text is read.
    """
    duplicates: list[Stage[Any]] = [
        Fingerprint(job, limits.documents, input_bytes),
        Compare(job),
        CollectDuplicates(job),
    ]
    return [
        *(duplicates if job.clean.deduplicates else ()),
        ScatterDocuments(job, limits, input_bytes),
        *shuffle_stages(job, tree, plan_shards, TextShardBuilder, input_bytes),
    ]
