"""Regroup: merge many run files into few, so that a shard of a huge input takes few reads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain

import numpy as np

from recordmill.records.arrays import Bytes, Int64s
from recordmill.transforms.dataset.run_state import Nothing
from recordmill.transforms.dataset.stages import Done, Phase, Stage
from recordmill.transforms.shuffle.finished_runs import made_anew, read_run_files
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.run_files import (
    CELL_BITS,
    RunFile,
    RunFileReader,
    RunFiles,
    write_run_file,
)
from recordmill.transforms.shuffle.shuffle_job import ShuffleJob
from recordmill.transforms.storage import files


def _histogram(runs: list[RunFile], split: int, low: int, high: int) -> tuple[Int64s, Int64s]:
    sums = np.zeros(1 << CELL_BITS, np.int64)
    for run in runs:
        sums[run.splits[split].cells] += run.splits[split].output_bytes
    first, last = low >> (64 - CELL_BITS), high >> (64 - CELL_BITS)
    cells = np.flatnonzero(sums[first : last + 1]) + first
    return cells, sums[cells]


def regroup(job: ShuffleJob, tree: MergeTree, level: int, number: int) -> None:
    """Writes run file `number` of a level, and its description, unless they are there."""
    done = job.read_run_infos(level, number)
    if done is not None and job.holds_run_files(level, done):
        return
    job.workspace.check_own()
    low, high = tree.hash_range(level, number)
    inputs = tree.inputs(level, number)
    runs = {source: read_run_files(job, level - 1, source) for source in inputs}

    def read(split: int) -> list[Bytes]:
        slices = []
        for source, files_of_source in runs.items():
            with made_anew(job, level - 1, source):
                slices += [RunFileReader(run, split).read(low, high) for run in files_of_source]
        return slices

    all_runs = [*chain.from_iterable(runs.values())]
    merge = job.record_merger()
    splits = range(len(job.splits))
    run = write_run_file(
        job.run_path(level, number) + ".bin", (merge(read(split), low, high) for split in splits),
        [_histogram(all_runs, split, low, high) for split in splits], token=job.workspace.token,
    )  # fmt: skip
    job.workspace.write_state(job.description_path(level, number), RunFiles(runs=(run,)))


def drop_runs(job: ShuffleJob, level: int) -> None:
    """Deletes the run files of a level that has been merged; their descriptions stay."""
    job.workspace.write_state(job.dropped_path(level), Nothing())
    paths = files.list_files(job.runs_folder(level))
    files.delete_quietly(path for path in paths if path.endswith(".bin"))


class Regroup(Stage[ShuffleJob]):
    """Writes the run files of a level of the merge tree, once those of the level below are written.

    Memory: one run file. Run files two levels below are deleted when the level begins.

    Args:
      job: whose run files they are.
      tree: of them; None for the one that is written when the stage begins.
      level: from 1 on.
      input_bytes: that a pass moves, for progress.
    """

    def __init__(
        self, job: ShuffleJob, tree: MergeTree | None, level: int, input_bytes: int = 0
    ) -> None:
        super().__init__(job)
        self.name = f"Regroup{level}"
        self._known = tree
        self._level = level
        self._input_bytes = input_bytes

    @cached_property
    def _tree(self) -> MergeTree:
        return self.job.merge_tree(self._known)

    def items(self) -> int:
        """Returns the number of run files of the level, none where there are few enough below."""
        if self._level > self._tree.levels:
            return 0
        if self._level >= 2:
            drop_runs(self.job, self._level - 2)
        return self._tree.run_count(self._level)

    def do(self, item: int) -> Done:
        """Merges a range of hashes of a group of run files."""
        regroup(self.job, self._tree, self._level, item)
        return Done()

    def phases(self) -> Iterator[Phase]:
        """Yields the run files that are described."""
        if self._known:
            done = files.count(self.job.runs_folder(self._level), ".json")
            yield Phase("regroup", done, self._known.run_count(self._level), self._input_bytes)
