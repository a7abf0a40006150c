"""`recordmill plan JOB`: what a job would do, take and cost, before anything is written.

The input is listed as the job would list it. Parts of it, each a sample of all, are planned as jobs
of their own in a temporary folder, and go through the job's own stages in this process. What comes
out of a part, times how much of the input it is, estimates the whole; how far the parts differ says
how far the estimate can be trusted.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from recordmill.pipelines.planning.outline import Outline, Sample, show_bytes
from recordmill.pipelines.planning.planner import Planner
from recordmill.pipelines.progress import resident_bytes
from recordmill.pipelines.temporary_folders import prefix
from recordmill.records.errors import RunError, UsageError
from recordmill.records.state import decode
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.dataset.shard_writer import read_descriptions
from recordmill.transforms.dataset.statistics_report import describe_statistics
from recordmill.transforms.dataset.statistics_warnings import StatisticsWarning, find_warnings
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files

_SURE = 0.05  # of an estimate: where it may be farther off, its range is told
_STANDARD_ERRORS = 2.4  # of 8 parts; 19 of 20 estimates are as near
_WARM = "warm"
_BUILD = "Build"  # the stage that writes shards
_NO_SECONDS = 1e-3


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
      error: how many records more or less there may be.
      is_most: there may be fewer: duplicates are dropped, of which a sample has few.
      rejected: reason -> inputs.
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
    error: float = 0.0
    is_most: bool = False
    rejected: Mapping[str, float] = field(default_factory=dict)

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
        yield "output", f"{self._told_records()}, {show_bytes(output)}"
        if self.rejected:
            told = (f"{reason} {number:,.0f}" for reason, number in self.rejected.items())
            yield "rejected", ", ".join(told)
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

    def _told_records(self) -> str:
        most = "at most " if self.is_most else ""
        if self.error <= _SURE * self.records:
            return f"{most}{self.records:,.0f} records"
        low, high = max(self.records - self.error, 0), self.records + self.error
        return f"{most}{self.records:,.0f} records, between {low:,.0f} and {high:,.0f}"


@dataclass(slots=True)
class _Measured:
    """What became of a sample.

    Attributes:
      sample: which.
      job: of it.
      seconds: by stage.
      work_bytes: folder of temporary files -> bytes, when there were most.
      records, record_bytes: of all shards.
      rejected: reason -> inputs.
      error: why it has no shards.
    """

    sample: Sample
    job: Job
    seconds: dict[str, float] = field(default_factory=dict)
    work_bytes: Counter[str] = field(default_factory=Counter)
    records: int = 0
    record_bytes: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    error: RunError | None = None


def _run(sample: Sample, place: str) -> _Measured:
    """Runs the stages of a sample, one after the other; one without a record is no error."""
    output, work, staging = (files.join(place, name) for name in ("output", "work", "staging"))
    job, stages = sample.begin(Workspace(output=output, work=work, staging=staging))
    found = _Measured(sample, job)
    # Processor time does not depend on other processes; waiting for remote storage must count.
    clock = time.process_time if sample.is_local else time.perf_counter
    try:
        for stage in stages:
            began = clock()
            try:
                for item in range(stage.items()):
                    stage.do(item)
                stage.release()
            finally:
                stage.close()
                found.seconds[stage.name] = clock() - began
            now: Counter[str] = Counter()
            for path, size in files.list_files(work).items():
                folder, is_inside, _ = path[len(work) + 1 :].partition("/")
                if is_inside:  # others are of the plan, whose size is none of the input's
                    now[folder] += size
            found.work_bytes = max(now, found.work_bytes, key=Counter.total)
        for description in read_descriptions(job):
            found.records += description.shard.records
            found.record_bytes += description.shard.record_bytes
    except RunError as error:
        found.error = error
    for path in files.list_files(job.workspace.rejected_folder):
        lines = files.read_bytes(path).splitlines()
        found.rejected.update(decode(line, Reject).reason for line in lines)
    return found


def estimate(planner: Planner[Any, Any, Any], *, workers: int) -> Estimate:
    """Returns what a job would do; nothing is written but to the system's temporary folder.

    Raises:
      UsageError: the input or a flag cannot be used.
      RunError: the sample cannot be processed.
    """
    with (
        planner.inspect() as inventory,
        tempfile.TemporaryDirectory(prefix=prefix()) as folder,
    ):
        outline = planner.outline(inventory, workers=workers)
        samples = outline.samples(folder)
        alike: dict[str, list[_Measured]] = {}
        for number, (name, each) in enumerate(samples.items()):
            if not each:  # nothing of the files can be read
                continue
            # The first run would also measure the compiling and loading of code.
            _run(each[0], files.join(folder, f"{number}-{_WARM}"))
            alike[name] = [
                _run(sample, files.join(folder, f"{number}-{at}")) for at, sample in enumerate(each)
            ]
        found = [one for each in alike.values() for one in each]
        if not any(one.records for one in found):
            raise _nothing(found, planner.kind)
        statistics = {
            name: statistics
            for name, each in alike.items()
            if (statistics := _statistics(each)) is not None
        }
    return _estimate(outline, list(alike.values()), statistics | dict(outline.statistics))


def _nothing(found: Sequence[_Measured], kind: str) -> UsageError:
    reasons: Counter[str] = Counter()
    for one in found:
        reasons += one.rejected
    told = ", ".join(f"{reason} {number}" for reason, number in reasons.items())
    error = next((str(one.error) for one in found if one.error), "")
    why = f"rejected: {told}" if told else error.partition(";")[0] or "it is empty"
    return UsageError(
        f"no sample could be taken: what was read of the input, all over it, gives no record "
        f"({why}); `recordmill {kind}` with --max_rejected=1 reports why"
    )


def _statistics(alike: Sequence[_Measured]) -> dict[str, Any] | None:
    """Returns the statistics of samples as if they were one, None where they have no records."""
    found = [one for one in alike if one.records]
    if not found:
        return None
    sums = found[0].job.statistics()
    for one in found:
        for each in read_descriptions(one.job):
            sums.add(each.shard.name.split, each.shard.records, each.statistics)
    (statistics,) = sums.of_splits().values()
    return dict(statistics)


def _error(alike: Sequence[_Measured]) -> float:
    """Returns the standard error of the records of samples that are alike, of all together.

    It is that of a ratio: of samples of different sizes, records differ from what the mean says of
    so many bytes (W. G. Cochran, Sampling Techniques, 3rd edition, section 6.4).
    """
    count = len(alike)
    if count < 2:
        return 0.0
    ratio = sum(one.records for one in alike) / sum(one.sample.size for one in alike)
    squares = sum((one.records - ratio * one.sample.size) ** 2 for one in alike)
    return sqrt(count / (count - 1) * squares)


def _estimate(
    outline: Outline, kinds: Sequence[Sequence[_Measured]], statistics: Mapping[str, Any]
) -> Estimate:
    """Scales what was measured to the whole."""
    split_bytes: defaultdict[str, float] = defaultdict(float)
    work_bytes: defaultdict[str, float] = defaultdict(float)
    seconds: defaultdict[str, float] = defaultdict(float)
    rejected: defaultdict[str, float] = defaultdict(float)
    records = squares = 0.0
    for alike in kinds:
        sample = alike[0].sample
        scale = sample.whole / sum(one.sample.size for one in alike)
        output_scale = scale * sum(sample.splits.values())
        squares += (_error(alike) * output_scale) ** 2
        for one in alike:
            records += one.records * output_scale
            for split, share in sample.splits.items():
                split_bytes[split] += one.record_bytes * scale * share
            for stage, took in one.seconds.items():
                seconds[stage] += took * (output_scale if stage == _BUILD else scale)
            for counted, whole in ((one.work_bytes, work_bytes), (one.rejected, rejected)):
                for name, number in counted.items():
                    whole[name] += number * scale
    shards = outline.shards(split_bytes)
    reads = outline.range_reads(shards)
    steps = []
    for stage, name, items in outline.steps(shards, work_bytes):
        waiting = outline.waiting_seconds(reads) if stage == _BUILD else 0.0
        steps.append(Step(name, items, seconds[stage] + waiting))
    return Estimate(
        inputs=outline.inputs,
        sample=_described(outline, [one for alike in kinds for one in alike]),
        splits=tuple((name, count, split_bytes[name]) for name, count in shards.items()),
        records=records,
        error=_STANDARD_ERRORS * sqrt(squares),
        is_most=outline.is_most,
        rejected=rejected,
        steps=tuple(steps),
        regroups=outline.regroups,
        range_reads=reads,
        temporary_bytes=outline.temporary_bytes(work_bytes, sum(split_bytes.values())),
        worker_bytes=(resident_bytes() or 0) + outline.item_bytes,
        statistics=statistics,
    )


def _described(outline: Outline, found: Sequence[_Measured]) -> str:
    """Returns what was measured, for people."""
    size = sum(one.sample.size for one in found)
    records = sum(one.records for one in found)
    out = sum(one.record_bytes for one in found)
    built = sum(took for one in found for stage, took in one.seconds.items() if stage == _BUILD)
    read = sum(took for one in found for took in one.seconds.values()) - built
    built = max(built, _NO_SECONDS)
    of_what, speed = f"{size:,.0f} {outline.unit}", ""
    if outline.unit == "bytes":
        of_what = f"{show_bytes(size)} of the input"
        speed = f"read at {size / 1e6 / max(read, _NO_SECONDS):,.1f} MB/s, "
    parts = f"{len(found)} part{'s' if len(found) > 1 else ''}"
    return (
        f"{of_what} in {parts}, {records:,} records: {speed}written at "
        f"{out / 1e6 / built:,.1f} MB/s, {records / built:,.0f} records/s, by one process here"
    )


def show_seconds(seconds: float) -> str:
    """Returns a time as people write it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"
