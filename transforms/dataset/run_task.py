"""A task of a run: ends with its run, and tells the launching process why it failed.

A launcher that dies leaves its job on the engine, and the same command begins a second job of the
same run. Both write the same bytes under the same names. Whichever commits first deletes the
temporary files of both, so a task of the other does nothing from then on. Nor does a task that an
engine runs once more, because it lost a worker behind the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import apache_beam as beam

from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.dataset.error_budget import fail
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.workspace import Run, Workspace
from recordmill.transforms.storage import files

JobT = TypeVar("JobT", bound=Job)


def is_over(workspace: Workspace) -> bool:
    """Tells whether a run is committed: a dataset is there, and the plan, which a commit deletes,
    is gone.

    Nobody else finishes the run of a user's own pipeline: its dataset has its token.
    """
    if files.exists(workspace.plan_path) or not files.exists(workspace.success_path):
        return False
    return not workspace.of_pipeline or workspace.has_written_dataset


@contextmanager
def run_errors(job: Run) -> Iterator[None]:
    """Tells the launching process of an error of this run, raised within, and of no other.

    Raises:
      RunError: why the run must fail, in one line.
    """
    try:
        yield
    except Exception as error:
        if is_over(job.workspace):  # its files went away under the task
            return
        if isinstance(error, RunError):
            fail(job, error)
        if isinstance(error, UsageError):
            error.args = (job.worded(str(error)), *error.args[1:])
        raise


class RunTask(beam.DoFn, Generic[JobT]):
    """A DoFn of a planned job; subclasses define `work`, and load what the run keeps there."""

    def __init__(self, job: JobT) -> None:
        self._job = job

    def process(self, element: Any, awaited: Any = None) -> Iterator[Any]:
        """Yields what `work` does, and nothing where the run is committed.

        A side input is only awaited: its arrival means that stages before have done their work.
        """
        del awaited
        if not is_over(self._job.workspace):
            with run_errors(self._job):
                yield from self.work(element)

    def work(self, element: Any) -> Iterator[Any]:
        """Does the task of an element.

        Raises:
          RunError: why the run must fail, in one line.
        """
        raise NotImplementedError
