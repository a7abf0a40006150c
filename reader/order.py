"""Which record is in which row of which step: pure arithmetic of (seed, epoch, global batch).

An epoch is a permutation of *blocks* of records that follow each other in a shard. Of the blocks
one after the other, a *window* takes as many records as some whole steps need, and permutes them:

    window      [steps x global batch] records, cut into sections that follow each other
    section     goes, permuted, into one row, or a few, of every step of the window

So a batch draws on all blocks of its window, and each row of a batch on one section. A worker's
rows are whole sections: it reads those and nothing else, and the order knows nothing of the number
of workers. Without shuffling a window is the records as they were written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from recordmill.reader.shards import Ints, Stretch
from recordmill.records.hashing import GOLDEN, U64, mix64, seed_for

Remainder = Literal["drop", "keep", "pad", "repeat"]
REMAINDERS = ("drop", "keep", "pad", "repeat")
FILLER = -1
_SECTION_RECORDS = 64
_UNIT_SECTIONS = 8
_EXACT_WORKERS = 64  # so many can read their own records only; more read some in vain


@dataclass(frozen=True, slots=True)
class Run:
    """Records to read in one go.

    Attributes:
      position: of the first one in the epoch's blocks.
      shard, first, count: the records, as in `Stretch`; `number` too.
    """

    position: int
    shard: int
    first: int
    count: int
    number: int


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What a worker reads of a window, and the rows it makes of it.

    Attributes:
      runs: in order of position. The position of a run of no records is FILLER.
      rows: `[num_rows] int64`, steps one after the other: a position, or FILLER.
    """

    runs: list[Run]
    rows: Ints


@dataclass(frozen=True)
class Order:
    """The order of one worker's rows.

    Attributes:
      stretches: all records of an epoch, in the order in which they were written.
      batch_size: rows a step of this worker.
      workers, worker: how many there are, and which this one is.
      seed: of the order; None is the written order.
      remainder: what becomes of the records beyond the last whole global batch.
      window_records: about as many are permuted together.
      block_records: read together, at most.
      whole_shards: blocks are shards, for files that can only be read from the beginning.
    """

    stretches: tuple[Stretch, ...]
    batch_size: int
    workers: int
    worker: int
    seed: int | None
    remainder: Remainder
    window_records: int
    block_records: int
    whole_shards: bool = False

    @cached_property
    def records(self) -> int:
        """The records of an epoch."""
        return sum(stretch.count for stretch in self.stretches)

    @property
    def global_batch(self) -> int:
        """The rows of a step, of all workers."""
        return self.batch_size * self.workers

    @property
    def window_steps(self) -> int:
        """The steps of a window."""
        return max(1, self.window_records // self.global_batch)

    @property
    def steps_per_epoch(self) -> int:
        """The batches of each worker in each epoch."""
        whole, rest = divmod(self.records, self.global_batch)
        return whole + (rest > 0 and self.remainder != "drop")

    @property
    def windows_per_epoch(self) -> int:
        """The windows of an epoch; the last one may be smaller."""
        return -(-self.steps_per_epoch // self.window_steps)

    @cached_property
    def group_rows(self) -> int:
        """Neighbouring rows of a step that share a section: a divisor of the global batch."""
        enough = -(-_SECTION_RECORDS // self.window_steps)
        return next(
            rows
            for rows in range(min(enough, self.global_batch), self.global_batch + 1)
            if self.global_batch % rows == 0
        )

    @cached_property
    def unit_sections(self) -> int:
        """Sections whose rows take turns, so that neighbouring rows are of different sections."""
        groups = self.global_batch // self.group_rows
        most = max(2, min(_UNIT_SECTIONS, groups // _EXACT_WORKERS)) if self.group_rows > 1 else 1
        return next(count for count in range(most, 0, -1) if groups % count == 0)

    @property
    def run_records(self) -> int:
        """The most records of a run."""
        if self.whole_shards or self.workers == 1:
            return self.block_records
        section = self.batch_size if self.seed is None else self.group_rows * self.window_steps
        return max(1, min(self.block_records, section))

    @property
    def fingerprint(self) -> str:
        """What else the order depends on: a state of another one is refused."""
        return type(self).__name__

    def window(self, epoch: int, window: int, from_step: int = 0) -> WindowPlan:
        """Returns what to read for a window and how to arrange it, from one of its steps on."""
        first = window * self.window_steps
        steps = min(self.window_steps, self.steps_per_epoch - first)
        begin = first * self.global_batch
        whole = min(steps, (self.records - begin) // self.global_batch)
        if self.seed is None:
            rows, ranges = self._written_rows(begin, whole)
        else:
            base = np.uint64(seed_for(self.seed, f"reader/window/{epoch}/{window}"))
            rows, ranges = self._shuffled_rows(begin, whole, base)
        if whole < steps:
            last, more = self._last_step(begin + whole * self.global_batch, epoch)
            rows, ranges = np.concatenate([rows, last]), [*ranges, *more]
        rows = rows[from_step * self.batch_size :]
        return plan_of(self._runs(epoch, _union(ranges)), rows, self.stretches[0])

    def _written_rows(self, begin: int, steps: int) -> tuple[Ints, list[tuple[int, int]]]:
        firsts = begin + self.worker * self.batch_size + np.arange(steps) * self.global_batch
        rows = firsts[:, None] + np.arange(self.batch_size)
        return rows.reshape(-1), [(int(at), int(at) + self.batch_size) for at in firsts]

    def _shuffled_rows(
        self, begin: int, steps: int, base: np.uint64
    ) -> tuple[Ints, list[tuple[int, int]]]:
        width, turns = self.group_rows, self.unit_sections
        size, unit = steps * width, turns * width
        sections = np.argsort(_keys(base, -1 - np.arange(self.global_batch // width)))
        low, high = self.worker * self.batch_size, (self.worker + 1) * self.batch_size
        first = low // unit
        mine = sections[first * turns : -(-high // unit) * turns]
        within = mine[:, None] * size + np.arange(size)
        shuffled = np.take_along_axis(within, np.argsort(_keys(base, within), axis=1), axis=1)
        units = shuffled.reshape(len(mine) // turns, turns, steps, width)
        table = units.transpose(2, 0, 3, 1).reshape(steps, len(mine) * width)
        rows = begin + table[:, low - first * unit : high - first * unit].reshape(-1)
        return rows, [(begin + int(s) * size, begin + int(s + 1) * size) for s in mine]

    def _last_step(self, begin: int, epoch: int) -> tuple[Ints, list[tuple[int, int]]]:
        """Returns the rows of the step that has fewer records than rows."""
        rest = self.records - begin
        rows = begin + np.arange(rest)
        if self.seed is not None:
            base = np.uint64(seed_for(self.seed, f"reader/remainder/{epoch}"))
            rows = rows[np.argsort(_keys(base, np.arange(rest)))]
        if self.remainder == "keep":
            share = [rest * worker // self.workers for worker in (self.worker, self.worker + 1)]
            rows = rows[share[0] : share[1]]
        else:
            missing = np.arange(self.global_batch - rest) % self.records
            more = missing if self.remainder == "repeat" else np.full_like(missing, FILLER)
            begin_row = self.worker * self.batch_size
            rows = np.concatenate([rows, more])[begin_row : begin_row + self.batch_size]
        return rows, [(int(row), int(row) + 1) for row in rows if row != FILLER]

    @cached_property
    def _blocks(self) -> Ints:
        """Returns `[num_blocks, 4] int64`: shard, first, count, number."""
        size = self.records if self.whole_shards or self.seed is None else self.block_records
        tables = []
        for stretch in self.stretches:
            starts = np.arange(0, stretch.count, size, dtype=np.int64)
            tables.append(
                np.stack(
                    [
                        np.full_like(starts, stretch.shard),
                        stretch.first + starts,
                        np.minimum(size, stretch.count - starts),
                        stretch.number + starts,
                    ],
                    axis=1,
                )
            )
        return np.concatenate(tables)

    @cached_property
    def _epoch_blocks(self) -> Callable[[int], tuple[Ints, Ints]]:
        return lru_cache(2)(self._permute_blocks)

    def _permute_blocks(self, epoch: int) -> tuple[Ints, Ints]:
        """Returns the blocks in the epoch's order, and the position of each one's first record."""
        blocks = self._blocks
        if self.seed is not None:
            base = np.uint64(seed_for(self.seed, f"reader/blocks/{epoch}"))
            blocks = blocks[np.argsort(_keys(base, np.arange(len(blocks))))]
        return blocks, np.cumsum(blocks[:, 2]) - blocks[:, 2]

    def _runs(self, epoch: int, ranges: list[tuple[int, int]]) -> list[Run]:
        order_epoch = epoch if self.seed is not None else 0
        blocks, positions = self._epoch_blocks(order_epoch)
        runs = []
        for begin, end in ranges:
            at = begin
            block = int(np.searchsorted(positions, at, side="right")) - 1
            while at < end:
                shard, first, count, number = map(int, blocks[block])
                skipped = at - int(positions[block])
                size = min(count - skipped, end - at, self.run_records)
                runs.append(Run(at, shard, first + skipped, size, number + skipped))
                at += size
                block += at == positions[block] + count
        return runs


def plan_of(runs: list[Run], rows: Ints, anywhere: Stretch) -> WindowPlan:
    """Returns a plan; what FILLER picks, and a plan without records needs, is a run of none."""
    if not runs or FILLER in rows:
        runs = [Run(FILLER, anywhere.shard, anywhere.first, 0, 0), *runs]
    return WindowPlan(runs, rows)


def _keys(base: np.uint64, values: Ints) -> U64:
    """Returns uniform 64-bit sort keys, a pure function of base and value."""
    mixed: npt.NDArray[np.uint64] = mix64(values.astype(np.uint64) + GOLDEN)
    return mix64(mixed ^ base)


def _union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the ranges sorted, with those that meet or overlap merged."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
