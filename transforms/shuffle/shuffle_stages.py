"""The stages after scatter: run files are regrouped, shards are planned once, each is built.

What a kind of job adds is how its results add up, how many shards it wants, and its builder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from recordmill.records.arrays import Int64s
from recordmill.records.errors import RunError
from recordmill.records.manifest import ShardInfo
from recordmill.transforms.dataset.stages import Done, OnceStage, Phase, Stage
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import Regroup, drop_runs
from recordmill.transforms.shuffle.shard_ranges import (
    PlannedShards,
    holds_sums,
    sum_histograms,
    write_sums,
)
from recordmill.transforms.shuffle.shuffle_job import ShuffleJob
from recordmill.transforms.storage import files

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
    for number in range(tree.work_items):
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


def plan_shards_of(
    job: ShuffleJobT, known: MergeTree | None, plan: Callable[[ShuffleJobT, MergeTree], object]
) -> None:
    """Decides the shards, and deletes the run files that were merged into those of the last level.

    Args:
      job: whose shards are planned.
      known: the tree of its run files; None for the one that is written.
      plan: decides, or reads what was decided before.
    """
    tree = job.merge_tree(known)
    plan(job, tree)
    if tree.levels:
        drop_runs(job, tree.levels - 1)


class PlanShards(OnceStage[ShuffleJob]):
    """Decides the shards once, when all run files are written; a restarted job keeps the decision.

    Args:
      job: whose shards are planned.
      plan: decides, and writes the shard plan, or finds it.
    """

    name = "PlanShards"

    def __init__(self, job: ShuffleJob, plan: Callable[[], object]) -> None:
        super().__init__(job)
        self._plan = plan

    def do(self, item: int) -> Done:
        """Reads the tails of all run files."""
        self._plan()
        return Done()

    def phases(self) -> Iterator[Phase]:
        """Yields that there is no plan yet."""
        if self.job.workspace.read_state(self.job.shard_plan_path, PlannedShards) is None:
            yield Phase("plan shards", 0, 1)


class BuildsShards(Protocol):
    """What one worker holds to build shards one by one."""

    def build(self, split: int, shard: int) -> ShardInfo:
        """Writes a shard, or finds it finished."""
        ...


class BuildShards(Stage[ShuffleJob]):
    """Writes, verifies and renames each shard of the shard plan.

    Memory is that of the builder, whatever the size of a shard. Deterministic: bytes depend on the
    records, not on how they are spread over run files.

    Args:
      job: whose shards are built.
      make_builder: makes what builds them, once in a worker.
    """

    name = "Build"

    def __init__(self, job: ShuffleJob, make_builder: Callable[[], BuildsShards]) -> None:
        super().__init__(job)
        self._make_builder = make_builder

    @cached_property
    def _builder(self) -> BuildsShards:
        return self._make_builder()

    @cached_property
    def _shards(self) -> list[tuple[int, int]]:
        """The split and the number in it of each shard."""
        plan = self.job.workspace.need_state(self.job.shard_plan_path, PlannedShards)
        return [
            (split, shard)
            for split, planned in enumerate(plan.splits)
            for shard in range(planned.shards)
        ]

    def items(self) -> int:
        """Returns the number of shards."""
        return len(self._shards)

    def do(self, item: int) -> Done:
        """Writes a shard file."""
        info = self._builder.build(*self._shards[item])
        return Done(
            info.records, {"examples_written": info.records, "bytes_written": info.file_bytes}
        )

    def phases(self) -> Iterator[Phase]:
        """Yields the shards that are described."""
        plan = self.job.workspace.read_state(self.job.shard_plan_path, PlannedShards)
        if plan is not None:
            done = files.count(self.job.workspace.done_folder, ".json")
            expected = sum(split.expected_bytes for split in plan.splits)
            yield Phase("write", done, sum(split.shards for split in plan.splits), expected)


def _open_builder(
    job: ShuffleJobT,
    known: MergeTree | None,
    make_builder: Callable[[ShuffleJobT, MergeTree], BuildsShards],
) -> BuildsShards:
    return make_builder(job, job.merge_tree(known))


def shuffle_stages(
    job: ShuffleJobT,
    tree: MergeTree | None,
    plan: Callable[[ShuffleJobT, MergeTree], object],
    make_builder: Callable[[ShuffleJobT, MergeTree], BuildsShards],
    input_bytes: int = 0,
) -> list[Stage[Any]]:
    """Returns the stages that follow scatter.

    Args:
      job: that shuffles.
      tree: of its run files; None for one of a level at most, written when the stages begin.
      plan: decides the shards, or reads what was decided before.
      make_builder: makes what builds them, once in a worker.
      input_bytes: that each pass moves, for progress.
    """
    levels = range(1, (tree.levels if tree else 1) + 1)
    return [
        *(Regroup(job, tree, level, input_bytes) for level in levels),
        PlanShards(job, partial(plan_shards_of, job, tree, plan)),
        BuildShards(job, partial(_open_builder, job, tree, make_builder)),
    ]
