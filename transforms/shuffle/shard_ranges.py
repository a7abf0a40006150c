"""Where shards are cut: positions in a split, and the hashes at them.

A position in a split is a share of its expected bytes: position 0.25 is the hash below which a
quarter of them lies. Shard s of S holds positions [s / S, (s + 1) / S). Copy c of C of a record is
moved by c / C, so that the copies of a text are spread over the whole split and no shard repeats
itself.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import google_crc32c
import msgspec
import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.state import Count, FileSum
from recordmill.transforms.dataset.run_state import DamagedStateError
from recordmill.transforms.shuffle.finished_runs import read_run_files
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.run_files import CELL_BITS, RunFile
from recordmill.transforms.shuffle.shuffle_job import ShuffleJob
from recordmill.transforms.storage import files


class PlannedSplit(msgspec.Struct, frozen=True):
    """The size of a split.

    Attributes:
      name: of the split.
      shards: their number.
      records, size: of run files in the split, a copy counted once; the size is what blocks of a
        build are measured by: tokens of text, bytes of records.
      expected_bytes: of all shards, before compression.
    """

    name: str
    shards: Count
    records: Count
    size: Count
    expected_bytes: Count


class PlannedShards(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker has decided of the shards of a job, `shards.json`; a kind of job says more.

    Attributes:
      splits: in order.
      sums: bytes and crc32c of the file of sums, which lies beside.
    """

    splits: tuple[PlannedSplit, ...]
    sums: FileSum = (0, 0)


@dataclass(frozen=True, slots=True)
class SplitShards:
    """The shards of a split.

    Attributes:
      name, shards, records, size: see `PlannedSplit`.
      cells, sums: `[num_cells]`: leading bits of hashes, and the expected bytes up to and with
        each.
    """

    name: str
    shards: int
    records: int
    size: int
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


def add_histograms(sums: Int64s, run: RunFile) -> None:
    """Adds those of a run file to `[num_splits, 2**CELL_BITS] int64`."""
    for split, row in zip(run.splits, sums, strict=True):
        row[split.cells] += split.output_bytes


def sum_histograms(job: ShuffleJob, tree: MergeTree) -> Int64s:
    """Returns `[num_splits, 2**CELL_BITS] int64`: expected bytes by the leading bits of hashes."""
    sums = np.zeros((len(job.splits), 1 << CELL_BITS), np.int64)
    for number in range(tree.run_count(tree.levels)):
        for run in read_run_files(job, tree.levels, number):
            add_histograms(sums, run)
    return sums


def write_sums(job: ShuffleJob, histograms: Int64s) -> tuple[int, int]:
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
    files.write_bytes(job.shard_sums_path, content)
    return len(content), google_crc32c.value(content)


def holds_sums(job: ShuffleJob, written: tuple[int, int]) -> bool:
    """Tells whether the file of sums is there that `write_sums` wrote."""
    return _read_sums(job, written) is not None


def _read_sums(job: ShuffleJob, written: tuple[int, int]) -> bytes | None:
    try:
        content = files.read_bytes(job.shard_sums_path)
    except FileNotFoundError:
        return None
    return content if (len(content), google_crc32c.value(content)) == written else None


def read_planned_splits(job: ShuffleJob, plan: PlannedShards) -> list[SplitShards]:
    """Returns the shards of each split, with the sums that they are cut by.

    Raises:
      DamagedStateError: the file of sums is missing or damaged.
    """
    content = _read_sums(job, plan.sums)
    if content is None:
        raise DamagedStateError(f"{job.shard_sums_path} is damaged; start anew with --overwrite")
    with np.load(io.BytesIO(content)) as sums:
        return [
            SplitShards(
                split.name, split.shards, split.records, split.size,
                sums[f"cells_{i}"], sums[f"sums_{i}"],
            )
            for i, split in enumerate(plan.splits)
        ]  # fmt: skip
