"""Build: one output shard per task, from the runs' ranges of hashes that it covers.

A shard is made block by block: a block's pieces are read from all runs, made into examples,
shuffled by their keys, encoded, framed and appended. What a worker holds is one block, however
large the shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from recordmill.records.encoding import encode_batch
from recordmill.records.errors import RunError
from recordmill.records.manifest import ShardInfo
from recordmill.records.shards import ShardName
from recordmill.transforms.job import fail
from recordmill.transforms.lines import Int64s
from recordmill.transforms.pieces import Pieces
from recordmill.transforms.plan import RunTree
from recordmill.transforms.runs import Run, RunReader, decode_pieces, id_words
from recordmill.transforms.shard_files import ShardWriter, finished_shard, write_shard
from recordmill.transforms.shard_plan import SplitPlan, read_shard_plan
from recordmill.transforms.tasks import Task
from recordmill.transforms.text_job import TextJob, add_counts, read_runs

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


class ShardBuilder:
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

        def fill(writer: ShardWriter) -> dict[str, Any]:
            counts: Counter[str] = Counter()
            lengths = np.zeros(0, np.int64)
            for pieces, chosen, copies in self._blocks(split, shard):
                for batch in self._task.examples(pieces, chosen, copies):
                    encoded = encode_batch(self._task.schema, batch.columns)
                    writer.add(encoded.buffer, encoded.offsets)
                    counts.update(batch.counts)
                    lengths = add_counts(lengths, np.bincount(batch.lengths))
            return {"counts": dict(counts), "lengths": lengths.tolist()}

        return finished_shard(self._job, name) or write_shard(self._job, name, fill)

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
        self._builder: ShardBuilder | None = None

    def process(self, shard: tuple[int, int]) -> Iterator[int]:
        # Not in setup: the plan of the shards is written by the stage before.
        if self._builder is None:
            self._builder = ShardBuilder(self._job, self._tree)
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
