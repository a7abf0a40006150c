"""How many shards there are, and which hashes each is made of.

Positions in a split are shares of its expected bytes: position 0.25 is the hash below which a
quarter of them lies. Shard s of S holds positions [s / S, (s + 1) / S). Copy c of a piece stands c
/ C further on, so that the C copies of a text are spread over the whole split and no shard repeats
itself.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np

from recordmill.records.errors import RunError
from recordmill.transforms import files
from recordmill.transforms.job import (
    ShardSpec,
    SplitSpec,
    check_budget,
    fail,
    read_json,
    write_json,
)
from recordmill.transforms.lines import Int64s
from recordmill.transforms.plan import RunTree
from recordmill.transforms.regroup import drop_runs
from recordmill.transforms.runs import CELL_BITS
from recordmill.transforms.text_job import TextJob, read_runs

MIN_READER_SHARD_BYTES = 10_000_000
SHARDS_PER_READER = 10


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The shards of a split.

    Attributes:
      name: of the split.
      shards: their number.
      pieces, tokens: in the split, a copy counted once.
      cells, sums: `[num_cells]`: leading bits of hashes, and the expected bytes up to and with
        each.
    """

    name: str
    shards: int
    pieces: int
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
        weight = int(self.sums[i]) - before
        inside = total * numerator - before * denominator
        width = 1 << (64 - CELL_BITS)
        return (int(self.cells[i]) << (64 - CELL_BITS)) + inside * width // (weight * denominator)

    def ranges(
        self, begin: int, end: int, denominator: int, shift: int
    ) -> Iterator[tuple[int, int]]:
        """Yields hash ranges `[low, high)` of positions begin to end, less shift, around the end.

        All are in units of 1 / denominator.
        """
        begin, end = (begin - shift) % denominator, (begin - shift) % denominator + end - begin
        for low, high in ((begin, min(end, denominator)), (0, end - denominator)):
            bounds = self.hash_at(low, denominator), self.hash_at(high, denominator)
            if low < high and bounds[0] < bounds[1]:
                yield bounds


def count_shards(weights: list[int], splits: tuple[SplitSpec, ...], spec: ShardSpec) -> list[int]:
    """Returns the number of shards of each split.

    Where a number is given for the first split only, the others get theirs in proportion to their
    bytes.
    """
    if splits[0].num_shards is not None:
        unit = max(weights[0], 1) / splits[0].num_shards
        return [
            split.num_shards if split.num_shards is not None else max(1, round(weight / unit))
            for split, weight in zip(splits, weights, strict=True)
        ]
    if spec.num_readers is not None:
        most = max(1, weights[0] // MIN_READER_SHARD_BYTES)
        wanted = min(spec.num_readers * SHARDS_PER_READER, most)
        unit = max(weights[0] / wanted, MIN_READER_SHARD_BYTES)
    else:
        unit = float(spec.shard_bytes)
    return [max(1, round(weight / unit)) for weight in weights]


def _sums_path(job: TextJob) -> str:
    return files.join(job.work, "shards.npz")


def plan_shards(job: TextJob, tree: RunTree) -> list[SplitPlan]:
    """Adds up what the runs hold and decides the shards; writes the decision, or reads it again.

    Raises:
      RunError: too many rejects, nothing to write, or fewer pieces than shards.
    """
    if not files.exists(job.shard_plan_path):
        content, sums = _decide(job, tree)
        packed = io.BytesIO()
        np.savez(packed, **sums)
        files.write_bytes(_sums_path(job), packed.getvalue())
        write_json(job.shard_plan_path, content)
    return read_shard_plan(job)


def read_shard_plan(job: TextJob) -> list[SplitPlan]:
    """Reads what `plan_shards` decided."""
    with np.load(io.BytesIO(files.read_bytes(_sums_path(job)))) as sums:
        return [
            SplitPlan(
                split["name"], split["shards"], split["pieces"], split["tokens"],
                sums[f"cells_{i}"], sums[f"sums_{i}"],
            )
            for i, split in enumerate(read_json(job.shard_plan_path)["splits"])
        ]  # fmt: skip


def _decide(job: TextJob, tree: RunTree) -> tuple[dict[str, object], dict[str, Any]]:
    count = len(job.splits)
    pieces, tokens = [0] * count, [0] * count
    totals = {"documents_read": 0, "documents_used": 0}
    reasons: dict[str, int] = {}
    rejected_files = {}
    for number in range(tree.tasks):
        content = read_json(job.run_path(0, number) + ".json")
        for split in range(count):
            pieces[split] += content["pieces"][split]
            tokens[split] += content["tokens"][split]
        for name in totals:
            totals[name] += content[name]
        for reason, rejected in content["rejected"].items():
            reasons[reason] = reasons.get(reason, 0) + rejected
        if content["rejected"]:
            rejected_files[number] = content["rejected_file"]
    check_budget(job, accepted=totals["documents_read"], reasons=reasons)
    sums = np.zeros((count, 1 << CELL_BITS), np.int64)
    for number in range(tree.runs(tree.levels)):
        for run in read_runs(job, tree.levels, number):
            for split in range(count):
                sums[split][run.splits[split].cells] += run.splits[split].weights
    weights = [int(row.sum()) for row in sums]
    empty = [split.name for split, weight in zip(job.splits, weights, strict=True) if not weight]
    if empty:
        raise RunError(
            f"no text for split {', '.join(empty)}: {totals['documents_read']} documents read, "
            f"{totals['documents_used']} with tokens; check --documents and --splits"
        )
    shards = count_shards(weights, job.splits, job.shards)
    for i, (spec, found) in enumerate(zip(job.splits, pieces, strict=True)):
        most = found * job.task.copies
        if spec.num_shards is not None and shards[i] > most:
            raise RunError(
                f"{spec.name} has text for at most {most} shards, {shards[i]} were asked for; set "
                "a smaller --num_shards and --overwrite"
            )
        shards[i] = min(shards[i], most)
    decided: dict[str, object] = {
        "splits": [
            {
                "name": spec.name,
                "shards": shards[i],
                "pieces": pieces[i],
                "tokens": tokens[i],
                "expected_bytes": weights[i],
            }
            for i, spec in enumerate(job.splits)
        ],
        "totals": totals,
        "rejected": dict(sorted(reasons.items())),
        "rejected_files": rejected_files,
    }
    arrays: dict[str, Any] = {}
    for i, row in enumerate(sums):
        cells = np.flatnonzero(row)
        arrays |= {f"cells_{i}": cells, f"sums_{i}": np.cumsum(row[cells])}
    return decided, arrays


class _PlanShardsDoFn(beam.DoFn):
    def __init__(self, job: TextJob, tree: RunTree) -> None:
        self._job = job
        self._tree = tree

    def process(self, finished: int) -> Iterator[tuple[int, int]]:
        del finished  # it only has to be there
        try:
            plans = plan_shards(self._job, self._tree)
        except RunError as error:
            fail(self._job, error)
        if self._tree.levels:
            drop_runs(self._job, self._tree.levels - 1)
        for split, plan in enumerate(plans):
            for shard in range(plan.shards):
                yield split, shard


class PlanShards(beam.PTransform[beam.PCollection[int], beam.PCollection[tuple[int, int]]]):
    """Numbers of finished runs -> (split, shard) of every shard to build.

    Decided once, on one worker, when all runs are there; a restarted job keeps the decision.
    """

    def __init__(self, job: TextJob, tree: RunTree) -> None:
        super().__init__()
        self._job = job
        self._tree = tree

    def expand(self, runs: beam.PCollection[int]) -> beam.PCollection[tuple[int, int]]:
        """Awaits all runs and reads their tails."""
        do_fn = _PlanShardsDoFn(self._job, self._tree)
        return (
            runs
            | "AwaitRuns" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
            | "Decide" >> beam.ParDo(do_fn).with_output_types(tuple[int, int])
            | "SpreadShards" >> beam.Reshuffle()
        )
