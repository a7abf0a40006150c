"""An order in which classes have given shares: a table of records, drawn anew in each epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from recordmill.reader.order import FILLER, Order, ReadRange, WindowPlan, make_plan
from recordmill.reader.record_ranges import Ints, RecordRange
from recordmill.reader.sampling.mixing import largest_remainder
from recordmill.records.errors import UsageError
from recordmill.records.hashing import GOLDEN, fingerprint64, mix64, seed_for

_RANGE_RECORDS = 32
_GAP_RECORDS = 4  # reading so many in vain costs less than beginning anew


@dataclass(frozen=True, kw_only=True)
class BalancedOrder(Order):
    """An order of the entries of a table that is drawn anew each epoch.

    Attributes:
      source: where the records are; `record_ranges` are those of the table.
      labels: `[records of the split] int64`.
      shares: class -> share.
    """

    source: tuple[RecordRange, ...]
    labels: Ints = field(compare=False)
    shares: dict[int, float]

    @property
    def stored_ranges(self) -> tuple[RecordRange, ...]:
        """Where the records lie that the table is of."""
        return self.source

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the order, which differs for other labels or shares."""
        drawn = repr(list(self.shares.items())).encode() + self.labels.astype("<i8").tobytes()
        return f"{super().fingerprint} {fingerprint64(drawn):016x}"

    def window(self, epoch: int, window: int, from_step: int = 0) -> WindowPlan:
        """Returns what to read for a window and how to arrange it, from one of its steps on."""
        plan = super().window(epoch, window, from_step)
        # The plan reads entries of the epoch's table, by position; the table names the records.
        positions = np.array([entries.position for entries in plan.read_ranges], np.int64)
        firsts = np.array([entries.number for entries in plan.read_ranges], np.int64)
        is_real = plan.rows != FILLER
        drawn = plan.rows[is_real]
        which = np.searchsorted(positions, drawn, side="right") - 1
        entry = firsts[which] + drawn - positions[which]
        records, row_record = np.unique(self._tables(epoch)[entry], return_inverse=True)
        read_ranges, record_positions = self._ranges_that_hold(records)
        rows = np.full_like(plan.rows, FILLER)
        rows[is_real] = record_positions[row_record]
        return make_plan(read_ranges, rows, self.source[0])

    def _ranges_that_hold(self, records: Ints) -> tuple[list[ReadRange], Ints]:
        """Returns read ranges that hold some records, and the position of each record in them.

        Args:
          records: `[num_needed] int64`, ascending, counted in `source`.
        """
        table = self._source_table
        source_range = np.searchsorted(table[:, 0], records, side="right") - 1
        # A group is what is near enough to be read together, within one range of the source.
        begins_group = (np.diff(source_range, prepend=-1) != 0) | (
            np.diff(records, prepend=-1) > _GAP_RECORDS
        )
        index = np.arange(len(records))
        group_first = records[np.maximum.accumulate(np.where(begins_group, index, 0))]
        # Groups are cut every _RANGE_RECORDS, because others are filled up to the longest one.
        part = (records - group_first) // _RANGE_RECORDS
        begins_range = begins_group | (np.diff(part, prepend=-1) != 0)
        begins = np.flatnonzero(begins_range)
        ends = np.append(begins, len(records))[1:] - 1
        counts = records[ends] - records[begins] + 1
        positions = np.cumsum(counts) - counts
        first_in_source, shard, first, number = table[source_range[begins]].T
        within = records[begins] - first_in_source
        columns = (positions, shard, first + within, counts, number + within)
        read_ranges = [ReadRange(*row) for row in np.stack(columns, axis=1).tolist()]
        range_of = np.cumsum(begins_range) - 1
        return read_ranges, positions[range_of] + records - records[begins][range_of]

    @cached_property
    def _source_table(self) -> Ints:
        """`[ranges, 4]`: first record in `source`, shard, first in it, number in the split."""
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
        """Returns `[num_entries] int64`: the records of an epoch, near their own positions.

        Copy j of C of record r is at r + j records / C, so an epoch is the same mixture throughout,
        and one pass over the dataset reads neighbours together.
        """
        count = len(self._own_labels)
        copies = self._draw_copies(epoch)
        entries = np.repeat(np.arange(count), copies)
        copy = np.arange(len(entries)) - np.repeat(np.cumsum(copies) - copies, copies)
        positions = (entries + copy * count / copies[entries]) % count
        return entries[np.argsort(positions, kind="stable")]

    def _draw_copies(self, epoch: int) -> Ints:
        """Returns `[num_records] int64`: how often an epoch has each record.

        The records of a class share its total: each has floor of its part, and those of the
        smallest random keys one more.

        Raises:
          UsageError: a class has a share and no record.
        """
        labels = self._own_labels
        base = np.uint64(seed_for(self.seed or 0, f"reader/balance/{epoch}"))
        keys = mix64(mix64(np.arange(len(labels), dtype=np.uint64) + GOLDEN) ^ base)
        totals = largest_remainder(list(self.shares.values()), len(labels))
        copies = np.zeros(len(labels), np.int64)
        for label, total in zip(self.shares, totals.tolist(), strict=True):
            if not total:
                continue
            members = np.flatnonzero(labels == label)
            if not len(members):
                raise UsageError(
                    f"class {label} must have a record in the part that is read, and has none: "
                    "leave it out of the target"
                )
            each, more = divmod(total, len(members))
            copies[members] = each
            copies[members[np.argsort(keys[members])[:more]]] += 1
        return copies
