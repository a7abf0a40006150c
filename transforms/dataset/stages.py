"""Stages: one mechanism for every job.

A job is a list of stages. A stage has a name and two functions: `items` counts its work items when
the stage before is done, and `do` does one of them. The mechanism does the rest, once, for all:

* it waits for all items of a stage before it begins the next one, and commits at the end;
* only numbers cross a stage boundary; what they mean, and all results, lie in files;
* an engine may do an item again, or twice at once: `do` finds its result on disk, or writes the
  same bytes under the same name, by a rename. So a run that was killed goes on where it stood;
* an item ends with its run: where the run is committed, or its folders belong to another one,
  nothing is done, and nothing is written;
* the first error of an item is written as one line for the launching process;
* counters and progress are the same for all jobs.

`do_here` does the stages on this machine, in this process or in those of `worker_pool.py`. On every
other engine Beam spreads their items: `stage_pipeline.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.run_errors import is_over, run_errors
from recordmill.transforms.dataset.worker_pool import WorkerPool
from recordmill.transforms.dataset.workspace import Run

RunT = TypeVar("RunT", bound=Run)


@dataclass(frozen=True, slots=True)
class Done:
    """The numbers of a work item that is done; everything else of it lies in files.

    Attributes:
      records: that it has added to the dataset.
      counts: counter -> amount, for the engine's console and `_meta/run.json`.
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


def count_items(stage: Stage[Any]) -> int:
    """Returns the number of work items of a stage that begins; 0 where its run is committed.

    Raises:
      RunError: one line, which the launching process finds in a file, too.
    """
    found = 0
    if not is_over(stage.job.workspace):
        with run_errors(stage.job):
            found = stage.items()
    return found


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


def do_here(
    stages: Iterable[Stage[Any]],
    pool: WorkerPool | None = None,
    *,
    check: Callable[[], object] = lambda: None,
) -> Done:
    """Does all stages of a job on this machine; returns what their items have added together.

    Memory: what one item takes, in each process.

    Args:
      stages: in order.
      pool: does the items; None where this process does.
      check: called before each item that this process does; ends the run by an error.

    Raises:
      RunError: why the run failed, in one line.
      Exception: another error of an item.
    """
    records = 0
    counts: Counter[str] = Counter()
    for given in stages:
        # A copy: what it loads goes with it, and progress asks the given one meanwhile.
        stage = copy(given)
        items = count_items(stage)
        if items:
            counts[counters.STARTED] += items
        try:
            for done in _do_items(stage, range(items), pool, check):
                if done is not None:
                    counts[counters.FINISHED] += 1
                    counts.update(done.counts)
                    records += done.records
            stage.release()
        finally:
            stage.close()
    return Done(records, dict(sorted(counts.items())))


def _do_items(
    stage: Stage[Any], items: range, pool: WorkerPool | None, check: Callable[[], object]
) -> Iterator[Done | None]:
    if pool:
        yield from pool.map(partial(do_item, stage), items, partial(_describe, stage))
        return
    for item in items:
        check()
        yield do_item(stage, item)
