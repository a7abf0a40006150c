"""What all jobs share: a place, splits and shards, and files that tell how far the work is.

A job is small enough to be sent with every stage. What is particular to text or images stands in
the subclasses; plan, restart, rejects and commit need only what is here.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from recordmill.records.errors import RunError, UsageError, one_of
from recordmill.records.schema import Schema
from recordmill.records.shards import ShardName
from recordmill.transforms import files
from recordmill.transforms.rejects import REASONS

COMPRESSIONS = ("", "GZIP", "ZLIB")
_MOST_REJECT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class SplitSpec:
    """A split: its name, its share of the input, and its number of shards where given."""

    name: str
    share: float
    num_shards: int | None = None

    def __post_init__(self) -> None:
        ShardName(self.name, 0, 1)
        if not 0 < self.share <= 1:
            raise UsageError(f"--splits: the share of {self.name} must be in (0, 1]")


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """How many shards: as `SplitSpec.num_shards` says, or else by size.

    Attributes:
      shard_bytes: the size of a shard before compression.
      num_readers: 10 shards a reader, unless they would be smaller than 10 MB.
    """

    shard_bytes: int = 200_000_000
    num_readers: int | None = None

    def __post_init__(self) -> None:
        if self.shard_bytes < 1:
            raise UsageError(f"--shard_size must be at least 1 byte, got {self.shard_bytes}")
        if self.num_readers is not None and self.num_readers < 1:
            raise UsageError(f"--num_readers must be at least 1, got {self.num_readers}")


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a job says at its end, beside its shards.

    Attributes:
      statistics: the content of `statistics.json`.
      counts: of inputs and examples: read = written + rejected + filtered.
      rejected_files: number -> (bytes, crc32c) of each file of rejects.
      extra_files: path, relative to the dataset, -> content of what else belongs to it.
    """

    statistics: dict[str, Any]
    counts: dict[str, Any]
    rejected_files: dict[int, tuple[int, int]]
    extra_files: dict[str, bytes]


class Tally(ABC):
    """Adds up what shards say of themselves; what it holds does not grow with their number."""

    @abstractmethod
    def add(self, split: str, records: int, found: dict[str, Any]) -> None:
        """Adds a shard: its split, its records, and what its builder found."""

    @abstractmethod
    def conclude(self) -> Conclusion:
        """Returns the sums.

        Raises:
          RunError: more inputs were rejected than the job allows, or nothing is left.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(ABC):
    """A job.

    Attributes:
      output: the dataset.
      work: where the plan and intermediate files lie until the end.
      staging: where finished shards wait, on the output's own file system.
      splits: which splits, in order.
      shards: how many.
      compression: of the shards.
      seed: of every random choice.
      max_rejected: the share of inputs that may be rejected.
      overwrite: whether a finished dataset may be replaced.
    """

    output: str
    work: str
    staging: str
    splits: tuple[SplitSpec, ...] = (SplitSpec("train", 1.0),)
    shards: ShardSpec = field(default_factory=ShardSpec)
    compression: str = ""
    seed: int = 12345
    max_rejected: float = 0.0
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            one_of("--compression", self.compression, ("NONE", "GZIP", "ZLIB"))
        if not 0 <= self.max_rejected <= 1:
            raise UsageError(f"--max_rejected must be in [0, 1], got {self.max_rejected}")
        names = [split.name for split in self.splits]
        if len(set(names)) != len(names):
            raise UsageError(f"--splits must name each split once, got {','.join(names)}")
        total = sum(split.share for split in self.splits)
        if abs(total - 1) > 1e-6:
            raise UsageError(f"--splits must have shares that add up to 1, got {total:g}")

    @abstractmethod
    def schema(self) -> Schema:
        """Returns what the records hold."""

    @abstractmethod
    def planned_splits(self) -> list[tuple[str, int]]:
        """Returns the splits and the number of shards of each; known when shards are built."""

    @abstractmethod
    def tally(self) -> Tally:
        """Returns what adds up the shards at the end."""

    def rejected_path(self, number: int) -> str:
        """The rejects of one task."""
        return files.join(self.staging, "rejected", f"rejected-{number:06d}.jsonl")

    def done_path(self, name: ShardName) -> str:
        """What a finished shard says of itself."""
        return files.join(self.staging, "done", f"{name.stem}.json")

    def index_path(self, name: ShardName) -> str:
        """The index of a finished shard, until it is published."""
        return files.join(self.staging, "index", name.split, f"{name.stem}.idx")

    def shard_path(self, name: ShardName) -> str:
        """A finished shard, until it is published."""
        return files.join(self.staging, "shards", name.path)

    @property
    def partial_folder(self) -> str:
        """Where files lie until they are whole, whose folders are published as they are."""
        return files.join(self.staging, "partial")

    @property
    def failure_path(self) -> str:
        """Why the run ended, in one line, for the process that the user sees."""
        return files.join(self.staging, "failure.txt")

    @property
    def over_budget_path(self) -> str:
        """A mark that the run ended over the budget of rejects."""
        return files.join(self.staging, "over_budget")

    def decides_bytes(self) -> dict[str, Any]:
        """Returns the options that decide the bytes of shards."""
        options = asdict(self)
        for name in ("output", "work", "staging", "max_rejected", "overwrite"):
            del options[name]
        return options


def _first_reject(folder: str) -> str:
    """Returns what is wrong with the first of the rejects in a folder."""
    with suppress(RunError, OSError):  # the number of rejects is what must be told
        for path in sorted(files.list_files(folder)):
            line = files.read_bytes(path, 0, _MOST_REJECT_BYTES).partition(b"\n")[0]
            with suppress(ValueError):  # cut
                found = json.loads(line)
                source = " ".join(found["source"].split())
                reason = REASONS[found["reason"]]
                return f"the first is {source} at byte {found['position']}: {reason}; "
    return ""


class OverBudgetError(RunError):
    """More inputs were rejected than the job allows."""


def read_json(path: str) -> Any:
    """Reads a JSON file of the job."""
    return json.loads(files.read_bytes(path))


def write_json(path: str, content: Any) -> None:
    """Writes a JSON file of the job, whole or not at all."""
    files.write_bytes(path, json.dumps(content, sort_keys=True).encode())


def fail(job: Job, error: RunError) -> None:
    """Leaves the reason where the launching process finds it, and raises it."""
    with suppress(RunError, OSError):  # the storage may be what failed
        files.write_bytes(job.failure_path, str(error).encode())
        if isinstance(error, OverBudgetError):
            files.write_bytes(job.over_budget_path, b"\n")
    raise error


def check_budget(job: Job, *, accepted: int, reasons: dict[str, int]) -> None:
    """Checks that no more inputs were rejected than allowed.

    Raises:
      OverBudgetError: how many, why, and what can be done.
    """
    rejected = sum(reasons.values())
    inputs = accepted + rejected
    share = rejected / max(inputs, 1)
    if share <= job.max_rejected:
        return
    by_reason = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    folder = files.join(job.staging, "rejected")
    raise OverBudgetError(
        f"{rejected} of {inputs} inputs rejected ({by_reason}), which is {share:.3%} where "
        f"--max_rejected allows {job.max_rejected:.3%}; {_first_reject(folder)}all are listed in "
        f"{folder}; mend them and start anew with --overwrite, or "
        "raise --max_rejected and run the same command again"
    )
