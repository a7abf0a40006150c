"""Run files of users' pipelines, whose number is known only when all of them are written.

One description lists them. Where there are more than a shard should read, they are regrouped once,
in groups so large that few enough are left; the merge tree that says so is written for the stages
that follow.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import msgspec

from recordmill.records.state import Count
from recordmill.transforms.dataset.bundles import ElementSink
from recordmill.transforms.dataset.stages import Done, Stage
from recordmill.transforms.shuffle.merge_tree import MAX_FAN_IN, ONE_ITEM, MergeTree
from recordmill.transforms.shuffle.regroup import regroup
from recordmill.transforms.shuffle.run_files import RunFiles
from recordmill.transforms.shuffle.shard_ranges import SplitShards
from recordmill.transforms.shuffle.shuffle_job import ShuffleJob
from recordmill.transforms.shuffle.shuffle_stages import (
    BuildShards,
    BuildsShards,
    PlanShards,
    ShuffleJobT,
    plan_shards_of,
)
from recordmill.transforms.storage import files


class _GatheredCount(msgspec.Struct, frozen=True):
    """`tree.json`: how many run files there are, and how many may stay as they are."""

    runs: Count
    most: Count


def _tree_path(job: ShuffleJob) -> str:
    return files.join(job.workspace.work, "tree.json")


def _tree_for(runs: int, most: int) -> MergeTree:
    if runs <= most:
        return ONE_ITEM
    # A regroup reads `runs * fan_in` ranges, and shards `shards * runs / fan_in`.
    fan_in = 1 << (runs.bit_length() // 2)
    while -(-runs // fan_in) > most:
        fan_in *= 2
    return MergeTree(runs, most, fan_in, gathered=True)


def gathered_tree(job: ShuffleJob) -> MergeTree:
    """Returns the merge tree of a users' pipeline, once its run files are known.

    Raises:
      DamagedStateError: it is missing or damaged.
    """
    known = job.workspace.need_state(_tree_path(job), _GatheredCount)
    return _tree_for(known.runs, known.most)


@dataclass(frozen=True)
class RunFileSink(ElementSink[ShuffleJobT]):
    """Elements that become records of run files; see `ElementSink`.

    Attributes:
      max_runs: more run files are regrouped, once.
    """

    max_runs: int = field(default=MAX_FAN_IN, kw_only=True)

    @abstractmethod
    def gather(self, texts: list[str]) -> RunFiles:
        """Adds up descriptions, as one of scatter with all of their run files."""

    @abstractmethod
    def plan_shards(self, tree: MergeTree) -> list[SplitShards]:
        """Plans the shards of what description 0 of level 0 says.

        Raises:
          RunError: there is nothing to write, or too little for so many shards.
        """

    @abstractmethod
    def open_builder(self, tree: MergeTree) -> BuildsShards:
        """Returns what builds shards in a worker."""

    def plan(self, texts: list[str]) -> None:
        """Describes all bundles as one work item, and decides how its run files are regrouped."""
        job, whole = self.job, self.gather(texts)
        job.workspace.write_state(job.description_path(0, 0), whole)
        count = _GatheredCount(len(whole.runs), self.max_runs)
        job.workspace.write_state(_tree_path(job), count)

    def stages(self) -> list[Stage[Any]]:
        """Returns the stages that follow."""
        return [
            _RegroupGathered(self.job),
            PlanShards(self.job, self._plan_shards),
            BuildShards(self.job, self._open_builder),
        ]

    def _plan_shards(self) -> None:
        tree = gathered_tree(self.job)
        plan_shards_of(self.job, tree, lambda _, tree: self.plan_shards(tree))

    def _open_builder(self) -> BuildsShards:
        return self.open_builder(gathered_tree(self.job))


class _RegroupGathered(Stage[ShuffleJob]):
    """Merges run files by ranges of keys, where there are more than a shard should read."""

    name = "Regroup"

    def items(self) -> int:
        tree = gathered_tree(self.job)
        return tree.run_count(1) if tree.levels else 0

    def do(self, item: int) -> Done:
        regroup(self.job, gathered_tree(self.job), 1, item)
        return Done()
