"""The stages that make metadata of shards which stay where they are.

A work item is some whole files. It writes the index of each, and then its description: if that
exists, the file is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import apache_beam as beam
import google_crc32c

from recordmill.records.codec.checking import SchemaChecker
from recordmill.records.manifest import ShardInfo
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.commit import CommitDataset, CommitSpec
from recordmill.transforms.dataset.run_task import RunTask
from recordmill.transforms.dataset.shard_writer import (
    ShardDescription,
    holds_index,
    read_description,
)
from recordmill.transforms.examples.in_place_job import (
    InPlaceJob,
    InPlaceRecords,
    name_of,
)
from recordmill.transforms.examples.record_source import BLOCK_BYTES
from recordmill.transforms.examples.schema_survey import SchemaSurvey
from recordmill.transforms.examples.shard_files import ShardFile
from recordmill.transforms.examples.shard_scan import scan_shard
from recordmill.transforms.storage import files
from recordmill.transforms.storage.buffers import BlockPool

_CARRIED_BYTES = 1 << 16  # of a record that is cut at the end of a block


class ShardScanner:
    """Runs work items one after the other; not thread-safe."""

    def __init__(self, job: InPlaceJob, block_bytes: int = BLOCK_BYTES) -> None:
        self._job = job
        self._block_bytes = block_bytes
        self._pool = BlockPool(block_bytes + _CARRIED_BYTES)
        self._checker = SchemaChecker(job.schema()) if job.given_schema else None

    def run(self, number: int) -> int:
        """Does work item `number`, but for what is done; returns the number of its records."""
        return sum(map(self._records, self._job.shards_of(number)))

    def _records(self, shard: ShardFile) -> int:
        known = self._finished(shard)
        return self._scan(shard) if known is None else known

    def _finished(self, shard: ShardFile) -> int | None:
        """Returns the number of records of a shard whose description and index are there."""
        name = name_of(shard)
        found = read_description(self._job, name)
        if found is None or not holds_index(self._job.workspace, name, found.index):
            return None
        return found.shard.records

    def _scan(self, shard: ShardFile) -> int:
        workspace, name = self._job.workspace, name_of(shard)
        survey = SchemaSurvey()
        workspace.check_own()
        size = crc = 0
        with ExitStack() as stack:
            index = None
            if not shard.compression:
                path = workspace.index_path(name)
                index = stack.enter_context(files.writing(path, workspace.partial_folder))

            def write_index(lines: bytes) -> None:
                nonlocal size, crc
                if index is not None:
                    index.write(lines)
                    size, crc = size + len(lines), google_crc32c.extend(crc, lines)

            found = scan_shard(
                shard, write_index, survey=None if self._checker else survey,
                checker=self._checker, block_bytes=self._block_bytes, pool=self._pool,
            )  # fmt: skip
            workspace.check_own()
        info = ShardInfo(
            name.split, name.index, name.count, found.records, found.file_bytes,
            found.record_bytes, found.crc32c, file=name.file,
        )  # fmt: skip
        statistics = InPlaceRecords(
            bytes=found.record_bytes - 16 * found.records, least_bytes=found.least_bytes,
            most_bytes=found.most_bytes, survey=survey, damage=found.damage,
        )  # fmt: skip
        done = ShardDescription(info, statistics, None if index is None else (size, crc))
        workspace.write_state(workspace.done_path(name), done)
        return found.records


class _ScanShardsDoFn(RunTask[InPlaceJob]):
    def __init__(self, job: InPlaceJob) -> None:
        super().__init__(job)
        self._scanner: ShardScanner | None = None

    def work(self, number: int) -> Iterator[int]:
        with counters.work_item():
            if self._scanner is None:
                self._scanner = ShardScanner(self._job)
            records = self._scanner.run(number)
            counters.count("records_read", records)
        yield records


class ScanShards(beam.PTransform[beam.PCollection[int], beam.PCollection[int]]):
    """Numbers of work items -> the records in each, once its index files are written.

    Memory: a block of 8 MB, or one record where that is larger. Shards are read, and nothing else.
    """

    def __init__(self, job: InPlaceJob) -> None:
        super().__init__()
        self._job = job

    def expand(self, work_items: beam.PCollection[int]) -> beam.PCollection[int]:
        """Reads the shards of each work item."""
        return work_items | "ScanShard" >> beam.ParDo(_ScanShardsDoFn(self._job)).with_output_types(
            int
        )


def build_metadata(
    pipeline: beam.Pipeline, job: InPlaceJob, *, commit: CommitSpec
) -> beam.PCollection[dict[str, Any]]:
    """Applies the stages of the job; only numbers pass."""
    return (
        pipeline
        | "WorkItems" >> beam.Create(range(job.work_items), reshuffle=False)
        | "SpreadWorkItems" >> beam.Reshuffle()
        | "Scan" >> ScanShards(job)  # records in a work item
        | "SumRecords" >> beam.CombineGlobally(sum)
        | "CommitDataset" >> CommitDataset(job, commit)
    )
