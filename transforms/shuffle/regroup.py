"""Regroup: merge many run files into few, so that a shard of a huge input takes few reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import apache_beam as beam
import numpy as np

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.errors import RunError
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.run_state import Nothing
from recordmill.transforms.dataset.run_task import RunTask
from recordmill.transforms.shuffle.finished_runs import made_anew, read_run_files
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.run_files import (
    CELL_BITS,
    MAX_HASH,
    DamagedRunFileError,
    RunFile,
    RunFileInfo,
    RunFileReader,
    RunFiles,
    read_run_file,
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
    if tree.gathered and level == 1:
        runs = {0: read_run_files(job, 0, 0, only=inputs)}
    else:
        runs = {source: read_run_files(job, level - 1, source) for source in inputs}

    def read(split: int) -> list[Bytes]:
        slices = []
        for source, files_of_source in runs.items():
            with made_anew(job, level - 1, source):
                slices += [RunFileReader(run, split).read(low, high) for run in files_of_source]
        return slices

    all_runs = [*chain.from_iterable(runs.values())]
    run = _merge(job, job.run_path(level, number) + ".bin", all_runs, read, (low, high))
    job.workspace.write_state(job.description_path(level, number), RunFiles(runs=(run,)))


def _merge(
    job: ShuffleJob,
    path: str,
    runs: list[RunFile],
    read: Callable[[int], list[Bytes]],
    bounds: tuple[int, int],
) -> RunFileInfo:
    """Merges the records of run files that `read` returns of each split."""
    low, high = bounds
    merge = job.record_merger()
    splits = range(len(job.splits))
    histograms = [_histogram(runs, split, low, high) for split in splits]
    merged = (merge(read(split), low, high) for split in splits)
    return write_run_file(path, merged, histograms, token=job.workspace.token)


def merge_run_files(job: ShuffleJob, path: str, infos: Sequence[RunFileInfo]) -> RunFileInfo:
    """Merges whole run files of a folder that no description on disk lists, into one.

    Raises:
      RunError: one is missing, damaged or of another run.
    """
    try:
        folder, token = path.rpartition("/")[0], job.workspace.token
        runs = [read_run_file(folder, info, token=token) for info in infos]

        def read(split: int) -> list[Bytes]:
            return [RunFileReader(run, split).read(0, MAX_HASH) for run in runs]

        return _merge(job, path, runs, read, (0, MAX_HASH))
    except DamagedRunFileError as error:
        raise RunError(f"{error}; run the pipeline again, from its beginning") from error


class _RegroupDoFn(RunTask[ShuffleJob]):
    def __init__(self, job: ShuffleJob, tree: MergeTree, level: int) -> None:
        super().__init__(job)
        self._tree = tree
        self._level = level

    def work(self, number: int) -> Iterator[int]:
        with counters.work_item():
            regroup(self._job, self._tree, self._level, number)
        yield number


class RegroupRuns(beam.PTransform[beam.PCollection[int], beam.PCollection[int]]):
    """Numbers of scatter's work items -> numbers of the run files that shards are built from.

    Where scatter's run files are few enough, their numbers pass unchanged. Memory: one run file.
    Idempotent, as scatter is.
    """

    def __init__(self, job: ShuffleJob, tree: MergeTree) -> None:
        super().__init__()
        self._job = job
        self._tree = tree

    def expand(self, numbers: beam.PCollection[int]) -> beam.PCollection[int]:
        """Writes the run files of each level once those of the level below are written."""
        for level in range(1, self._tree.levels + 1):
            do_fn = _RegroupDoFn(self._job, self._tree, level)
            runs = self._tree.run_count(level)
            numbers = (
                numbers
                | f"Await{level}" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
                | f"List{level}"
                >> beam.FlatMap(_next_level, self._job, level, runs).with_output_types(int)
                | f"Spread{level}" >> beam.Reshuffle()
                | f"Regroup{level}" >> beam.ParDo(do_fn).with_output_types(int)
            )
        return numbers


def _next_level(finished: int, job: ShuffleJob, level: int, runs: int) -> range:
    """Returns the numbers of a level, and deletes the run files two levels below."""
    del finished  # its arrival means that the level below is finished
    if level >= 2:
        drop_runs(job, level - 2)
    return range(runs)


def drop_runs(job: ShuffleJob, level: int) -> None:
    """Deletes the run files of a level that has been merged; their descriptions stay."""
    job.workspace.write_state(job.dropped_path(level), Nothing())
    paths = files.list_files(job.runs_folder(level))
    files.delete_quietly(path for path in paths if path.endswith(".bin"))
