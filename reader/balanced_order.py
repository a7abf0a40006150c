"""An order in which classes have given shares: a table of records, drawn anew each epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from recordmill.reader.mixing import largest_remainder
from recordmill.reader.order import FILLER, Order, Run, WindowPlan, plan_of
from recordmill.reader.shards import Ints, Stretch
from recordmill.records.errors import UsageError
from recordmill.records.hashing import GOLDEN, fingerprint64, mix64, seed_for

_RUN_RECORDS = 32
_GAP_RECORDS = 4  # reading so many in vain costs less than beginning anew


@dataclass(frozen=True, kw_only=True)
class BalancedOrder(Order):
    """An order of the entries of a table that is drawn anew each epoch.

    Attributes:
      source: where the records are; `stretches` are those of the table.
      labels: `[records of the split] int64`.
      shares: class -> share.
    """

    source: tuple[Stretch, ...]
    labels: Ints = field(compare=False)
    shares: dict[int, float]

    @property
    def run_records(self) -> int:
        """The most records of a run."""
        return _RUN_RECORDS

    @property
    def fingerprint(self) -> str:
        """Tells apart orders of other labels or shares."""
        drawn = repr(list(self.shares.items())).encode() + self.labels.astype("<i8").tobytes()
        return f"{super().fingerprint} {fingerprint64(drawn):016x}"

    def window(self, epoch: int, window: int, from_step: int = 0) -> WindowPlan:
        """Returns what to read for a window and how to arrange it, from one of its steps on."""
        plan = super().window(epoch, window, from_step)
        positions = np.array([run.position for run in plan.runs], np.int64)
        entries = np.array([run.number for run in plan.runs], np.int64)
        real = plan.rows != FILLER
        drawn = plan.rows[real]
        which = np.searchsorted(positions, drawn, side="right") - 1
        entry = entries[which] + drawn - positions[which]
        needed, place = np.unique(self._tables(epoch)[entry], return_inverse=True)
        runs, places = self._real_runs(needed)
        rows = np.full_like(plan.rows, FILLER)
        rows[real] = places[place]
        return plan_of(runs, rows, self.source[0])

    def _real_runs(self, needed: Ints) -> tuple[list[Run], Ints]:
        """Returns runs that hold some records, counted in `source`, and the place of each."""
        table = self._places
        stretch = np.searchsorted(table[:, 0], needed, side="right") - 1
        shard = table[stretch, 1]
        within = needed - table[stretch, 0]
        breaks = (np.diff(stretch, prepend=-1) != 0) | (np.diff(needed, prepend=-1) > _GAP_RECORDS)
        # A group of near records is cut every _RUN_RECORDS.
        group_first = needed[np.maximum.accumulate(np.where(breaks, np.arange(len(needed)), 0))]
        part = (needed - group_first) // _RUN_RECORDS
        breaks |= np.diff(part, prepend=-1) != 0
        begins = np.flatnonzero(breaks)
        ends = np.append(begins, len(needed))[1:] - 1
        counts = needed[ends] - needed[begins] + 1
        positions = np.cumsum(counts) - counts
        run = np.cumsum(breaks) - 1
        columns = (
            positions,
            shard[begins],
            table[stretch[begins], 2] + within[begins],
            counts,
            table[stretch[begins], 3] + within[begins],
        )
        runs = [Run(*row) for row in np.stack(columns, axis=1).tolist()]
        return runs, positions[run] + needed - needed[begins][run]

    @cached_property
    def _places(self) -> Ints:
        """`[stretches, 4]`: first record in `source`, shard, first in it, number in the split."""
        counts = np.array([s.count for s in self.source], np.int64)
        rows = [(0, s.shard, s.first, s.number) for s in self.source]
        table = np.array(rows, np.int64)
        table[:, 0] = np.cumsum(counts) - counts
        return table

    @cached_property
    def _own_labels(self) -> Ints:
        return np.concatenate([self.labels[s.number : s.number + s.count] for s in self.source])

    @cached_property
    def _tables(self) -> Callable[[int], Ints]:
        return lru_cache(2)(self._draw)

    def _draw(self, epoch: int) -> Ints:
        """Returns `[records] int64`: the records of an epoch, near their place in the dataset.

        Copy j of C of record r stands at r + j records / C, so that an epoch is the same mixture
        throughout, and one pass over the dataset reads neighbours together.
        """
        labels = self._own_labels
        base = np.uint64(seed_for(self.seed or 0, f"reader/balance/{epoch}"))
        keys = mix64(mix64(np.arange(len(labels), dtype=np.uint64) + GOLDEN) ^ base)
        classes = list(self.shares)
        totals = largest_remainder([self.shares[label] for label in classes], len(labels))
        copies = np.zeros(len(labels), np.int64)
        for label, total in zip(classes, totals.tolist(), strict=True):
            members = np.flatnonzero(labels == label)
            if total and not len(members):
                raise UsageError(
                    f"class {label} must have a record in the part that is read, and has none: "
                    "leave it out of the target"
                )
            if total:
                each, more = divmod(total, len(members))
                copies[members] = each
                copies[members[np.argsort(keys[members])[:more]]] += 1
        records = np.repeat(np.arange(len(labels)), copies)
        copy = np.arange(len(records)) - np.repeat(np.cumsum(copies) - copies, copies)
        places = (records + copy * len(labels) / copies[records]) % len(labels)
        return records[np.argsort(places, kind="stable")]
