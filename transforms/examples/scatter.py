"""Read existing records, give each a key, and write them to run files in order of it.

Each work item writes its run files and then its description. If the description exists, the work
item is done. Only the numbers of work items pass to the next stage.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.content_hash import hash_contents
from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES
from recordmill.records.hashing import U64, combine, fingerprint64, mix64, seed_for
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.dataset.error_budget import RejectList
from recordmill.transforms.dataset.splits import choose_splits
from recordmill.transforms.dataset.stages import Done
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_state import ReadResult
from recordmill.transforms.examples.record_changes import CHANGES, RecordChanges
from recordmill.transforms.examples.record_source import (
    BLOCK_BYTES,
    RecordBatch,
    RecordFileRange,
)
from recordmill.transforms.examples.record_writer import RunWriter
from recordmill.transforms.examples.run_records import KeyedRecords
from recordmill.transforms.examples.schema_survey import SchemaSurvey
from recordmill.transforms.examples.table_records import read_batches
from recordmill.transforms.sources.changes import reading
from recordmill.transforms.sources.input_stage import InputStage
from recordmill.transforms.sources.work_item_files import read_ranges
from recordmill.transforms.storage.buffers import Arena, BlockPool

ORDER_PURPOSE, WEIGHT_PURPOSE = "records", "weights"
_CARRIED_BYTES = 1 << 16  # of a record that is cut at the end of a block
_TO_UNIT = 1.0 / (1 << 53)
_POSITION_BITS = np.uint64(40)


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """The sizes in which records are handled; tests inject small ones.

    Attributes:
      run_bytes: of a run file, about.
      block_bytes: that are read at once.
    """

    run_bytes: int = 1 << 26
    block_bytes: int = BLOCK_BYTES


RECORD_LIMITS = RecordLimits()


@dataclass(slots=True)
class _ReadProgress:
    """The numbers of a work item so far."""

    writer: RunWriter
    rejects: RejectList
    counts: Counter[str] = field(default_factory=Counter)
    survey: SchemaSurvey = field(default_factory=SchemaSurvey)
    contents: dict[str, ContentSample] = field(default_factory=dict)


class RecordScatterer:
    """Runs work items of scatter one after the other; not thread-safe."""

    def __init__(
        self, job: ExamplesJob, limits: RecordLimits = RECORD_LIMITS, input_bytes: int = 0
    ) -> None:
        self._job = job
        self._limits = limits
        # A record has at least a byte, once it is unpacked.
        delimited = job.tables.delimited
        self._most_inputs = input_bytes and delimited.most_unpacked_bytes(input_bytes)
        self._split_names = [split.name for split in job.splits]
        self._shares = [split.share for split in job.splits]
        self._seed = np.uint64(seed_for(job.seed, ORDER_PURPOSE))
        self._weight_seed = np.uint64(seed_for(job.seed, WEIGHT_PURPOSE))
        self._changes = RecordChanges(job) if job.changes_records else None
        self.drop_buffers()

    def drop_buffers(self) -> None:
        """Gives back the memory that work items share."""
        self._arena = Arena()
        self._pool = BlockPool(self._limits.block_bytes + _CARRIED_BYTES)

    def run(self, number: int) -> ReadResult:
        """Does work item `number` unless it is done; returns its description."""
        job, workspace = self._job, self._job.workspace
        done = job.read_result(number)
        if done is not None and self._is_whole(number, done):
            return done
        sources = read_ranges(workspace.inputs_folder, number, RecordFileRange)
        writer = RunWriter(
            partial(_run_path, job.run_path(0, number)), len(self._shares), workspace.token,
            self._limits.run_bytes, job.records.deduplicate, self._arena,
        )  # fmt: skip
        with RejectList(job, number, most_inputs=self._most_inputs) as rejects:
            progress = _ReadProgress(writer, rejects)
            for source in sources:
                workspace.check_own()
                with reading(source.path, source.size, source.modified_ns):
                    batches = read_batches(source, job.tables, self._limits.block_bytes, self._pool)
                    if self._changes is not None:
                        batches = self._changes.apply(batches, source, progress.counts)
                    for batch in batches:
                        self._add(batch, source, progress)
            writer.write()
            rejected = rejects.write()
        for sample in progress.contents.values():
            sample.keep_least()
        result = ReadResult(
            runs=tuple(writer.runs),
            counts=_counts(progress.counts) | {"duplicates": writer.duplicates},
            records=tuple(writer.records),
            sizes=tuple(writer.sizes),
            rejected=dict(rejects.reasons),
            rejected_file=(rejected.size_bytes, rejected.crc32c),
            survey=progress.survey,
            contents=dict(sorted(progress.contents.items())),
        )
        workspace.write_state(job.description_path(0, number), result)
        return result

    def _is_whole(self, number: int, result: ReadResult) -> bool:
        """Tells whether what a finished work item wrote is still there."""
        rejects = self._job.workspace.holds_rejects(number, result.rejected_file[0])
        return rejects and self._job.holds_run_files(0, result.runs)

    def _add(self, batch: RecordBatch, source: RecordFileRange, progress: _ReadProgress) -> None:
        progress.rejects.add(batch.rejects)
        if not len(batch.begins):
            return
        progress.counts["records_read"] += len(batch.begins)
        if not self._job.given_schema:
            progress.survey.add(batch.data, batch.begins, batch.ends)
        contents = hash_contents(batch.data, batch.begins + HEADER_BYTES, batch.ends - FOOTER_BYTES)
        groups = contents[:, 0] if batch.groups is None else batch.groups
        keys, ties = self._keys(batch, source, contents, groups)
        records = KeyedRecords(batch.data, batch.begins, batch.ends, keys, ties)
        splits = self._splits(source, groups)
        self._sample_contents(batch, source, contents[:, 0], splits, progress)
        if source.weight != 1:
            records, splits = self._weighted(records, splits, source.weight, progress)
        for split in range(len(self._shares)):
            mine = splits == split
            if mine.all():
                progress.writer.add(split, records)
            elif mine.any():
                progress.writer.add(split, records.take(mine))

    def _keys(
        self, batch: RecordBatch, source: RecordFileRange, contents: U64, groups: U64
    ) -> tuple[U64, U64]:
        """Returns the key that decides the position of each record, and a tie-breaker."""
        if self._job.records.deduplicate or self._job.workspace.of_pipeline:
            return mix64(groups ^ self._seed), contents[:, 1]
        if batch.keys is not None:
            return batch.keys, contents[:, 1]
        positions = batch.positions
        if self._job.records.order == "input":
            return _input_keys(source, positions, batch.extent), _input_ties(source, positions)
        name = np.full(len(positions), fingerprint64(source.name.encode()), np.uint64)
        keys = combine(name, positions.astype(np.uint64))
        if batch.numbers is not None:  # each of several has a position of its own
            keys = np.where(batch.numbers, combine(keys, batch.numbers.astype(np.uint64)), keys)
        return mix64(keys ^ self._seed), contents[:, 1]

    def _splits(self, source: RecordFileRange, groups: U64) -> Int64s:
        """Returns `[n] int64`: the split of each record; those of one group are in one split."""
        if source.split:
            return np.full(len(groups), self._split_names.index(source.split), np.int64)
        if len(self._shares) == 1:
            return np.zeros(len(groups), np.int64)
        return choose_splits(groups, self._shares)

    def _sample_contents(
        self,
        batch: RecordBatch,
        source: RecordFileRange,
        contents: U64,
        splits: Int64s,
        progress: _ReadProgress,
    ) -> None:
        """Samples the records of each split, where not their hash decides the split."""
        if len(self._shares) == 1 or not source.split:
            return
        sample = progress.contents.setdefault(source.split, ContentSample())
        sample.add_documents(contents, source.name, batch.positions)

    def _weighted(
        self, records: KeyedRecords, splits: Int64s, weight: float, progress: _ReadProgress
    ) -> tuple[KeyedRecords, Int64s]:
        """Returns each record as often as its weight says; a fraction is drawn by its key."""
        whole = int(weight)
        draws = mix64(combine(records.keys, records.ties) ^ self._weight_seed)
        drawn = (draws >> np.uint64(11)).astype(np.float64) * _TO_UNIT < weight - whole
        copies = whole + drawn.astype(np.int64)
        progress.counts["sampled_out"] += int((copies == 0).sum())
        progress.counts["repeated"] += int(np.maximum(copies - 1, 0).sum())
        index = np.repeat(np.arange(len(copies)), copies)
        first = np.repeat(np.cumsum(copies) - copies, copies)
        copy = (np.arange(len(index)) - first).astype(np.uint64)
        chosen = records.take(index)
        if self._job.records.order == "shuffle":  # a copy has a position of its own
            moved = np.where(copy > 0, combine(chosen.keys, copy), chosen.keys)
            chosen = KeyedRecords(chosen.data, chosen.begins, chosen.ends, moved, chosen.ties)
        return chosen, splits[index]


def _counts(found: Counter[str]) -> dict[str, int]:
    """Returns the counts of a work item; records that were read are written, added or dropped."""
    counts = {name: found[name] for name in ("repeated", "sampled_out")}
    changes = {name: found[name] for name in CHANGES if found[name]}
    left_out = changes.get("dropped_where", 0) + changes.get("dropped_map", 0)
    read = found["records_read"] + left_out - changes.get("records_added", 0)
    return counts | changes | {"records_read": read}


def _run_path(base: str, number: int) -> str:
    return f"{base}-{number}.bin"


def _input_keys(source: RecordFileRange, positions: Int64s, extent: int) -> U64:
    """Returns keys that rise with the input: its share that lies before each record.

    Args:
      source: of the records.
      positions: `[n] int64`.
      extent: of the positions in the file; 0 for its size.

    The decompressed size of a compressed file is not known, so the share of it approaches 1.
    """
    share = positions / max(extent or source.size, 1)
    if source.compression:
        share = 1 - 1 / (1 + share / 4)
    total = source.begin_share + np.minimum(share, 1) * (source.end_share - source.begin_share)
    return np.minimum(total * 2.0**64, 2.0**64 - 2048).astype(np.uint64)


def _input_ties(source: RecordFileRange, positions: Int64s) -> U64:
    """Returns numbers that rise with the input, where its share is too coarse."""
    return (np.uint64(source.ordinal) << _POSITION_BITS) + positions.astype(np.uint64)


class ScatterRecords(InputStage[ExamplesJob]):
    """Writes the run files of each work item.

    Memory: one run file's records twice, whatever the size of the input. Doing a work item twice,
    or twice at once, writes the same bytes under the same name.
    """

    name = "Scatter"
    phase = "read"

    @cached_property
    def _scatterer(self) -> RecordScatterer:
        return RecordScatterer(self.job, self._limits, self._input_bytes)

    @property
    def results_folder(self) -> str:
        """The folder of run files."""
        return self.job.runs_folder(0)

    def do(self, item: int) -> Done:
        """Reads the records of a work item."""
        result = self._scatterer.run(item)
        read = {"records_read": result.counts["records_read"]}
        return Done(counts=read | counters.of_rejects(result.rejected))

    def release(self) -> None:
        """Frees the buffers of records."""
        if "_scatterer" in self.__dict__:
            self._scatterer.drop_buffers()
