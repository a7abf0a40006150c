"""What is done for a run ends with it, and tells the launching process why it failed.

A launcher that dies leaves its job on the engine, and the same command begins a second job of the
same run. Both write the same bytes under the same names. Whichever commits first deletes the
temporary files of both, so what is left of the other does nothing from then on. Nor does what an
engine runs once more, because it lost a worker behind the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from recordmill.records.errors import (
    RunError,
    UsageError,
    WrongElementError,
    hide_passwords,
    visible,
)
from recordmill.transforms.dataset.error_budget import fail
from recordmill.transforms.dataset.workspace import Run, Workspace
from recordmill.transforms.storage import files

_LOGGER = logging.getLogger("recordmill")


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


@contextmanager
def one_line_first() -> Iterator[None]:
    """Logs the line of an error that a user can cause, before Beam prints its traceback.

    Beam would log a traceback of its own too, and raise a second error because of the first, with
    the name of a stage behind its message; not so of an error that says it has this name already.
    """
    try:
        yield
    except (UsageError, RunError, WrongElementError) as error:
        _LOGGER.error("%s", visible(hide_passwords(str(error))))
        error._tagged_with_step = True  # type: ignore[union-attr]
        raise
