"""The stages that make metadata of shards which stay where they are.

A work item is some whole files. It writes the index of each, and then its description: if that
exists, the file is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property

import google_crc32c

from recordmill.records.codec.checking import SchemaChecker
from recordmill.records.manifest import ShardInfo
from recordmill.transforms.dataset.shard_writer import (
    ShardDescription,
    holds_index,
    read_description,
)
from recordmill.transforms.dataset.stages import Done, Phase, Stage
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


class Scan(Stage[InPlaceJob]):
    """Reads the shards of each work item, and writes their indexes and descriptions.

    Memory: a block of 8 MB, or one record where that is larger. Shards are read, and nothing else.

    Args:
      job: with its work items.
      shards: the number of files, and input_bytes their size, for progress.
    """

    name = "Scan"

    def __init__(self, job: InPlaceJob, shards: int = 0, input_bytes: int = 0) -> None:
        super().__init__(job)
        self._shards = shards
        self._input_bytes = input_bytes

    @cached_property
    def _scanner(self) -> ShardScanner:
        return ShardScanner(self.job)

    def items(self) -> int:
        """Returns the number of work items."""
        return self.job.work_items

    def do(self, item: int) -> Done:
        """Reads some whole files."""
        records = self._scanner.run(item)
        return Done(records, {"records_read": records})

    def describe(self, item: int) -> str:
        """Returns the path of its first file."""
        return self.job.shards_of(item)[0].path

    def phases(self) -> Iterator[Phase]:
        """Yields the files that are described."""
        done = files.count(self.job.workspace.done_folder, ".json")
        yield Phase("read", done, self._shards, self._input_bytes)
