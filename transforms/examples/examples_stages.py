"""The stages of a job of existing records, in order."""

from __future__ import annotations

from typing import Any

from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.examples.build_examples import RecordShardBuilder
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_shard_plan import plan_record_shards
from recordmill.transforms.examples.scatter import RECORD_LIMITS, RecordLimits, ScatterRecords
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.shuffle_stages import shuffle_stages


def examples_stages(
    job: ExamplesJob,
    tree: MergeTree | None,
    *,
    input_bytes: int = 0,
    limits: RecordLimits = RECORD_LIMITS,
) -> list[Stage[Any]]:
    """Returns the stages of a planned job of existing records.

    Args:
      job: whose work items are written when they begin.
      tree: of its run files; None for one that is written when they begin.
      input_bytes: of all work items, for progress.
      limits: the sizes in which records are handled.
    """
    return [
        ScatterRecords(job, limits, input_bytes),
        *shuffle_stages(job, tree, plan_record_shards, RecordShardBuilder, input_bytes),
    ]
