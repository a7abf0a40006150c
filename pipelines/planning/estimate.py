"""`recordmill plan JOB`: what a job would do, take and cost, before anything is written.

The input is listed and planned as the job would; a sample of it goes through the job's own code, in
this process, and measures how fast that is and how much comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from recordmill.transforms.dataset.statistics_report import describe_statistics
from recordmill.transforms.dataset.statistics_warnings import StatisticsWarning, find_warnings


@dataclass(frozen=True, slots=True)
class Step:
    """A phase of a job.

    Attributes:
      name: of the phase.
      work_items: that may be done at once.
      worker_seconds: of all of them, one after the other.
    """

    name: str
    work_items: int
    worker_seconds: float

    def seconds(self, workers: int) -> float:
        """Returns how long so many workers take, each with one work item at a time."""
        return -(-self.work_items // workers) * self.worker_seconds / max(self.work_items, 1)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a job would do.

    Attributes:
      inputs: their number and size.
      sample: what was measured.
      splits: name, shards and bytes of each.
      records: of all.
      steps: in order.
      regroups: how often runs are gathered into fewer.
      range_reads: of parts of files.
      temporary_bytes: at most, at any time.
      worker_bytes: the memory of a worker with one work item.
      statistics: of the sample, as `statistics.json` would have them.
    """

    inputs: str
    sample: str
    splits: tuple[tuple[str, int, float], ...]
    records: float
    steps: tuple[Step, ...]
    regroups: int
    range_reads: int
    temporary_bytes: float
    worker_bytes: float
    statistics: Mapping[str, Any] = field(default_factory=dict)

    def warnings(self) -> list[StatisticsWarning]:
        """Returns what looks wrong in the sample."""
        return find_warnings(self.statistics, of_sample=True)

    def lines(self, workers: int, price: float | None) -> Iterator[tuple[str, str]]:
        """Yields names and values, for people.

        Args:
          workers: with one work item at a time each.
          price: of a worker and hour, in any currency; None: no cost is shown.
        """
        yield "input", self.inputs
        for name, shards, size in self.splits:
            yield f"shards of {name}", f"{shards:,} of {show_bytes(size / shards)}"
        output = sum(size for _, _, size in self.splits)
        yield "output", f"{self.records:,.0f} records, {show_bytes(output)}"
        yield "work items", ", ".join(f"{step.name} {step.work_items:,}" for step in self.steps)
        yield "regroups", str(self.regroups)
        yield "temporary files", show_bytes(self.temporary_bytes)
        yield "range reads", f"{self.range_reads:,}"
        yield "memory a worker", show_bytes(self.worker_bytes)
        yield "sample", self.sample
        for name, value in describe_statistics(self.statistics):
            yield name, value
        took = [(step.name, step.seconds(workers)) for step in self.steps]
        total = sum(seconds for _, seconds in took)
        parts = ", ".join(f"{name} {show_seconds(seconds)}" for name, seconds in took)
        yield f"time of {workers:,} workers", f"{show_seconds(total)} ({parts})"
        hours = workers * total / 3600
        if price is not None:
            yield "cost", f"{hours * price:,.2f} for {hours:,.1f} worker hours"


def show_bytes(size: float) -> str:
    """Returns a size as people write it."""
    for suffix in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5:
            return (
                f"{size:.0f} {suffix}" if suffix == "B" or size >= 99.95 else f"{size:.1f} {suffix}"
            )
        size /= 1000
    return f"{size:,.1f} PB"


def show_seconds(seconds: float) -> str:
    """Returns a time as people write it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
