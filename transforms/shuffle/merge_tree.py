"""The merge tree: merge run files into fewer ones, so that a shard reads few of them."""

from __future__ import annotations

import msgspec

from recordmill.records.state import Count

MAX_FAN_IN = 512
REGROUP_FAN_IN = 64
MAX_LEVELS = 3  # 64 ** 3 parts are as many as the cells of a run's histogram
_READ_BYTES = 1 << 18  # what a pass moves while a range read would be under way


class MergeTree(msgspec.Struct, frozen=True):
    """The number of runs on each level, and the runs that each is merged from.

    Scatter writes level 0: one run per work item, over all hashes. A run of level n holds one of
    `fan_in ** n` ranges of the hashes of a group: `fan_in ** n` runs of level 0. Each level reads
    and writes every byte once, in reads of a run's size / `fan_in`; a worker holds one run.

    A run is the output of one work item: mostly one run file, several of a huge file.

    Attributes:
      work_items: the work items of scatter, which write the runs of level 0.
      max_fan_in: more runs than that are regrouped before shards are built from them.
      fan_in: the number of runs that a regroup merges, a power of two.

    Raises:
      ValueError: `fan_in` is not a power of two.
    """

    work_items: Count
    max_fan_in: Count = MAX_FAN_IN
    fan_in: Count = REGROUP_FAN_IN

    def __post_init__(self) -> None:
        if self.fan_in < 2 or self.fan_in & (self.fan_in - 1):
            raise ValueError(f"fan_in must be a power of two, got {self.fan_in}")

    def group_count(self, level: int) -> int:
        """Returns the number of groups on a level."""
        return -(-self.work_items // self.fan_in**level)

    def run_count(self, level: int) -> int:
        """Returns the number of runs on a level."""
        return self.group_count(level) * self.fan_in**level

    @property
    def levels(self) -> int:
        """The number of times that runs are regrouped: 0 if scatter writes few enough runs."""
        level = 0
        while self.group_count(level) > self.max_fan_in:
            level += 1
        return level

    def range_reads(self, build_reads: float) -> int:
        """Returns the reads of parts of runs, where shards read `build_reads` ranges of each."""
        regrouped = sum(self.run_count(level) for level in range(1, self.levels + 1))
        return regrouped * self.fan_in + round(build_reads * self.group_count(self.levels))

    def hash_range(self, level: int, number: int) -> tuple[int, int]:
        """Returns the first and the last hash of a run."""
        parts = self.fan_in**level
        width = (1 << 64) // parts
        part = number % parts
        return part * width, (part + 1) * width - 1

    def inputs(self, level: int, number: int) -> list[int]:
        """Returns the runs of the level below that a run is merged from."""
        parts = self.fan_in**level
        group, part = divmod(number, parts)
        first = group * self.fan_in
        last = min(first + self.fan_in, self.group_count(level - 1))
        parts_below = parts // self.fan_in
        return [g * parts_below + part // self.fan_in for g in range(first, last)]

    def runs_to_build_from(self, low: int, high: int) -> list[int]:
        """Returns the runs of the last level that have hashes in `[low, high]`."""
        level = self.levels
        parts = self.fan_in**level
        width = (1 << 64) // parts
        wanted = range(low // width, high // width + 1)
        return [g * parts + part for g in range(self.group_count(level)) for part in wanted]


def choose_merge_tree(work_items: int, build_reads: float, run_bytes: float = 0) -> MergeTree:
    """Returns the tree that needs the fewest range reads.

    Args:
      work_items: of scatter.
      build_reads: the ranges that all shards read from each run of the last level.
      run_bytes: of all runs: what a regroup reads and writes once more.
    """

    def cost(tree: MergeTree) -> float:
        gather = tree.run_count(tree.levels) * tree.fan_in + run_bytes / _READ_BYTES
        return tree.levels * gather + build_reads * tree.group_count(tree.levels)

    candidates = {
        MergeTree(work_items, MergeTree(work_items).group_count(level))
        for level in range(MAX_LEVELS + 1)
    }
    allowed = [tree for tree in candidates if tree.group_count(tree.levels) <= MAX_FAN_IN]
    return min(allowed or candidates, key=lambda tree: (cost(tree), tree.levels))


def single_level_tree(work_items: int, most: int = MAX_FAN_IN) -> MergeTree:
    """Returns a tree that regroups at most once: for stages that are there before their number is.

    Args:
      work_items: of scatter.
      most: more runs than that are regrouped, in groups so large that no more are left.
    """
    # A regroup reads `runs * fan_in` ranges, and shards `shards * runs / fan_in`.
    fan_in = max(2, 1 << (work_items.bit_length() // 2))
    while -(-work_items // fan_in) > most:
        fan_in *= 2
    return MergeTree(work_items, most, fan_in)
