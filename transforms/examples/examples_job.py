"""The configuration of a job of existing records, and its statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from recordmill.records.errors import RunError
from recordmill.records.schema import Feature, Schema
from recordmill.records.spec import python_names
from recordmill.transforms.dataset.job import JobStatistics, JobSummary
from recordmill.transforms.examples.examples_spec import ExamplesSpec, RecordOptions, TableSpec
from recordmill.transforms.examples.examples_state import ReadResult, RecordPlan, ShardRecords
from recordmill.transforms.examples.run_records import merge_parts
from recordmill.transforms.examples.sort_keys import KeySplits
from recordmill.transforms.shuffle.shuffle_job import MergeRecords, ShuffleJob
from recordmill.transforms.storage import files


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesJob(ShuffleJob):
    """A job that writes existing records anew.

    Attributes:
      records: which records are written, and in which order.
      weights: of each glob of the input, () where all are 1.
      given_schema: the features that all records must have; () where they are inferred.
      tables: how rows of tables in the input become records.
    """

    argument_names: ClassVar[Mapping[str, str]] = python_names(ExamplesSpec)
    shard_statistics: ClassVar[Any] = ShardRecords

    records: RecordOptions = field(default_factory=RecordOptions)
    weights: tuple[float, ...] = ()
    given_schema: tuple[Feature, ...] = ()
    tables: TableSpec = field(default_factory=TableSpec)

    @property
    def changes_records(self) -> bool:
        """Whether records are left out or changed between reading and ordering them."""
        return bool(self.records.where or self.map or self.given_schema or self.records.key)

    @property
    def key_splits_path(self) -> str:
        """The path of the sample of values by which records are ordered."""
        return files.join(self.workspace.inputs_folder, "key-splits.json")

    def read_key_splits(self) -> KeySplits:
        """Reads the sample of values by which records are ordered."""
        return self.workspace.need_state(self.key_splits_path, KeySplits)

    def record_merger(self) -> MergeRecords:
        """Returns what merges the records of run files."""
        return merge_parts

    def read_result(self, number: int) -> ReadResult | None:
        """Returns what a work item of scatter did, None where it is not done."""
        return self.workspace.read_state(self.description_path(0, number), ReadResult)

    def read_shard_plan(self) -> RecordPlan:
        """Reads what `plan_record_shards` decided."""
        return self.workspace.need_state(self.shard_plan_path, RecordPlan)

    def schema(self) -> Schema:
        """Returns the schema of the records, without features where they have none in common."""
        return Schema(self.given_schema) if self.given_schema else self._inferred()

    def _inferred(self) -> Schema:
        return self.read_shard_plan().survey.schema()

    def planned_splits(self) -> list[tuple[str, int]]:
        """Returns what `plan_record_shards` decided."""
        return [(split.name, split.shards) for split in self.read_shard_plan().splits]

    def describe_counts(self, counts: Mapping[str, Any]) -> str:
        """Returns one line of what became of the records."""
        dropped = "".join(
            f", {number} dropped as {reason}"
            for reason, number in counts.get("dropped", {}).items()
        )
        repeated = f", {counts['repeated']} repeated" if "repeated" in counts else ""
        added = counts.get("records_added", 0)
        return (
            f"records: {counts['records_read']} read, "
            + (f"{added} added by --map, " if added else "")
            + f"{counts['examples']} written{dropped}{repeated}"
        )

    def statistics(self) -> JobStatistics:
        """Returns the object that adds up the statistics of the shards."""
        return _RecordStatistics(self, self.read_shard_plan())


class _RecordStatistics(JobStatistics):
    def __init__(self, job: ExamplesJob, plan: RecordPlan) -> None:
        self._job = job
        self._plan = plan
        self._splits: dict[str, dict[str, int]] = {}

    def add(self, split: str, records: int, statistics: ShardRecords) -> None:
        known = self._splits.setdefault(
            split, {"examples": 0, "duplicates": 0, "bytes": 0, "least": 1 << 62, "most": 0}
        )
        known["examples"] += records
        known["duplicates"] += statistics.duplicates
        known["bytes"] += statistics.bytes
        if records:
            known["least"] = min(known["least"], statistics.least_bytes)
            known["most"] = max(known["most"], statistics.most_bytes)

    def of_splits(self) -> dict[str, Any]:
        return {split: _of_split(found) for split, found in self._splits.items()}

    def summarize(self) -> JobSummary:
        plan = self._plan
        for split in plan.splits:
            found = self._splits.get(split.name, {"examples": 0, "duplicates": 0})
            if found["examples"] + found["duplicates"] != split.records:
                raise RunError(
                    f"{split.name} must have {split.records} records, and its shards have "
                    f"{found['examples']} and {found['duplicates']} duplicates; check the storage "
                    "and start anew with --overwrite"
                )
        counts: dict[str, Any] = {
            "records_read": plan.counts["records_read"],
            "rejected": plan.rejected,
            "examples": sum(found["examples"] for found in self._splits.values()),
        }
        late = sum(found["duplicates"] for found in self._splits.values())
        if self._job.map:
            counts["records_added"] = plan.counts.get("records_added", 0)
        dropped = {}
        if self._job.records.where:
            dropped["where"] = plan.counts.get("dropped_where", 0)
        if self._job.map:
            dropped["map"] = plan.counts.get("dropped_map", 0)
        if self._job.records.deduplicate:
            dropped["duplicate"] = plan.counts["duplicates"] + late
        if self._job.weights:
            dropped["weight"] = plan.counts["sampled_out"]
            counts["repeated"] = plan.counts["repeated"]
        if dropped:
            counts["dropped"] = dropped
        inputs: dict[str, Any] = {"form": plan.survey.form}
        if plan.survey.reason:
            inputs["no_schema"] = plan.survey.reason
        inputs["shared_contents"] = list(plan.shared_contents)
        return JobSummary(
            statistics=self.of_splits(),
            counts=counts,
            rejected_files=plan.rejected_files,
            extra_files={},
            inputs=inputs,
        )


def _of_split(found: dict[str, int]) -> dict[str, Any]:
    """Returns the content of `statistics.json` for a split."""
    examples = found["examples"]
    if not examples:
        return {"examples": 0}
    return {
        "examples": examples,
        "record_bytes": {
            "least": found["least"],
            "mean": round(found["bytes"] / examples, 1),
            "most": found["most"],
        },
    }
