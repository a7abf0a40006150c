"""The stages after scatter: shards are planned once, then each is built.

What a kind of job adds is how its results add up, how many shards it wants, and its builder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import apache_beam as beam
from msgspec.structs import replace

from recordmill.records.arrays import Int64s
from recordmill.records.errors import RunError
from recordmill.records.manifest import ShardInfo
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.run_task import RunTask
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import drop_runs
from recordmill.transforms.shuffle.shard_ranges import (
    PlannedShards,
    SplitShards,
    holds_sums,
    sum_histograms,
    write_sums,
)
from recordmill.transforms.shuffle.shuffle_job import ShuffleJob

ShuffleJobT = TypeVar("ShuffleJobT", bound=ShuffleJob)
DecisionT = TypeVar("DecisionT", bound=PlannedShards)
ResultT = TypeVar("ResultT")
TotalsT = TypeVar("TotalsT")


def finished_results(
    job: ShuffleJob, tree: MergeTree, read: Callable[[int], ResultT | None]
) -> Iterator[tuple[int, ResultT]]:
    """Yields each work item of scatter and its result.

    Raises:
      RunError: one of them is missing or damaged.
    """
    for number in range(tree.descriptions):
        result = read(number)
        if result is None:
            raise RunError(
                f"{job.description_path(0, number)} is missing or damaged; run the same command "
                "again"
            )
        yield number, result


def decide_once(
    job: ShuffleJob,
    tree: MergeTree,
    kind: type[DecisionT],
    add_up: Callable[[], TotalsT],
    decide: Callable[[TotalsT, Int64s], DecisionT],
) -> None:
    """Writes the shard plan of a job, unless it is there: a restarted job keeps it.

    Args:
      job: whose shards are planned.
      tree: of its run files.
      kind: of the shard plan.
      add_up: returns the sums over all results of scatter, or refuses them.
      decide: takes these and the `[num_splits, 2**CELL_BITS] int64` of `sum_histograms`.

    Raises:
      RunError: by `add_up` or `decide`.
    """
    known = job.workspace.read_state(job.shard_plan_path, kind)
    if known is None or not holds_sums(job, known.sums):
        totals = add_up()
        histograms = sum_histograms(job, tree)
        plan = decide(totals, histograms)
        plan = replace(plan, sums=write_sums(job, histograms))
        job.workspace.write_state(job.shard_plan_path, plan)


class _PlanShardsDoFn(RunTask[ShuffleJobT]):
    def __init__(
        self,
        job: ShuffleJobT,
        tree: MergeTree,
        plan: Callable[[ShuffleJobT, MergeTree], list[SplitShards]],
    ) -> None:
        super().__init__(job)
        self._tree = tree
        self._plan = plan

    def work(self, finished: int) -> Iterator[tuple[int, int]]:
        del finished  # its arrival means that all run files are written
        splits = self._plan(self._job, self._tree)
        if self._tree.levels:
            drop_runs(self._job, self._tree.levels - 1)
        for number, split in enumerate(splits):
            for shard in range(split.shards):
                yield number, shard


class PlanShardsBy(beam.PTransform[beam.PCollection[int], beam.PCollection[tuple[int, int]]]):
    """Numbers of finished run files -> (split, shard) of every shard to build.

    One worker decides once, when all run files are written; a restarted job keeps the decision.
    """

    def __init__(
        self,
        job: ShuffleJobT,
        tree: MergeTree,
        plan: Callable[[ShuffleJobT, MergeTree], list[SplitShards]],
    ) -> None:
        """Plans the shards of a job.

        Args:
          job: whose shards are planned.
          tree: of its run files.
          plan: decides, or reads what was decided before.
        """
        super().__init__()
        self._do_fn = _PlanShardsDoFn(job, tree, plan)

    def expand(self, runs: beam.PCollection[int]) -> beam.PCollection[tuple[int, int]]:
        """Waits for all run files and reads their tails."""
        return (
            runs
            | "AwaitRuns" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
            | "Decide" >> beam.ParDo(self._do_fn).with_output_types(tuple[int, int])
            | "SpreadShards" >> beam.Reshuffle()
        )


class BuildsShards(Protocol):
    """What one worker holds to build shards one by one."""

    def build(self, split: int, shard: int) -> ShardInfo:
        """Writes a shard, or finds it finished."""
        ...


class _BuildShardDoFn(RunTask[ShuffleJobT]):
    def __init__(
        self,
        job: ShuffleJobT,
        tree: MergeTree,
        make_builder: Callable[[ShuffleJobT, MergeTree], BuildsShards],
    ) -> None:
        super().__init__(job)
        self._tree = tree
        self._make_builder = make_builder
        self._builder: BuildsShards | None = None

    def work(self, shard: tuple[int, int]) -> Iterator[int]:
        # Not in setup: the stage before writes the shard plan.
        if self._builder is None:
            self._builder = self._make_builder(self._job, self._tree)
        with counters.work_item():
            info = self._builder.build(*shard)
            counters.count("examples_written", info.records)
            counters.count("bytes_written", info.file_bytes)
        yield info.records


class BuildShardsBy(beam.PTransform[beam.PCollection[tuple[int, int]], beam.PCollection[int]]):
    """(split, shard) -> the number of records in it, once it is written, verified and renamed.

    Building a shard twice, or twice at once, changes nothing.
    """

    def __init__(
        self,
        job: ShuffleJobT,
        tree: MergeTree,
        make_builder: Callable[[ShuffleJobT, MergeTree], BuildsShards],
    ) -> None:
        """Builds the shards of a job.

        Args:
          job: whose shards are built.
          tree: of its run files.
          make_builder: makes what builds them, once in a worker.
        """
        super().__init__()
        self._do_fn = _BuildShardDoFn(job, tree, make_builder)

    def expand(self, shards: beam.PCollection[tuple[int, int]]) -> beam.PCollection[int]:
        """Writes a shard file per element."""
        return shards | "BuildShard" >> beam.ParDo(self._do_fn).with_output_types(int)
