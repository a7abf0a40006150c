"""A job of a few numbers, to test what all jobs share without text or images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recordmill.records.codec.encoding import encode_batch
from recordmill.records.schema import Schema
from recordmill.records.shards import DEFAULT_TEMPLATE
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.job import Job, JobStatistics, JobSummary
from recordmill.transforms.dataset.run_state import Marker, Nothing, write_state
from recordmill.transforms.dataset.shard_writer import ShardWriter, write_shard
from recordmill.transforms.dataset.workspace import Workspace

from ...reader.small_datasets import NUMBERS, numbers

Plan = Mapping[str, Sequence[int]]  # split -> how many records each shard gets
PLAN: Plan = {"train": (3, 2), "test": (1,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallJob(Job):
    """Shards of `NUMBERS`."""

    plan: Plan

    def schema(self) -> Schema:
        return NUMBERS

    def planned_splits(self) -> list[tuple[str, int]]:
        return [(split, len(shards)) for split, shards in self.plan.items()]

    def describe_counts(self, counts: Mapping[str, Any]) -> str:
        return f"numbers: {counts['examples']} written"

    def statistics(self) -> JobStatistics:
        return _Sums()


class _Sums(JobStatistics):
    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._records: Counter[str] = Counter()

    def add(self, split: str, records: int, statistics: dict[str, Any]) -> None:
        self._records[split] += records
        self._sums[split] += statistics["sum"]

    def of_splits(self) -> dict[str, Any]:
        return {split: {"sum": total} for split, total in self._sums.items()}

    def summarize(self) -> JobSummary:
        return JobSummary(
            statistics=self.of_splits(),
            counts={"examples": self._records.total(), "rejected": {}},
            rejected_files={},
            extra_files={"labels.txt": b"one\ntwo\n"},
        )


def small_job(
    output: Path, plan: Plan = PLAN, token: str = "", template: str = DEFAULT_TEMPLATE
) -> SmallJob:
    """A planned job: its shards are to be built."""
    temporary = output / "_tmp"
    workspace = Workspace(
        output=str(output), work=f"{temporary}/work", staging=str(temporary), token=token
    )
    job = SmallJob(workspace=workspace, plan=plan, shard_template=template)
    for folder in workspace.folders:
        Marker(workspace.work, workspace.token).write(folder)
    write_state(workspace.plan_path, token, Nothing())
    return job


def build(job: SmallJob, split: str, index: int) -> int:
    """Writes a shard of the plan; returns the number of its records."""
    sizes = job.plan[split]

    def fill(writer: ShardWriter) -> dict[str, Any]:
        columns = numbers(100 * index, sizes[index])
        batch = encode_batch(NUMBERS, columns)
        writer.add(batch.buffer, batch.offsets)
        return {"sum": int(columns["id"].sum())}  # type: ignore[union-attr]

    return write_shard(job, job.shard_name(split, index, len(sizes)), fill).records


def build_all(job: SmallJob) -> int:
    """Writes all shards; returns the number of all records."""
    return sum(
        build(job, split, index) for split, count in job.planned_splits() for index in range(count)
    )


def commit_spec(*, replaces: bool = False) -> CommitSpec:
    return CommitSpec(
        name="small",
        description="a few numbers",
        fingerprint="0123",
        replaces=replaces,
        config={"seed": 1},
        versions={"recordmill": "0"},
        sources={"files": 1},
    )
