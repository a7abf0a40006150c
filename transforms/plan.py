"""The plan of a job, on disk beside its runs: what the tasks are, and how runs are gathered.

Stages exchange numbers only; what a number means stands here, so that a restarted job, on any
engine and with any number of workers, does the same tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import orjson

from recordmill.transforms import files
from recordmill.transforms.sources import SourceRange

MAX_FAN_IN = 512
REGROUP_FAN_IN = 64
MAX_LEVELS = 3  # 64 ** 3 parts are as many as a run's histogram tells apart
_READ_BYTES = 1 << 18  # what a pass moves while a range read would be under way
_TASKS_PER_FILE = 256


def plan_path(work: str) -> str:
    """The file that is written last: where it is, the plan is whole."""
    return files.join(work, "plan.json")


def write_tasks(work: str, tasks: Iterable[Sequence[SourceRange]]) -> int:
    """Writes the read tasks, some hundred to a file, and where each begins; returns their number.

    A task of a million small files is long: one at a time is held, by who writes or reads it.
    """
    rest = iter(tasks)
    count = 0
    for first in rest:
        path = _tasks_path(work, count)
        begins = [0]
        with files.writing(f"{path}.jsonl") as handle:
            for task in chain([first], islice(rest, _TASKS_PER_FILE - 1)):
                line = orjson.dumps(task) + b"\n"
                handle.write(line)
                begins.append(begins[-1] + len(line))
        files.write_bytes(f"{path}.json", orjson.dumps(begins))
        count += len(begins) - 1
    return count


def read_task(work: str, number: int) -> list[SourceRange]:
    """Returns the input ranges of one task."""
    path = _tasks_path(work, number)
    begins = orjson.loads(files.read_bytes(f"{path}.json"))
    begin, end = begins[number % _TASKS_PER_FILE :][:2]
    line = files.read_bytes(f"{path}.jsonl", begin, end - begin)
    return [SourceRange(**source) for source in orjson.loads(line)]


def _tasks_path(work: str, number: int) -> str:
    return files.join(work, "tasks", f"tasks-{number // _TASKS_PER_FILE:06d}")


@dataclass(frozen=True, slots=True)
class RunTree:
    """How many runs there are on each level, and which are gathered into which.

    Level 0 is written by scatter, one run a task, over all hashes. A run of level n holds one of
    `fan_in ** n` parts of the hashes of `fan_in ** n` runs of level 0. Every byte is read and
    written once a level, in reads of a run's size / `fan_in`; what a worker holds is one run.

    Attributes:
      tasks: the runs of level 0.
      max_fan_in: more runs than that are regrouped before shards are built from them.
      fan_in: of a regroup.
    """

    tasks: int
    max_fan_in: int = MAX_FAN_IN
    fan_in: int = REGROUP_FAN_IN

    def __post_init__(self) -> None:
        if self.fan_in < 2 or self.fan_in & (self.fan_in - 1):
            raise ValueError(f"fan_in must be a power of two, got {self.fan_in}")

    def groups(self, level: int) -> int:
        """The groups of runs on a level."""
        return -(-self.tasks // self.fan_in**level)

    def runs(self, level: int) -> int:
        """The runs on a level."""
        return self.groups(level) * self.fan_in**level

    @property
    def levels(self) -> int:
        """How often runs are regrouped: 0 where scatter's runs are few enough."""
        level = 0
        while self.groups(level) > self.max_fan_in:
            level += 1
        return level

    def range_reads(self, build_reads: float) -> int:
        """Returns the reads of parts of runs, where shards read `build_reads` ranges of each."""
        regrouped = sum(self.runs(level) for level in range(1, self.levels + 1))
        return regrouped * self.fan_in + round(build_reads * self.groups(self.levels))

    def part(self, level: int, number: int) -> tuple[int, int]:
        """Returns the first and the last hash of a run."""
        parts = self.fan_in**level
        width = (1 << 64) // parts
        part = number % parts
        return part * width, (part + 1) * width - 1

    def below(self, level: int, number: int) -> list[int]:
        """Returns the runs of the level below that a run is gathered from."""
        parts = self.fan_in**level
        group, part = divmod(number, parts)
        first = group * self.fan_in
        last = min(first + self.fan_in, self.groups(level - 1))
        parts_below = parts // self.fan_in
        return [g * parts_below + part // self.fan_in for g in range(first, last)]

    def final_runs(self, low: int, high: int) -> list[int]:
        """Returns the runs of the last level that have hashes in `[low, high]`."""
        level = self.levels
        parts = self.fan_in**level
        width = (1 << 64) // parts
        wanted = range(low // width, high // width + 1)
        return [g * parts + part for g in range(self.groups(level)) for part in wanted]


def choose_tree(tasks: int, build_reads: float, run_bytes: float = 0) -> RunTree:
    """Returns the tree that needs the fewest range reads.

    Args:
      tasks: the runs that scatter writes.
      build_reads: the ranges that all shards read from each run of the last level.
      run_bytes: of all runs: what a regroup reads and writes once more.
    """

    def cost(tree: RunTree) -> float:
        gather = tree.runs(tree.levels) * tree.fan_in + run_bytes / _READ_BYTES
        return tree.levels * gather + build_reads * tree.groups(tree.levels)

    candidates = {RunTree(tasks, RunTree(tasks).groups(level)) for level in range(MAX_LEVELS + 1)}
    allowed = [tree for tree in candidates if tree.groups(tree.levels) <= MAX_FAN_IN]
    return min(allowed or candidates, key=lambda tree: (cost(tree), tree.levels))
