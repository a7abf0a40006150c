"""End a run from within a work item: write the reason, and check the budget of rejects.

The reason goes to a file of the workspace, because engines wrap the errors of workers in
tracebacks. A work item whose rejects alone are over the budget of the run stops at once: a file of
1 kB can say that it has 2 billion rows without text.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import NoReturn

from recordmill.records.errors import RunError
from recordmill.records.state import FormatError, decode
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.rejects import REASONS, Reject, RejectFile, write_rejects
from recordmill.transforms.dataset.run_state import DamagedStateError, pipeline_name
from recordmill.transforms.dataset.workspace import Run, Workspace
from recordmill.transforms.storage import files

_MOST_REJECT_BYTES = 1 << 16
_SPOOL_BYTES = 1 << 22
# So many rejects of a work item are always listed: a person mends all files at once.
_ALWAYS_READ = 10_000
_ADVICE = (
    "fix them and start anew with --overwrite, or raise --max_rejected and run the same command "
    "again"
)
_ADVICE_OF_PIPELINES = (
    "filter them out before they are written, or raise max_rejected, and run the pipeline again"
)


def _first_reject(folder: str, *, of_pipeline: bool) -> str:
    """Returns the source and the reason of the first reject in a folder.

    Args:
      folder: of the lists of rejects.
      of_pipeline: sources are elements, which have no position.
    """
    with suppress(RunError, OSError):  # the number of rejects matters more
        for path in sorted(files.list_files(folder)):
            line = files.read_bytes(path, 0, _MOST_REJECT_BYTES).partition(b"\n")[0]
            with suppress(FormatError):  # cut
                reject = decode(line, Reject)
                source = " ".join(reject.source.split())
                reason = REASONS[reject.reason]
                detail = " ".join(reject.detail.split())
                if detail:
                    reason = f"{reason} ({detail})"
                if of_pipeline:
                    return f"the first is {source}: {reason}; "
                return f"the first is {source} at position {reject.position}: {reason}; "
    return ""


class OverBudgetError(RunError):
    """More inputs were rejected than the job allows."""


class UnfitOptionsError(RunError):
    """The options do not fit the input, so no command can finish the run: another begins anew."""


def fail(job: Run, error: RunError) -> None:
    """Writes the reason to the file that the launching process reads, and raises it."""
    error.args = (job.worded(str(error)), *error.args[1:])
    with suppress(RunError, OSError):  # the storage may be what failed
        job.workspace.check_own()  # a folder that was deleted meanwhile must not come back
        files.write_bytes(job.workspace.failure_path, str(error).encode())
        if isinstance(error, OverBudgetError | DamagedStateError):
            files.write_bytes(job.workspace.over_budget_path, b"\n")
        if isinstance(error, UnfitOptionsError):
            files.write_bytes(job.workspace.unfit_options_path, b"\n")
    raise error


def check_budget(job: Job, *, accepted: int, reasons: dict[str, int]) -> None:
    """Checks that no more inputs were rejected than allowed.

    Raises:
      OverBudgetError: how many, why, and what can be done.
    """
    rejected = sum(reasons.values())
    inputs = accepted + rejected
    share = rejected / max(inputs, 1)
    if share <= job.max_rejected:
        return
    what, limit, advice = _words(job)
    raise OverBudgetError(
        f"{rejected} of {inputs} {what} rejected ({_by_reason(reasons)}), which is {share:.3%} "
        f"where {limit} allows {job.max_rejected:.3%}; "
        f"{_listed(job, job.workspace, 'all')}; {advice}"
    )


def _words(job: Job) -> tuple[str, str, str]:
    """Returns how a job's user calls inputs and the budget, and what can be done."""
    if pipeline_name(job.workspace.plan_path):
        return "elements", "max_rejected", _ADVICE_OF_PIPELINES
    return "inputs", "--max_rejected", _ADVICE


def _listed(job: Job, workspace: Workspace, which: str) -> str:
    """Returns the first reject that is listed in a workspace, and where more are."""
    folder = workspace.rejected_folder
    of_pipeline = bool(pipeline_name(job.workspace.plan_path))
    return f"{_first_reject(folder, of_pipeline=of_pipeline)}{which} are listed in {folder}"


def most_rejects(share: float, most_inputs: int = 0) -> int:
    """Returns how many rejects a part of the input may have, whatever the rest of it has.

    Args:
      share: of inputs that may be rejected.
      most_inputs: that the run can use; 0 where nobody knows.
    """
    if not share:
        return _ALWAYS_READ
    if share == 1 or not most_inputs:
        return sys.maxsize
    return max(_ALWAYS_READ, int(share / (1 - share) * most_inputs))


class RejectList:
    """The rejects of a work item, counted by reason, a line for each.

    Lists of work items, one after the other, are the same lines however the input is cut. Only the
    budget limits their size.

    Args:
      job: of the work item.
      number: of its list.
      workspace: where the list is; None: the job's.
      most_inputs: that the whole run can use; 0 where nobody knows.
    """

    def __init__(
        self, job: Job, number: int, workspace: Workspace | None = None, most_inputs: int = 0
    ) -> None:
        self.reasons: Counter[str] = Counter()
        self._job = job
        self._number = number
        self._workspace = workspace or job.workspace
        self._left = most_rejects(job.max_rejected, most_inputs)
        self._lines = SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115

    def __enter__(self) -> RejectList:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def add(self, rejects: Sequence[Reject]) -> None:
        """Adds rejects, in order.

        Raises:
          OverBudgetError: the work item alone has more than the run may have.
        """
        for reject in rejects:
            self.reasons[reject.reason] += 1
            self._lines.write(reject.to_line().encode())
            self._left -= 1
            if self._left < 0:
                self.fail()

    def fail(self) -> NoReturn:
        """Writes the list, and ends the run."""
        self.write()
        what, limit, advice = _words(self._job)
        rejected = self.reasons.total()
        raise OverBudgetError(
            f"{rejected} {what} of a part of the input rejected ({_by_reason(self.reasons)}), "
            f"which alone are more than {limit} allows, {self._job.max_rejected:.3%} of all; it is "
            f"not read on; {_listed(self._job, self._workspace, 'these')}; {advice}"
        )

    def write(self) -> RejectFile:
        """Writes the list; without rejects there is no file."""
        return write_rejects(
            self._lines, number=self._number, path=self._workspace.rejected_path(self._number),
            partial_folder=self._workspace.partial_folder,
        )  # fmt: skip


def _by_reason(reasons: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))


def say_rejected(reasons: dict[str, int]) -> str:
    """Returns ", 3 rejected (broken_file 3)", "" for none."""
    count = sum(reasons.values())
    return f", {count} rejected ({_by_reason(reasons)})" if count else ""
