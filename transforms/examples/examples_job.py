"""The configuration of a job of existing records, and its statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypedDict

from recordmill.records.errors import RunError, UsageError, one_of
from recordmill.records.schema import Feature, Schema
from recordmill.records.typed_json import Count
from recordmill.transforms.dataset.job import Job, JobStatistics, JobSummary
from recordmill.transforms.dataset.run_state import typed_statistics
from recordmill.transforms.examples.examples_state import ReadResult, RecordPlan
from recordmill.transforms.examples.run_records import merge_parts
from recordmill.transforms.examples.sort_keys import KeySplits
from recordmill.transforms.examples.table_spec import TableSpec
from recordmill.transforms.shuffle.shuffle_job import MergeRecords, ShuffleJob
from recordmill.transforms.storage import files

ORDERS = ("shuffle", "key", "input")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamplesJob(ShuffleJob):
    """A job that writes existing records anew.

    Attributes:
      order: "shuffle", "key" for the order of the values of a feature, or "input" for the order
        in which they are read.
      key: the feature whose values decide, "" where none does.
      deduplicate: a record whose bytes are those of another is left out.
      weights: of each glob of the input, () where all are 1.
      where: a condition on the records as they are read; "" for all of them.
      given_schema: the features that all records must have; () where they are inferred.
      tables: how rows of tables in the input become records.

    Raises:
      UsageError: options do not go together.
    """

    order: str = "shuffle"
    key: str = ""
    deduplicate: bool = False
    weights: tuple[float, ...] = ()
    where: str = ""
    given_schema: tuple[Feature, ...] = ()
    tables: TableSpec = field(default_factory=TableSpec)

    @property
    def changes_records(self) -> bool:
        """Whether records are left out or changed between reading and ordering them."""
        return bool(self.where or self.map or self.given_schema or self.key)

    @property
    def key_splits_path(self) -> str:
        """The path of the sample of values by which records are ordered."""
        return files.join(self.workspace.inputs_folder, "key-splits.json")

    def read_key_splits(self) -> KeySplits:
        """Reads the sample of values by which records are ordered."""
        return self.workspace.need_state(self.key_splits_path, KeySplits.from_json)

    def __post_init__(self) -> None:
        # Not super(): a dataclass with slots is made anew, and super() knows only the first.
        Job.__post_init__(self)
        one_of("--order", self.order, ORDERS)
        if (self.order == "key") != bool(self.key):
            raise UsageError("--order=key and --key=FEATURE belong together; give both, or neither")
        if self.deduplicate and self.order != "shuffle":
            raise UsageError(
                "--deduplicate needs --order=shuffle, in which equal records meet; leave out one"
            )
        if self.deduplicate and self.weights:
            raise UsageError(
                "--deduplicate would undo what --weights repeats; deduplicate first, into a "
                "dataset of its own"
            )

    def record_merger(self) -> MergeRecords:
        """Returns what merges the records of run files."""
        return merge_parts

    def read_result(self, number: int) -> ReadResult | None:
        """Returns what a work item of scatter did, None where it is not done."""
        path = self.description_path(0, number)
        folder = path.rpartition("/")[0]
        return self.workspace.read_state(path, lambda c: ReadResult.from_json(c, folder))

    def read_shard_plan(self) -> RecordPlan:
        """Reads what `plan_record_shards` decided."""
        return self.workspace.need_state(self.shard_plan_path, RecordPlan.from_json)

    def schema(self) -> Schema:
        """Returns the schema of the records, without features where they have none in common."""
        return Schema(self.given_schema) if self.given_schema else self._inferred()

    def _inferred(self) -> Schema:
        return self.read_shard_plan().survey.schema()

    def planned_splits(self) -> list[tuple[str, int]]:
        """Returns what `plan_record_shards` decided."""
        return [(split.name, split.shards) for split in self.read_shard_plan().splits]

    def statistics(self) -> JobStatistics:
        """Returns the object that adds up the statistics of the shards."""
        return _RecordStatistics(self, self.read_shard_plan())


class ShardRecords(TypedDict):
    """The statistics of a shard, on disk: of records without their frames."""

    duplicates: Count
    bytes: Count
    least_bytes: Count
    most_bytes: Count


class _RecordStatistics(JobStatistics):
    def __init__(self, job: ExamplesJob, plan: RecordPlan) -> None:
        self._job = job
        self._plan = plan
        self._splits: dict[str, dict[str, int]] = {}

    def add(self, split: str, records: int, statistics: dict[str, Any]) -> None:
        found = typed_statistics(statistics, ShardRecords)
        known = self._splits.setdefault(
            split, {"examples": 0, "duplicates": 0, "bytes": 0, "least": 1 << 62, "most": 0}
        )
        known["examples"] += records
        known["duplicates"] += found["duplicates"]
        known["bytes"] += found["bytes"]
        if records:
            known["least"] = min(known["least"], found["least_bytes"])
            known["most"] = max(known["most"], found["most_bytes"])

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
        if self._job.where:
            dropped["where"] = plan.counts.get("dropped_where", 0)
        if self._job.map:
            dropped["map"] = plan.counts.get("dropped_map", 0)
        if self._job.deduplicate:
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
            statistics={split: _of_split(found) for split, found in self._splits.items()},
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
