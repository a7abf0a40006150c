"""Collect records of each split with their keys, and write them to run files of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.transforms.examples.run_records import KeyedRecords, sorted_for_run
from recordmill.transforms.shuffle.run_files import (
    RunFileInfo,
    SortedRecords,
    histogram,
    write_run_file,
)
from recordmill.transforms.storage.buffers import Arena


@dataclass(slots=True)
class RunWriter:
    """Holds records until there are enough for a run file.

    Attributes:
      path: (number) -> the path of the run file of this number.
      splits: their number.
      token: of the run.
      run_bytes: a run file is written as soon as so many bytes are held.
      deduplicate: records of equal bytes are written once.
      arena: has the memory of what is written.
      runs: that were written.
      records: of each split, written.
      sizes: the bytes of these and of duplicates.
      duplicates: left out.
    """

    path: Callable[[int], str]
    splits: int
    token: str
    run_bytes: int
    deduplicate: bool = False
    arena: Arena = field(default_factory=Arena)
    runs: list[RunFileInfo] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    duplicates: int = 0
    _held: list[list[KeyedRecords]] = field(default_factory=list)
    _held_bytes: int = 0

    def __post_init__(self) -> None:
        self.records = [0] * self.splits
        self.sizes = [0] * self.splits
        self._held = [[] for _ in range(self.splits)]

    def add(self, split: int, records: KeyedRecords) -> None:
        """Adds records of a split; their buffer is held until they are written."""
        size = int((records.ends - records.begins).sum())
        if 2 * size < len(records.data):  # else a few records would hold the memory of many
            records = records.compact()
        self._held[split].append(records)
        self._held_bytes += size
        if self._held_bytes >= self.run_bytes:
            self.write()

    def write(self) -> None:
        """Writes what is held as one run file, if anything is."""
        if not any(self._held):
            return
        histograms = [self._histogram(split) for split in range(self.splits)]
        found = [self._sorted(split) for split in range(self.splits)]
        for split, each in enumerate(found):
            self.records[split] += len(each.hashes)
        path = self.path(len(self.runs))
        info = write_run_file(path, found, histograms, token=self.token, sync=False)
        self.runs.append(info)
        self._held_bytes = 0
        self.arena.reset()

    def _histogram(self, split: int) -> tuple[Int64s, Int64s]:
        """Returns the bytes by key of what is held.

        Repeats count, too: which of them meet in one run file depends on how the input was cut, and
        where shards are cut must not.
        """
        held = self._held[split]
        keys = np.concatenate([np.zeros(0, np.uint64), *(part.keys for part in held)])
        sizes = np.concatenate([np.zeros(0, np.int64), *(p.ends - p.begins for p in held)])
        self.sizes[split] += int(sizes.sum())
        return histogram(keys, sizes)

    def _sorted(self, split: int) -> SortedRecords:
        found, repeats = sorted_for_run(
            self._held[split], without_repeats=self.deduplicate, arena=self.arena
        )
        self._held[split].clear()
        self.duplicates += repeats
        return found
