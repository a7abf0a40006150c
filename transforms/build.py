"""Build: one output shard per task, from the runs' ranges of hashes that it covers.

A shard is made block by block: a block's pieces are read from all runs, made into examples,
shuffled by their keys, encoded, framed and appended. What a worker holds is one block, however
large the shard.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from typing import IO, Any

import apache_beam as beam
import google_crc32c
import numpy as np

from recordmill.records.encoding import encode_batch
from recordmill.records.errors import RunError
from recordmill.records.framing import index_lines
from recordmill.records.manifest import ShardInfo
from recordmill.records.shards import ShardName
from recordmill.transforms import files
from recordmill.transforms.job import TextJob, fail, read_json, read_runs, write_json
from recordmill.transforms.lines import Int64s
from recordmill.transforms.pieces import Pieces
from recordmill.transforms.plan import RunTree
from recordmill.transforms.runs import Run, RunReader, decode_pieces, id_words
from recordmill.transforms.shard_plan import SplitPlan, read_shard_plan
from recordmill.transforms.tasks import Task

BLOCK_TOKENS = 1 << 21
MIN_PARTNER_TOKENS = 1 << 20
_SPOOLS_BYTES = 1 << 26  # read ahead from object storage, all runs together

Range = tuple[int, int]


def merge_ranges(ranges: list[Range]) -> list[Range]:
    """Returns the union of half-open ranges, in order and apart from each other."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


class _Compressor:
    """Bytes as they go to the file; equal input gives equal output, without a time in the
    header."""

    def __init__(self, compression: str) -> None:
        wbits = {"": 0, "ZLIB": 15, "GZIP": 31}[compression]
        self._zlib = zlib.compressobj(6, zlib.DEFLATED, wbits) if wbits else None

    def add(self, data: bytes) -> bytes:
        return self._zlib.compress(data) if self._zlib else data

    def end(self) -> bytes:
        return self._zlib.flush() if self._zlib else b""


class _ShardFile:
    """A shard being written: counts, checksum and index lines fall out of the same pass."""

    def __init__(self, handle: IO[bytes], index: IO[bytes] | None, compression: str) -> None:
        self._handle = handle
        self._index = index
        self._compressor = _Compressor(compression)
        self._crc = 0
        self.file_bytes = 0
        self.record_bytes = 0
        self.records = 0
        self.index_bytes = 0
        self.index_crc = 0

    def _write(self, data: bytes) -> None:
        self._crc = google_crc32c.extend(self._crc, data)
        self._handle.write(data)
        self.file_bytes += len(data)

    def add(self, buffer: Any, offsets: Int64s) -> None:
        self._write(self._compressor.add(buffer.tobytes()))
        if self._index is not None:
            lines = index_lines(offsets, self.record_bytes)
            self._index.write(lines)
            self.index_bytes += len(lines)
            self.index_crc = google_crc32c.extend(self.index_crc, lines)
        self.record_bytes += int(offsets[-1])
        self.records += len(offsets) - 1

    def close(self) -> None:
        self._write(self._compressor.end())

    def info(self, name: ShardName) -> ShardInfo:
        return ShardInfo(
            name.split, name.index, name.count, self.records, self.file_bytes, self.record_bytes,
            self._crc,
        )  # fmt: skip


class _Builder:
    """Builds shards one after the other."""

    def __init__(self, job: TextJob, tree: RunTree) -> None:
        self._job = job
        self._tree = tree
        self._task: Task = job.load_task()
        self._wide = id_words(len(self._task.vocabulary))
        self._plans = read_shard_plan(job)
        self._runs: dict[int, list[Run]] = {}

    def build(self, split: int, shard: int) -> ShardInfo:
        """Writes a shard, its index and its description unless they are there."""
        plan = self._plans[split]
        name = ShardName(plan.name, shard, plan.shards)
        done = self._job.done_path(name)
        path = files.join(self._job.staging, "shards", name.path)
        if files.exists(done):
            return ShardInfo(**read_json(done)["shard"])
        counts: Counter[str] = Counter()
        lengths = np.zeros(0, np.int64)
        partial = self._job.partial_folder
        with ExitStack() as stack:
            handle = stack.enter_context(files.writing(path, partial))
            index = None
            if not self._job.compression:
                index = stack.enter_context(files.writing(self._job.index_path(name), partial))
            shard_file = _ShardFile(handle, index, self._job.compression)
            for pieces, chosen, copies in self._blocks(split, shard):
                for batch in self._task.examples(pieces, chosen, copies):
                    encoded = encode_batch(self._task.schema, batch.columns)
                    shard_file.add(encoded.buffer, encoded.offsets)
                    counts.update(batch.counts)
                    lengths = add_counts(lengths, np.bincount(batch.lengths))
            shard_file.close()
        size = files.size(path)
        if size != shard_file.file_bytes:
            raise RunError(
                f"{path} has {size} bytes where {shard_file.file_bytes} were written; check the "
                "storage and run the same command again"
            )
        info = shard_file.info(name)
        content: dict[str, Any] = {
            "shard": asdict(info),
            "statistics": {"counts": dict(counts), "lengths": lengths.tolist()},
        }
        if index is not None:
            content["index"] = [shard_file.index_bytes, shard_file.index_crc]
        write_json(done, content)
        return info

    def _blocks(self, split: int, shard: int) -> Iterator[tuple[Pieces, Int64s, Int64s]]:
        """Yields pieces, which of them to use, and in which copy."""
        plan = self._plans[split]
        copies = self._task.copies
        blocks = max(1, -(-plan.tokens * copies // (plan.shards * BLOCK_TOKENS)))
        whole = plan.shards * blocks * copies
        readers: dict[tuple[int, int], list[RunReader]] = {}
        for block in range(blocks):
            begin = (shard * blocks + block) * copies
            wanted = [
                list(plan.ranges(begin, begin + copies, whole, copy * plan.shards * blocks))
                for copy in range(copies)
            ]
            loaded = [r for ranges in wanted for r in ranges] + self._partners(plan, begin, whole)
            pieces = self._load(split, merge_ranges(loaded), readers)
            hashes = pieces.hashes
            chosen, copy_of = [], []
            for copy, ranges in enumerate(wanted):
                for low, high in ranges:
                    inside = (hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))
                    chosen.append(np.flatnonzero(inside))
                    copy_of.append(np.full(len(chosen[-1]), copy, np.int64))
            if chosen:
                yield pieces, np.concatenate(chosen), np.concatenate(copy_of)

    def _partners(self, plan: SplitPlan, begin: int, whole: int) -> list[Range]:
        """Returns the ranges that random second segments come from, beyond the block itself.

        The range begins where the block does, so the sample is another one for every block.
        """
        if not self._task.wants_partners:
            return []
        width = min(whole, -(-MIN_PARTNER_TOKENS * whole // max(plan.tokens, 1)))
        return list(plan.ranges(begin, begin + width, whole, 0))

    def _load(
        self, split: int, ranges: list[Range], readers: dict[tuple[int, int], list[RunReader]]
    ) -> Pieces:
        """Reads the pieces of some ranges from all runs, in order of (hash, document)."""
        slices, lows, highs = [], [], []
        spool_bytes = _SPOOLS_BYTES // (len(ranges) * self._tree.groups(self._tree.levels) or 1)
        for place, (low, end) in enumerate(ranges):
            high = end - 1
            for number in self._tree.final_runs(low, high):
                if (number, place) not in readers:
                    readers[number, place] = [
                        RunReader(run, split, spool_bytes) for run in self._of_task(number)
                    ]
                for reader in readers[number, place]:
                    data = reader.read(low, high)
                    if len(data):
                        slices.append(data)
                        lows.append(low)
                        highs.append(high)
        return sort_pieces(decode_pieces(slices, lows, highs, self._wide))

    def _of_task(self, number: int) -> list[Run]:
        if number not in self._runs:
            if len(self._runs) > 4096:
                self._runs.clear()
            self._runs[number] = read_runs(self._job, self._tree.levels, number, histograms=False)
        return self._runs[number]


def add_counts(total: Int64s, more: Int64s) -> Int64s:
    """Adds two histograms of which one may be longer."""
    longer, shorter = (total, more) if len(total) >= len(more) else (more, total)
    longer = longer.copy()
    longer[: len(shorter)] += shorter
    return longer


def sort_pieces(pieces: Pieces) -> Pieces:
    """Orders pieces by (hash, document); tokens stay where they are."""
    order = np.lexsort((pieces.documents, pieces.hashes))
    counts = np.diff(pieces.sentence_splits)
    starts = pieces.sentence_splits[:-1][order]
    splits = np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64)
    index = np.repeat(starts - splits[:-1], counts[order]) + np.arange(splits[-1])
    return Pieces(
        pieces.hashes[order], pieces.documents[order], pieces.token_starts[order],
        pieces.token_counts[order], splits, pieces.sentence_lengths[index], pieces.ids,
    )  # fmt: skip


class _BuildDoFn(beam.DoFn):
    def __init__(self, job: TextJob, tree: RunTree) -> None:
        self._job = job
        self._tree = tree
        self._examples = beam.metrics.Metrics.counter("recordmill", "examples_written")
        self._builder: _Builder | None = None

    def process(self, shard: tuple[int, int]) -> Iterator[int]:
        # Not in setup: the plan of the shards is written by the stage before.
        if self._builder is None:
            self._builder = _Builder(self._job, self._tree)
        try:
            info = self._builder.build(*shard)
        except RunError as error:
            fail(self._job, error)
        self._examples.inc(info.records)
        yield info.records


class BuildShards(beam.PTransform[beam.PCollection[tuple[int, int]], beam.PCollection[int]]):
    """(split, shard) -> the number of examples in it, once it is written, verified and renamed.

    Memory: a block of 2 million tokens and its examples, whatever the size of the shard.
    Deterministic: bytes depend on the runs' pieces, not on how they are spread over runs. Building
    a shard twice, or two copies of it at once, changes nothing.
    """

    def __init__(self, job: TextJob, tree: RunTree) -> None:
        super().__init__()
        self._job = job
        self._tree = tree

    def expand(self, shards: beam.PCollection[tuple[int, int]]) -> beam.PCollection[int]:
        """Writes a shard file per element."""
        return shards | "BuildShard" >> beam.ParDo(
            _BuildDoFn(self._job, self._tree)
        ).with_output_types(int)
