"""Stages: one mechanism for every job.

A job is a list of stages. A stage has a name and two functions: `items` counts its work items when
the stage before is done, and `do` does one of them. `RunStages` does the rest, once, for all:

* it waits for all items of a stage before it begins the next one, and commits at the end;
* only numbers cross a stage boundary; what they mean, and all results, lie in files;
* an engine may do an item again, or twice at once: `do` finds its result on disk, or writes the
  same bytes under the same name, by a rename. So a run that was killed goes on where it stood;
* an item ends with its run: where the run is committed, or its folders belong to another one,
  nothing is done, and nothing is written;
* the first error of an item is written as one line for the launching process;
* counters and progress are the same for all jobs.

Where this machine is the engine, a bundle's items are done by the processes of `worker_pool.py`;
elsewhere each is done where Beam put it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import apache_beam as beam
from apache_beam.pvalue import AsList
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.commit import CommitDataset, CommitSpec
from recordmill.transforms.dataset.run_errors import is_over, run_errors
from recordmill.transforms.dataset.worker_note import notes_in
from recordmill.transforms.dataset.worker_pool import current_pool
from recordmill.transforms.dataset.workspace import Run

RunT = TypeVar("RunT", bound=Run)


@dataclass(frozen=True, slots=True)
class Done:
    """The numbers of a work item that is done; everything else of it lies in files.

    Attributes:
      records: that it has added to the dataset.
      counts: counter -> amount, for the engine's console.
    """

    records: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Phase:
    """How far a stage of a run is.

    Attributes:
      name: for the person who waits.
      done, total: work items.
      size_bytes: that all its work items move; 0 where that says nothing.
    """

    name: str
    done: int
    total: int
    size_bytes: int = 0


class Stage(ABC, Generic[RunT]):
    """A stage of a job. It is sent to workers; what one of them loads, it keeps in attributes.

    Attributes:
      name: a verb, in the pipeline's graph; each stage of a job has another one.
      job: with the folders of its run.
    """

    name: str

    def __init__(self, job: RunT) -> None:
        self.job = job

    @abstractmethod
    def items(self) -> int:
        """Returns the number of work items; it is asked once the stage before is done.

        Raises:
          RunError: the run cannot go on.
        """

    @abstractmethod
    def do(self, item: int) -> Done:
        """Does a work item, unless its result is there. Twice, or twice at once, changes nothing.

        Raises:
          RunError: why the run must fail, in one line.
        """

    def describe(self, item: int) -> str:
        """Returns what a work item is of, for the message that its worker died; "" for nothing."""
        del item
        return ""

    def release(self) -> None:
        """Frees buffers that items have shared, at the end of a bundle; others may follow."""

    def close(self) -> None:
        """Closes what a worker has open, when no items follow."""

    def phases(self) -> Iterator[Phase]:
        """Yields how far the stage is, from the files that finished items have written.

        A stage that nobody waits for yields nothing, nor does one whose items are not known yet.
        """
        yield from ()


class OnceStage(Stage[RunT]):
    """A stage of one work item, such as a plan that follows from all results before it."""

    def items(self) -> int:
        """Returns 1."""
        return 1


def phases_of(stages: Iterable[Stage[Any]]) -> Iterator[Phase]:
    """Yields the phases of a job in order, as far as they are known."""
    for stage in stages:
        yield from stage.phases()


def do_item(stage: Stage[Any], item: int) -> Done | None:
    """Does a work item; returns None where its run is committed.

    Raises:
      RunError: one line, which the launching process finds in a file, too.
    """
    if is_over(stage.job.workspace):
        return None
    found: list[Done] = []
    with run_errors(stage.job):
        found.append(stage.do(item))
    return found[0] if found else None  # none: the run ended meanwhile


def _describe(stage: Stage[Any], item: int) -> str:
    """Returns what a work item is, for a message."""
    of_what = ""
    with suppress(Exception):  # the death of its worker matters more
        of_what = stage.describe(item)
    return f"item {item} of {stage.name}" + (f", {of_what}" if of_what else "")


class _ListWorkDoFn(beam.DoFn):
    def __init__(self, stage: Stage[Any]) -> None:
        self._stage = stage

    def process(self, element: Any, awaited: Any = None) -> Iterator[int]:
        del element, awaited  # which arrives when the stage before is done
        if not is_over(self._stage.job.workspace):
            with run_errors(self._stage.job):
                yield from range(self._stage.items())


class _DoItemsDoFn(beam.DoFn):
    """Numbers of work items -> (0, the records that each has added)."""

    def __init__(self, stage: Stage[Any]) -> None:
        self._stage = stage

    def start_bundle(self) -> None:
        self._held: list[int] = []

    def process(self, item: int) -> Iterator[tuple[int, int]]:
        if current_pool():
            self._held.append(item)
            return
        counters.count(counters.STARTED)
        with notes_in(self._stage.job.workspace):
            done = do_item(self._stage, item)
        yield from _counted(done)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        pool = current_pool()
        if self._held and pool:
            counters.count(counters.STARTED, len(self._held))
            stage = self._stage
            for done in pool.map(partial(do_item, stage), self._held, partial(_describe, stage)):
                for records in _counted(done):
                    yield WindowedValue(records, GlobalWindow().max_timestamp(), [GlobalWindow()])
        self._stage.release()

    def teardown(self) -> None:
        self._stage.close()


def _counted(done: Done | None) -> Iterator[tuple[int, int]]:
    if done is not None:
        for name, amount in done.counts.items():
            counters.count(name, amount)
        counters.count(counters.FINISHED)
        yield 0, done.records


class _NumberDoFn(beam.DoFn):
    """Anything -> (0, 1)."""

    def process(self, element: Any) -> Iterator[tuple[int, int]]:
        del element
        yield 0, 1


class _TotalDoFn(beam.DoFn):
    """Anything -> the sum of the values of side inputs."""

    def process(self, element: Any, *sums: list[tuple[int, int]]) -> Iterator[int]:
        del element
        yield sum(value for each in sums for _, value in each)


class DoStages(beam.PTransform[Any, beam.PCollection[int]]):
    """A pipeline, or a PCollection of anything -> the records of all stages as one number.

    The first stage begins when the PCollection is complete; the number comes after the last one.
    """

    def __init__(self, stages: Sequence[Stage[Any]]) -> None:
        super().__init__()
        self._stages = tuple(stages)

    def expand(self, before: Any) -> beam.PCollection[int]:
        """Lists, spreads and awaits the work items of one stage after the other.

        What is awaited is a side input: an element of the main input is there from the beginning,
        so a stage without work items is followed by the next one, too.
        """
        pipeline, awaited, sums = before, [], []
        if isinstance(before, beam.PCollection):
            pipeline = before.pipeline
            if not before.windowing.is_default():
                before = before | "IgnoreWindows" >> beam.WindowInto(GlobalWindows())
            awaited = [AsList(before | "NumberInput" >> _summed(_NumberDoFn()))]
        for stage in self._stages:
            name = stage.name
            done = (
                pipeline
                | f"Begin{name}" >> beam.Impulse()
                | f"List{name}" >> beam.ParDo(_ListWorkDoFn(stage), *awaited).with_output_types(int)
                | f"Spread{name}" >> beam.Reshuffle()
                | name >> _summed(_DoItemsDoFn(stage))
            )
            awaited = [AsList(done)]
            sums += awaited
        begin = pipeline | "BeginTotal" >> beam.Impulse()
        return begin | "Total" >> beam.ParDo(_TotalDoFn(), *sums).with_output_types(int)


@beam.ptransform_fn
def _summed(elements: beam.PCollection[Any], function: beam.DoFn) -> beam.PCollection[Any]:
    """Elements -> the sum of the numbers that a function gives for them; nothing without any."""
    return (
        elements
        | "Do" >> beam.ParDo(function).with_output_types(tuple[int, int])
        | "Await" >> beam.CombinePerKey(sum)
    )


class RunStages(beam.PTransform[Any, beam.PCollection[dict[str, Any]]]):
    """A pipeline, or a PCollection to wait for -> the counts of the finished dataset.

    Memory: the numbers of a stage's work items, and what one item takes in each worker.
    """

    def __init__(self, stages: Sequence[Stage[Any]], commit: CommitSpec) -> None:
        """Takes the stages of one job, and what its manifest says."""
        super().__init__()
        self._stages = tuple(stages)
        self._commit = commit

    def expand(self, begin: Any) -> beam.PCollection[dict[str, Any]]:
        """Does the stages, then publishes the shards and writes `_SUCCESS`."""
        return (
            begin
            | "DoStages" >> DoStages(self._stages)
            | "CommitDataset" >> CommitDataset(self._stages[0].job, self._commit)
        )
