"""Build: make each output shard from the ranges of keys that it covers in all run files.

A shard is made block by block: the records of a block are read from all run files, ordered by their
keys and appended as they are. A worker holds one block, however large the shard.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recordmill.records.codec.framing import OVERHEAD_BYTES
from recordmill.records.manifest import ShardInfo
from recordmill.records.state import MAX_INT64
from recordmill.transforms.dataset.shard_writer import ShardWriter, finished_shard, write_shard
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_shard_plan import read_record_plan
from recordmill.transforms.examples.examples_state import ShardRecords
from recordmill.transforms.examples.run_records import (
    KeyedRecords,
    OrderedRecords,
    find_in_range,
    order_records,
)
from recordmill.transforms.examples.sort_keys import settle
from recordmill.transforms.shuffle.finished_runs import made_anew, read_run_files
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.run_files import RunFile, RunFileReader
from recordmill.transforms.storage.buffers import Arena

BLOCK_BYTES = 1 << 25
_SPOOLS_BYTES = 1 << 26  # read ahead from object storage, all run files together
_MAX_TAILS = 4096  # of run files, kept in memory

_Readers = dict[int, list[RunFileReader]]  # run -> its readers


class RecordShardBuilder:
    """Builds shards one after the other.

    Memory: a block of 32 MB and its copy, whatever the size of the shard.
    """

    def __init__(self, job: ExamplesJob, tree: MergeTree, block_bytes: int = BLOCK_BYTES) -> None:
        self._job = job
        self._tree = tree
        self._block_bytes = block_bytes
        self._splits = read_record_plan(job)
        self._runs: dict[int, list[RunFile]] = {}
        self._arena = Arena()  # a block and its copy
        self._key_splits = job.read_key_splits() if job.records.key else None

    def build(self, split: int, shard: int) -> ShardInfo:
        """Writes a shard, its index and its description, unless they exist already."""
        planned = self._splits[split]
        name = self._job.shard_name(planned.name, shard, planned.shards)

        def fill(writer: ShardWriter) -> ShardRecords:
            duplicates, total, least, most = 0, 0, MAX_INT64, 0
            for block in self._blocks(split, shard):
                duplicates += block.repeats
                sizes = np.diff(block.offsets) - OVERHEAD_BYTES
                if not len(sizes):
                    continue
                writer.add(block.data, block.offsets)
                total += int(sizes.sum())
                least = min(least, int(sizes.min()))
                most = max(most, int(sizes.max()))
            return ShardRecords(
                duplicates=duplicates, bytes=total, least_bytes=min(least, most), most_bytes=most
            )

        return finished_shard(self._job, name) or write_shard(self._job, name, fill)

    def _blocks(self, split: int, shard: int) -> Iterator[OrderedRecords]:
        """Yields the records of a shard in order of their keys; each block goes with the next."""
        planned = self._splits[split]
        blocks = max(1, -(-planned.size // (planned.shards * self._block_bytes)))
        denominator = planned.shards * blocks
        readers: _Readers = {}
        for block in range(blocks):
            begin = shard * blocks + block
            for low, end in planned.ranges(begin, begin + 1, denominator, 0):
                self._arena.reset()
                ordered = order_records(
                    self._load(split, low, end - 1, readers), with_header=False,
                    without_repeats=self._job.records.deduplicate, arena=self._arena,
                )  # fmt: skip
                yield settle(ordered, self._key_splits) if self._key_splits else ordered

    def _load(self, split: int, low: int, high: int, readers: _Readers) -> list[KeyedRecords]:
        """Reads the records of a range of keys from all runs."""
        spool_bytes = _SPOOLS_BYTES // (self._tree.group_count(self._tree.levels) or 1)
        found = []
        for number in self._tree.runs_to_build_from(low, high):
            if number not in readers:
                readers[number] = [
                    RunFileReader(run, split, spool_bytes) for run in self._run_files(number)
                ]
            with made_anew(self._job, self._tree.levels, number):
                parts = [reader.read(low, high, self._arena) for reader in readers[number]]
            found += [find_in_range(part, low, high) for part in parts if len(part)]
        return found

    def _run_files(self, number: int) -> list[RunFile]:
        """Returns the run files of run `number`, whose tails stay in memory for further shards."""
        if number not in self._runs:
            if len(self._runs) > _MAX_TAILS:
                self._runs.clear()
            self._runs[number] = read_run_files(
                self._job, self._tree.levels, number, histograms=False
            )
        return self._runs[number]
