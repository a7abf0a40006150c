"""The small JSON files of a job of existing records: what scatter did, and the plan of shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

from recordmill.records.state import Count, Uint32, convert
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.examples.schema_survey import SchemaSurvey
from recordmill.transforms.shuffle.run_files import RunFileInfo
from recordmill.transforms.shuffle.shuffle_state import (
    RunFilesDescription,
    run_files_from_json,
    run_files_to_json,
)


class ReadDescription(RunFilesDescription):
    """The description of a work item of scatter, on disk."""

    counts: dict[str, Count]
    records: list[Count]
    sizes: list[Count]
    rejected: dict[str, Count]
    rejected_file: tuple[Count, Uint32]
    survey: dict[str, Any]
    contents: dict[str, list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The results of a work item of scatter.

    Attributes:
      runs: its run files.
      counts: `records_read`, `repeated` by weights above 1, `sampled_out` by those below, and
        `duplicates` that were left out so far.
      records, sizes: of each split, in order: records in run files and their bytes with frames.
      rejected: reason -> number.
      rejected_file: bytes and crc32c of the list of rejects.
      survey: of the features.
      contents: split -> a sample of its records, where the input names the splits.
    """

    runs: tuple[RunFileInfo, ...]
    counts: dict[str, int]
    records: tuple[int, ...]
    sizes: tuple[int, ...]
    rejected: dict[str, int]
    rejected_file: tuple[int, int]
    survey: SchemaSurvey
    contents: dict[str, ContentSample] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the description."""
        return {
            **run_files_to_json(self.runs),
            "counts": dict(sorted(self.counts.items())),
            "records": list(self.records),
            "sizes": list(self.sizes),
            "rejected": dict(sorted(self.rejected.items())),
            "rejected_file": list(self.rejected_file),
            "survey": self.survey.to_json(),
            "contents": {split: sample.to_json() for split, sample in self.contents.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], folder: str) -> ReadResult:
        """Reads what `to_json` returned, from a description in a folder.

        Raises:
          ValueError: it is of wrong types.
        """
        typed = convert(content, ReadDescription)
        return cls(
            runs=run_files_from_json(content, folder),
            counts=dict(typed["counts"]),
            records=tuple(typed["records"]),
            sizes=tuple(typed["sizes"]),
            rejected=dict(typed["rejected"]),
            rejected_file=typed["rejected_file"],
            survey=SchemaSurvey.from_json(typed["survey"]),
            contents={
                split: ContentSample.from_json(sample)
                for split, sample in typed["contents"].items()
            },
        )


class _RecordSplitDescription(TypedDict):
    name: str
    shards: Count
    records: Count
    expected_bytes: Count


class RecordPlanDescription(TypedDict):
    """`shards.json` of a job of existing records."""

    splits: list[_RecordSplitDescription]
    counts: dict[str, Count]
    rejected: dict[str, Count]
    rejected_files: dict[str, tuple[Count, Uint32]]
    survey: dict[str, Any]
    shared_contents: list[dict[str, Any]]
    sums: tuple[Count, Uint32]


@dataclass(frozen=True, slots=True)
class PlannedRecords:
    """The size of a split.

    Attributes:
      name: of the split.
      shards: their number.
      records: in run files.
      expected_bytes: of all shards, before compression.
    """

    name: str
    shards: int
    records: int
    expected_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlan:
    """The shards of each split, and the totals of scatter.

    Attributes:
      splits: in order.
      counts, rejected: as in `ReadResult`, over all work items.
      rejected_files: work item -> bytes and crc32c of its list of rejects, where it has one.
      survey: of the features of all records.
      shared_contents: what splits have in common, for `statistics.json`.
      sums: bytes and crc32c of the file of sums, which lies beside.
    """

    splits: tuple[PlannedRecords, ...]
    counts: dict[str, int]
    rejected: dict[str, int]
    rejected_files: dict[int, tuple[int, int]]
    survey: SchemaSurvey
    shared_contents: tuple[dict[str, Any], ...] = ()
    sums: tuple[int, int] = (0, 0)

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `shards.json`."""
        return {
            "splits": [asdict(split) for split in self.splits],
            "counts": dict(sorted(self.counts.items())),
            "rejected": dict(sorted(self.rejected.items())),
            "rejected_files": {str(k): list(v) for k, v in self.rejected_files.items()},
            "survey": self.survey.to_json(),
            "shared_contents": list(self.shared_contents),
            "sums": list(self.sums),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RecordPlan:
        """Reads what `to_json` returned.

        Raises:
          ValueError: it is of wrong types.
        """
        typed = convert(content, RecordPlanDescription)
        return cls(
            splits=tuple(PlannedRecords(**split) for split in typed["splits"]),
            counts=dict(typed["counts"]),
            rejected=dict(typed["rejected"]),
            rejected_files={int(number): file for number, file in typed["rejected_files"].items()},
            survey=SchemaSurvey.from_json(typed["survey"]),
            shared_contents=tuple(typed["shared_contents"]),
            sums=typed["sums"],
        )
