"""The order of records: arithmetic of (seed, epoch, global batch) gives each row its record.

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

import numpy as np
import numpy.typing as npt

from recordmill.reader.options import Remainder
from recordmill.reader.record_ranges import Ints, RecordRange
from recordmill.records.hashing import GOLDEN, U64, mix64, seed_for
from recordmill.records.ranges import merge_ranges

FILLER = -1
# Raised when the arithmetic below, or one of its constants, gives another order: a reader's state
# names it, because a step of one order means nothing in another.
ORDER_VERSION = 1
_SECTION_RECORDS = 64
_INTERLEAVED_SECTIONS = 8
_EXACT_WORKERS = 64  # so many can read their own records only; more read some in vain


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Records to read in one go.

    Attributes:
      position: of the first one in the epoch's blocks.
      shard, first, count: the records, as in `RecordRange`; `number` too.
    """

    position: int
    shard: int
    first: int
    count: int
    number: int


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The ranges that a worker reads of a window, and the rows that it makes of them.

    Attributes:
      read_ranges: in order of position. One of no records has position FILLER.
      rows: `[num_rows] int64`, steps one after the other: a position, or FILLER.
    """

    read_ranges: list[ReadRange]
    rows: Ints


@dataclass(frozen=True)
class Order:
    """The order of one worker's rows.

    Attributes:
      record_ranges: all records of an epoch, in the order in which they were written.
      batch_size: rows a step of this worker.
      workers, worker: how many there are, and which this one is.
      seed: of the order; None is the written order.
      remainder: what becomes of the records beyond the last whole global batch.
      window_records: about as many are permuted together.
      block_records: read together, at most.
      whole_shards: blocks are shards, for files that can only be read from the beginning.
    """

    record_ranges: tuple[RecordRange, ...]
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
        return sum(record_range.count for record_range in self.record_ranges)

    @property
    def stored_ranges(self) -> tuple[RecordRange, ...]:
        """Where the records lie that an epoch draws on."""
        return self.record_ranges

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

    @property
    def windows_at_once(self) -> int:
        """The windows that a worker reads in one go: a quarter of one window's rows, or one window.

        So many rows that beginning costs little, and so few that reading and parsing seldom wait
        for each other.
        """
        most = max(1, self.window_records // (4 * self.window_steps * self.batch_size))
        times = -(-self.windows_per_epoch // most)
        return -(-self.windows_per_epoch // times)

    @cached_property
    def section_rows(self) -> int:
        """The rows that a section fills in each step: a divisor of the global batch.

        As few as make sections of `_SECTION_RECORDS`, because a section is read in one go.
        """
        enough = -(-_SECTION_RECORDS // self.window_steps)
        return next(
            rows
            for rows in range(min(enough, self.global_batch), self.global_batch + 1)
            if self.global_batch % rows == 0
        )

    @cached_property
    def interleaved_sections(self) -> int:
        """Sections whose rows take turns, so that neighbouring rows are of different sections.

        Sections of one row a step need no turns. The more sections take turns, the more a worker
        with few rows reads in vain; with up to `_EXACT_WORKERS` workers that is nothing.
        """
        if self.section_rows == 1:
            return 1
        sections = self.global_batch // self.section_rows
        most = max(2, min(_INTERLEAVED_SECTIONS, sections // _EXACT_WORKERS))
        return next(count for count in range(most, 0, -1) if sections % count == 0)

    @property
    def fingerprint(self) -> str:
        """Other settings that decide the records of an epoch; a state with others is refused."""
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
        return make_plan(
            self._read_ranges(epoch, merge_ranges(ranges)), rows, self.record_ranges[0]
        )

    def _written_rows(self, begin: int, steps: int) -> tuple[Ints, list[tuple[int, int]]]:
        """Returns this worker's rows of whole steps without shuffling, and their positions."""
        firsts = begin + self.worker * self.batch_size + np.arange(steps) * self.global_batch
        rows = firsts[:, None] + np.arange(self.batch_size)
        return rows.reshape(-1), [(first, first + self.batch_size) for first in firsts.tolist()]

    def _shuffled_rows(
        self, begin: int, steps: int, base: np.uint64
    ) -> tuple[Ints, list[tuple[int, int]]]:
        """Returns this worker's rows of `steps` whole steps, and the positions that they span.

        A step's columns, the global batch, are divided among *teams* of sections: a team of
        `interleaved_sections` sections fills `team_columns` neighbouring columns of every step.
        A worker needs the teams that its own columns touch, and no other.
        """
        width, team_size = self.section_rows, self.interleaved_sections
        section_records, team_columns = steps * width, team_size * width
        # The slots of the sections in a step: a permutation. Its keys are negative, so that they
        # differ from those of records below.
        sections = np.argsort(_keys(base, -1 - np.arange(self.global_batch // width)))
        first_column = self.worker * self.batch_size
        last_column = first_column + self.batch_size
        first_team, last_team = first_column // team_columns, -(-last_column // team_columns)
        mine = sections[first_team * team_size : last_team * team_size]

        # [my sections, section_records]: the records of each section, permuted within it.
        records = mine[:, None] * section_records + np.arange(section_records)
        records = np.take_along_axis(records, np.argsort(_keys(base, records), axis=1), axis=1)

        # [team, section, step, row] -> [step, team, row, section]: within a step the rows of a
        # team's sections take turns, so that neighbouring rows come from different sections.
        teams = records.reshape(last_team - first_team, team_size, steps, width)
        table = teams.transpose(2, 0, 3, 1).reshape(steps, len(mine) * width)
        offset = first_team * team_columns
        rows = begin + table[:, first_column - offset : last_column - offset].reshape(-1)
        spans = begin + np.stack([mine, mine + 1], axis=1) * section_records
        return rows, [(low, high) for low, high in spans.tolist()]

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
        for record_range in self.record_ranges:
            starts = np.arange(0, record_range.count, size, dtype=np.int64)
            tables.append(
                np.stack(
                    [
                        np.full_like(starts, record_range.shard),
                        record_range.first + starts,
                        np.minimum(size, record_range.count - starts),
                        record_range.number + starts,
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

    def _read_ranges(self, epoch: int, spans: list[tuple[int, int]]) -> list[ReadRange]:
        """Returns what to read for spans `[begin, end)` of positions, cut where blocks end."""
        order_epoch = epoch if self.seed is not None else 0
        blocks, positions = self._epoch_blocks(order_epoch)
        read_ranges = []
        for begin, end in spans:
            position = begin
            block = int(np.searchsorted(positions, position, side="right")) - 1
            while position < end:
                shard, first, count, number = map(int, blocks[block])
                skipped = position - int(positions[block])
                size = min(count - skipped, end - position, self.block_records)
                read_ranges.append(
                    ReadRange(position, shard, first + skipped, size, number + skipped)
                )
                position += size
                block += position == positions[block] + count
        return read_ranges


def make_plan(read_ranges: list[ReadRange], rows: Ints, anywhere: RecordRange) -> WindowPlan:
    """Returns a plan. FILLER rows, and a plan without records, get a read range of no records."""
    if not read_ranges or FILLER in rows:
        read_ranges = [ReadRange(FILLER, anywhere.shard, anywhere.first, 0, 0), *read_ranges]
    return WindowPlan(read_ranges, rows)


def _keys(base: np.uint64, values: Ints) -> U64:
    """Returns uniform 64-bit sort keys, a pure function of base and value."""
    mixed: npt.NDArray[np.uint64] = mix64(values.astype(np.uint64) + GOLDEN)
    return mix64(mixed ^ base)
