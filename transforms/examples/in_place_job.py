"""The job that makes metadata of TFRecords which stay where they are, and its statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from recordmill.records import manifest as m
from recordmill.records.errors import RunError
from recordmill.records.manifest import Manifest
from recordmill.records.schema import Feature, Schema
from recordmill.records.shards import ShardName
from recordmill.records.spec import plain
from recordmill.records.state import Count
from recordmill.transforms.dataset.in_place import OPTION, note_text
from recordmill.transforms.dataset.job import Job, JobStatistics, JobSummary
from recordmill.transforms.examples.schema_survey import SchemaSurvey
from recordmill.transforms.examples.shard_files import ShardFile
from recordmill.transforms.examples.shard_scan import ShardDamage
from recordmill.transforms.sources.changes import check_unchanged
from recordmill.transforms.sources.work_item_files import read_ranges

_MOST_NAMED = 3


class InPlaceRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a shard: of records without their frames.

    Attributes:
      bytes, least_bytes, most_bytes: see `ShardRecords`.
      survey: of the features, where none are given.
      damage: None where the shard is whole.
    """

    bytes: Count
    least_bytes: Count
    most_bytes: Count
    survey: SchemaSurvey
    damage: ShardDamage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlaceJob(Job):
    """A job that reads shards of other tools and writes metadata beside them.

    Attributes:
      work_items: their number; 0 before it is planned.
      given_schema: the features that all records must have; () where they are inferred.
      kept: files of others under names of metadata, which stay as they are.
    """

    shard_statistics: ClassVar[Any] = InPlaceRecords

    work_items: int = 0
    given_schema: tuple[Feature, ...] = ()
    kept: tuple[str, ...] = ()

    def resolved(self) -> dict[str, Any]:
        """Returns the same: nothing else of a job has a meaning for shards of others."""
        return self.fingerprint_options()

    def fingerprint_options(self) -> dict[str, Any]:
        """Returns the options that decide the bytes of the metadata."""
        options: dict[str, Any] = {
            OPTION: True,
            "splits": [split.name for split in self.splits],
            "compression": self.compression,
        }
        if self.given_schema:
            options["given_schema"] = plain(self.given_schema)
        return options

    def shards_of(self, number: int) -> list[ShardFile]:
        """Returns the shards of a work item.

        Raises:
          DamagedStateError: the plan is damaged.
        """
        return read_ranges(self.workspace.inputs_folder, number, ShardFile)

    def shard_names(self) -> Iterator[ShardName]:
        """Yields the name of every shard, each with its file."""
        for number in range(self.work_items):
            yield from map(name_of, self.shards_of(number))

    def planned_splits(self) -> list[tuple[str, int]]:
        """Returns the splits and the number of files of each."""
        counts: dict[str, int] = {}
        for name in self.shard_names():
            counts[name.split] = name.count
        return list(counts.items())

    def check_kept(self) -> None:
        """Checks that no shard has changed since it was read: the metadata is of what was read.

        Raises:
          InputChangedError: one has, or is gone.
        """
        for number in range(self.work_items):
            check_unchanged({s.path: (s.size, s.modified_ns) for s in self.shards_of(number)})

    def schema(self) -> Schema:
        """Returns the schema that is given; an inferred one is in the summary of the shards."""
        return Schema(self.given_schema)

    def files_of_readers(
        self, manifest: Manifest, *, description: str, statistics: dict[str, Any]
    ) -> dict[str, bytes]:
        """Returns what TFDS reads; nothing where there is such a file of another tool."""
        # Not super(): a dataclass with slots is made anew, and super() knows only the first.
        found = Job.files_of_readers(self, manifest, description=description, statistics=statistics)
        return {} if self.kept else found

    def describe_counts(self, counts: Mapping[str, Any]) -> str:
        """Returns one line of what was read."""
        return f"records: {counts['records_read']} read where they are, no file changed"

    def statistics(self) -> JobStatistics:
        """Returns the object that adds up the statistics of the shards."""
        return _InPlaceStatistics(self)


def name_of(shard: ShardFile) -> ShardName:
    """Returns the name of a shard."""
    return ShardName(shard.split, shard.index, shard.count, file=shard.name)


class _InPlaceStatistics(JobStatistics):
    def __init__(self, job: InPlaceJob) -> None:
        self._job = job
        self._splits = {split.name: [0, 0, 1 << 62, 0] for split in job.splits}
        self._survey = SchemaSurvey()
        self._damages: list[ShardDamage] = []

    def add(self, split: str, records: int, statistics: InPlaceRecords) -> None:
        # In order of the shards, whatever work items they were in.
        self._survey.merge(statistics.survey)
        if statistics.damage:
            self._damages.append(statistics.damage)
        known = self._splits[split]
        known[0] += records
        known[1] += statistics.bytes
        if records:
            known[2] = min(known[2], statistics.least_bytes)
            known[3] = max(known[3], statistics.most_bytes)

    def of_splits(self) -> dict[str, Any]:
        return {name: _of_split(*known) for name, known in self._splits.items()}

    def summarize(self) -> JobSummary:
        _check_whole(self._damages)
        survey = self._survey
        total = sum(known[0] for known in self._splits.values())
        if not total:
            raise RunError("no records: all files of --input are empty; check --input")
        inputs: dict[str, Any] = {"form": survey.form}
        if survey.reason:
            inputs["no_schema"] = survey.reason
        return JobSummary(
            statistics=self.of_splits(),
            counts={"records_read": total, "rejected": {}, "examples": total},
            rejected_files={},
            extra_files={m.IN_PLACE_PATH: note_text(self._job.kept)},
            inputs=inputs,
            schema=self._job.schema() if self._job.given_schema else survey.schema(),
        )


def _of_split(examples: int, total: int, least: int, most: int) -> dict[str, Any]:
    """Returns the content of `statistics.json` for a split."""
    if not examples:
        return {"examples": 0}
    mean = round(total / examples, 1)
    return {
        "examples": examples,
        "record_bytes": {"least": least, "mean": mean, "most": most},
    }


def _check_whole(damages: list[ShardDamage]) -> None:
    """Checks that every shard is whole.

    Raises:
      RunError: names the first damaged files, and how many records of all are damaged.
    """
    if not damages:
        return
    shown = "; ".join(
        f"{damage.file} at byte {damage.position} ({damage.problem})"
        for damage in damages[:_MOST_NAMED]
    )
    more = len(damages) - _MOST_NAMED
    records = sum(damage.count for damage in damages)
    raise RunError(
        f"{records} records in {len(damages)} files cannot be used as they are: {shown}"
        + (f"; and {more} more files" if more > 0 else "")
        + "; copy these files again and run the same command again, or write what is whole anew "
        "with `recordmill examples` and --max_rejected=SHARE"
    )
