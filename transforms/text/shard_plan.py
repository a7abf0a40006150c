"""Plan the shards of a text job: their number, and the ranges of hashes of each.

A position in a split is a share of its expected bytes: position 0.25 is the hash below which a
quarter of them lies. Shard s of S holds positions [s / S, (s + 1) / S). Copy c of C of a chunk is
moved by c / C, so that the copies of a text are spread over the whole split and no shard repeats
itself.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import google_crc32c
import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.errors import RunError
from recordmill.transforms.dataset.content_sample import ContentSample, shared_contents
from recordmill.transforms.dataset.error_budget import check_budget, fail
from recordmill.transforms.dataset.labels import check_class_count, class_names, first_fraction
from recordmill.transforms.dataset.run_state import DamagedStateError
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.storage import files
from recordmill.transforms.text.descriptions import (
    PlannedSplit,
    ScatterResult,
    ShardPlan,
)
from recordmill.transforms.text.finished_runs import read_run_files
from recordmill.transforms.text.job import TextJob
from recordmill.transforms.text.merge_tree import MergeTree
from recordmill.transforms.text.regroup import drop_runs
from recordmill.transforms.text.run_files import CELL_BITS


@dataclass(frozen=True, slots=True)
class SplitShards:
    """The shards of a split.

    Attributes:
      name: of the split.
      shards: their number.
      chunks, tokens: in the split, a copy counted once.
      cells, sums: `[num_cells]`: leading bits of hashes, and the expected bytes up to and with
        each.
    """

    name: str
    shards: int
    chunks: int
    tokens: int
    cells: Int64s
    sums: Int64s

    def hash_at(self, numerator: int, denominator: int) -> int:
        """Returns the hash at position numerator / denominator, in [0, 2**64].

        Integers only: neighbours agree on their common bound to the last bit.
        """
        if numerator <= 0:
            return 0
        if numerator >= denominator:
            return 1 << 64
        total = int(self.sums[-1])
        # sums[i - 1] <= total * numerator / denominator < sums[i]
        i = int(np.searchsorted(self.sums, total * numerator // denominator, side="right"))
        before = int(self.sums[i - 1]) if i else 0
        cell_bytes = int(self.sums[i]) - before
        inside = total * numerator - before * denominator
        width = 1 << (64 - CELL_BITS)
        return (int(self.cells[i]) << (64 - CELL_BITS)) + inside * width // (
            cell_bytes * denominator
        )

    def ranges(
        self, begin: int, end: int, denominator: int, shift: int
    ) -> Iterator[tuple[int, int]]:
        """Yields hash ranges `[low, high)` of positions begin to end, less shift, around the end.

        All positions are multiples of 1 / denominator.
        """
        begin, end = (begin - shift) % denominator, (begin - shift) % denominator + end - begin
        for low, high in ((begin, min(end, denominator)), (0, end - denominator)):
            bounds = self.hash_at(low, denominator), self.hash_at(high, denominator)
            if low < high and bounds[0] < bounds[1]:
                yield bounds


def _sums_path(job: TextJob) -> str:
    return files.join(job.workspace.work, "shards.npz")


def plan_shards(job: TextJob, tree: MergeTree) -> list[SplitShards]:
    """Adds up the results of scatter, and decides the shards.

    Writes the decision, or reads an existing one: a restarted job keeps it.

    Raises:
      RunError: too many rejects, nothing to write, or fewer chunks than shards.
    """
    known = job.workspace.read_state(job.shard_plan_path, ShardPlan.from_json)
    if known is None or _read_sums(job, known) is None:
        totals = _Totals(len(job.splits))
        for number in range(tree.work_items):
            result = job.read_scatter_result(number)
            if result is None:
                raise RunError(
                    f"{job.description_path(0, number)} is missing or damaged; run the same "
                    "command again"
                )
            totals.add(number, result)
        check_budget(job, accepted=totals.documents_read, reasons=totals.rejected)
        histograms = _sum_histograms(job, tree)
        plan = _decide(job, totals, [int(row.sum()) for row in histograms])
        plan = replace(plan, sums=_write_sums(job, histograms))
        job.workspace.write_state(job.shard_plan_path, plan.to_json())
    return read_shard_plan(job)


def read_shard_plan(job: TextJob) -> list[SplitShards]:
    """Reads what `plan_shards` decided.

    Raises:
      DamagedStateError: it is missing or damaged.
    """
    plan = job.read_shard_plan()
    content = _read_sums(job, plan)
    if content is None:
        raise DamagedStateError(f"{_sums_path(job)} is damaged; start anew with --overwrite")
    with np.load(io.BytesIO(content)) as sums:
        return [
            SplitShards(
                split.name, split.shards, split.chunks, split.tokens,
                sums[f"cells_{i}"], sums[f"sums_{i}"],
            )
            for i, split in enumerate(plan.splits)
        ]  # fmt: skip


def _read_sums(job: TextJob, plan: ShardPlan) -> bytes | None:
    """Returns the file of sums that a shard plan goes with, None where it is not there."""
    try:
        content = files.read_bytes(_sums_path(job))
    except FileNotFoundError:
        return None
    return content if (len(content), google_crc32c.value(content)) == plan.sums else None


class _Totals:
    """The sums over all work items of scatter; chunks and tokens are those of each split."""

    def __init__(self, splits: int) -> None:
        self.chunks = [0] * splits
        self.tokens = [0] * splits
        self.documents_read = 0
        self.documents_used = 0
        self.documents_added = 0
        self.rejected: Counter[str] = Counter()
        self.labels: set[str] = set()
        self.contents: dict[str, ContentSample] = {}
        self.rejected_files: dict[int, tuple[int, int]] = {}
        self.dropped: dict[str, list[int]] = {}
        self.dropped_files: dict[int, tuple[int, int]] = {}

    def add(self, number: int, result: ScatterResult) -> None:
        for split, (chunks, tokens) in enumerate(zip(result.chunks, result.tokens, strict=True)):
            self.chunks[split] += chunks
            self.tokens[split] += tokens
        self.documents_read += result.documents_read
        self.documents_used += result.documents_used
        self.documents_added += result.documents_added
        self.rejected.update(result.rejected)
        self.labels.update(result.labels)
        for name, sample in result.contents.items():
            known = self.contents.setdefault(name, ContentSample())
            known.merge(sample)
            known.keep_least()
        if result.rejected:
            self.rejected_files[number] = result.rejected_file
        for reason, counts in result.dropped.items():
            known_counts = self.dropped.get(reason, [0] * len(counts))
            self.dropped[reason] = [a + b for a, b in zip(known_counts, counts, strict=True)]
        if result.dropped_file[0]:
            self.dropped_files[number] = result.dropped_file


def _sum_histograms(job: TextJob, tree: MergeTree) -> Int64s:
    """Returns `[num_splits, 2**CELL_BITS] int64`: expected bytes by the leading bits of hashes."""
    sums = np.zeros((len(job.splits), 1 << CELL_BITS), np.int64)
    for number in range(tree.run_count(tree.levels)):
        for run in read_run_files(job, tree.levels, number):
            for split, row in zip(run.splits, sums, strict=True):
                row[split.cells] += split.output_bytes
    return sums


def _write_sums(job: TextJob, histograms: Int64s) -> tuple[int, int]:
    """Writes the cells that are not empty, and the sum of bytes up to and with each.

    Returns the size and crc32c of the file.
    """
    arrays: dict[str, Any] = {}
    for i, row in enumerate(histograms):
        cells = np.flatnonzero(row)
        arrays |= {f"cells_{i}": cells, f"sums_{i}": np.cumsum(row[cells])}
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    content = packed.getvalue()
    files.write_bytes(_sums_path(job), content)
    return len(content), google_crc32c.value(content)


def _decide(job: TextJob, totals: _Totals, split_bytes: list[int]) -> ShardPlan:
    """Decides the number of shards of each split from its expected bytes."""
    empty = [split.name for split, size in zip(job.splits, split_bytes, strict=True) if not size]
    if empty:
        raise RunError(
            f"no text for split {', '.join(empty)}: {totals.documents_read} documents read, "
            f"{totals.documents_used} with tokens"
            + "".join(f", {sum(n)} dropped as {reason}" for reason, n in totals.dropped.items())
            + "; check --documents and --splits"
        )
    shards = count_shards(split_bytes, job.splits, job.shards)
    for i, spec in enumerate(job.splits):
        most = totals.chunks[i] * job.copies[i]  # no shard may be empty
        if spec.num_shards is not None and shards[i] > most:
            raise RunError(
                f"{spec.name} has text for at most {most} shards, {shards[i]} were asked for; set "
                "a smaller --num_shards and --overwrite"
            )
        shards[i] = min(shards[i], most)
    return ShardPlan(
        splits=tuple(
            PlannedSplit(spec.name, shards[i], totals.chunks[i], totals.tokens[i], split_bytes[i])
            for i, spec in enumerate(job.splits)
        ),
        documents_read=totals.documents_read,
        documents_used=totals.documents_used,
        rejected=dict(totals.rejected),
        rejected_files=totals.rejected_files,
        classes=_classes(job, totals.labels),
        shared_contents=tuple(shared_contents(totals.contents, "documents")),
        dropped=totals.dropped,
        dropped_files=totals.dropped_files,
        documents_added=totals.documents_added,
    )


def _classes(job: TextJob, labels: set[str]) -> tuple[str, ...]:
    """Returns the names of class 0, 1, …: those of --labels, or those of the labels that occur.

    Raises:
      RunError: the labels are numbers to be predicted, or too many.
    """
    label = job.documents.row.label
    if label is None or label.is_number or label.names:
        return label.names if label else ()
    check_class_count(label.name, labels)
    fraction = first_fraction(labels)
    if fraction:
        raise RunError(
            f"--labels=number is needed where labels are numbers to be predicted; {len(labels)} "
            f"different ones occur in --label_field={label.name}, such as {fraction}; add it and "
            "--overwrite"
        )
    return class_names(labels)


class _PlanShardsDoFn(beam.DoFn):
    def __init__(self, job: TextJob, tree: MergeTree) -> None:
        self._job = job
        self._tree = tree

    def process(self, finished: int) -> Iterator[tuple[int, int]]:
        del finished  # its arrival means that all run files are written
        try:
            splits = plan_shards(self._job, self._tree)
        except RunError as error:
            fail(self._job, error)
        if self._tree.levels:
            drop_runs(self._job, self._tree.levels - 1)
        for number, split in enumerate(splits):
            for shard in range(split.shards):
                yield number, shard


class PlanShards(beam.PTransform[beam.PCollection[int], beam.PCollection[tuple[int, int]]]):
    """Numbers of finished run files -> (split, shard) of every shard to build.

    One worker decides once, when all run files are written; a restarted job keeps the decision.
    """

    def __init__(self, job: TextJob, tree: MergeTree) -> None:
        super().__init__()
        self._job = job
        self._tree = tree

    def expand(self, runs: beam.PCollection[int]) -> beam.PCollection[tuple[int, int]]:
        """Waits for all run files and reads their tails."""
        do_fn = _PlanShardsDoFn(self._job, self._tree)
        return (
            runs
            | "AwaitRuns" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
            | "Decide" >> beam.ParDo(do_fn).with_output_types(tuple[int, int])
            | "SpreadShards" >> beam.Reshuffle()
        )
