"""Regroup: gather many runs into few, so that shards of a huge corpus cost few reads each."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import numpy as np

from recordmill.records.errors import RunError
from recordmill.transforms import files
from recordmill.transforms.job import fail, write_json
from recordmill.transforms.lines import Int64s
from recordmill.transforms.plan import RunTree
from recordmill.transforms.runs import (
    CELL_BITS,
    Run,
    RunReader,
    decode_pieces,
    id_words,
    write_run,
)
from recordmill.transforms.text_job import TextJob, read_runs
from recordmill.transforms.tokenization import Vocabulary


def _histogram(runs: list[Run], split: int, low: int, high: int) -> tuple[Int64s, Int64s]:
    sums = np.zeros(1 << CELL_BITS, np.int64)
    for run in runs:
        sums[run.splits[split].cells] += run.splits[split].weights
    first, last = low >> (64 - CELL_BITS), high >> (64 - CELL_BITS)
    cells = np.flatnonzero(sums[first : last + 1]) + first
    return cells, sums[cells]


def regroup(job: TextJob, tree: RunTree, level: int, number: int) -> None:
    """Writes run `number` of a level unless it is there."""
    description = job.run_path(level, number) + ".json"
    if files.exists(description):
        return
    low, high = tree.part(level, number)
    runs = [run for below in tree.below(level, number) for run in read_runs(job, level - 1, below)]
    vocabulary = Vocabulary.from_bytes(files.read_bytes(job.vocabulary_path), "vocab.txt")
    wide = id_words(len(vocabulary))
    splits = []
    for split in range(len(job.splits)):
        slices = [RunReader(run, split).read(low, high) for run in runs]
        splits.append(decode_pieces(slices, [low] * len(slices), [high] * len(slices), wide))
    histograms = [_histogram(runs, split, low, high) for split in range(len(job.splits))]
    run = write_run(job.run_path(level, number) + ".bin", splits, histograms, wide=wide)
    write_json(description, {"runs": [run]})


class _RegroupDoFn(beam.DoFn):
    def __init__(self, job: TextJob, tree: RunTree, level: int) -> None:
        self._job = job
        self._tree = tree
        self._level = level

    def process(self, number: int) -> Iterator[int]:
        try:
            regroup(self._job, self._tree, self._level, number)
        except RunError as error:
            fail(self._job, error)
        yield number


class RegroupRuns(beam.PTransform[beam.PCollection[int], beam.PCollection[int]]):
    """Numbers of scattered runs -> numbers of the runs that shards are built from.

    Where scatter's runs are few enough they pass as they are. Memory: one run. Idempotent, as
    scatter is.
    """

    def __init__(self, job: TextJob, tree: RunTree) -> None:
        super().__init__()
        self._job = job
        self._tree = tree

    def expand(self, numbers: beam.PCollection[int]) -> beam.PCollection[int]:
        """Writes the runs of each level once those below are there."""
        for level in range(1, self._tree.levels + 1):
            do_fn = _RegroupDoFn(self._job, self._tree, level)
            runs = self._tree.runs(level)
            numbers = (
                numbers
                | f"Await{level}" >> beam.CombineGlobally(beam.combiners.CountCombineFn())
                | f"List{level}"
                >> beam.FlatMap(_next_level, self._job, level, runs).with_output_types(int)
                | f"Spread{level}" >> beam.Reshuffle()
                | f"Regroup{level}" >> beam.ParDo(do_fn).with_output_types(int)
            )
        return numbers


def _next_level(finished: int, job: TextJob, level: int, runs: int) -> range:
    """Returns the runs of a level once those below are there, and drops what those are made of."""
    del finished  # it only has to be there
    if level >= 2:
        drop_runs(job, level - 2)
    return range(runs)


def drop_runs(job: TextJob, level: int) -> None:
    """Deletes the run files of a level that has been gathered; what they held stays listed."""
    found = files.list_files(files.join(job.work, f"runs-{level}"))
    files.delete_quietly(path for path in found if path.endswith(".bin"))
