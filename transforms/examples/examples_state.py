"""The small JSON files of a job of existing records: what scatter did, and the plan of shards."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field

from recordmill.records.state import Count, FileSum
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.examples.schema_survey import SchemaSurvey
from recordmill.transforms.shuffle.run_files import RunFiles
from recordmill.transforms.shuffle.shard_ranges import PlannedShards


class ReadResult(RunFiles, frozen=True, kw_only=True):
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

    counts: dict[str, Count]
    records: tuple[Count, ...]
    sizes: tuple[Count, ...]
    rejected: dict[str, Count]
    rejected_file: FileSum
    survey: SchemaSurvey
    contents: dict[str, ContentSample] = field(default_factory=dict)


class RecordPlan(PlannedShards, frozen=True, kw_only=True):
    """The shards of each split, and the totals of scatter.

    Attributes:
      counts, rejected: as in `ReadResult`, over all work items.
      rejected_files: work item -> bytes and crc32c of its list of rejects, where it has one.
      survey: of the features of all records.
      shared_contents: what splits have in common, for `statistics.json`.
    """

    counts: dict[str, Count]
    rejected: dict[str, Count]
    rejected_files: dict[Count, FileSum]
    survey: SchemaSurvey
    shared_contents: tuple[dict[str, Any], ...] = ()


class ShardRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a shard: of records without their frames.

    Attributes:
      duplicates: records that were left out.
      bytes: of all records.
      least_bytes, most_bytes: of a record; 0 where there is none.
    """

    duplicates: Count = 0
    bytes: Count = 0
    least_bytes: Count = 0
    most_bytes: Count = 0
