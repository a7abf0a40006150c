"""End a run from within a work item: write the reason, and check the budget of rejects.

The reason goes to a file of the workspace, because engines wrap the errors of workers in
tracebacks.
"""

from __future__ import annotations

from contextlib import suppress

from recordmill.records.errors import RunError
from recordmill.records.state import FormatError, decode
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.rejects import REASONS, Reject
from recordmill.transforms.dataset.run_state import DamagedStateError, pipeline_name
from recordmill.transforms.dataset.workspace import Run
from recordmill.transforms.storage import files

_MOST_REJECT_BYTES = 1 << 16
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
    folder = job.workspace.rejected_folder
    of_pipeline = bool(pipeline_name(job.workspace.plan_path))
    what, limit, advice = "inputs", "--max_rejected", _ADVICE
    if of_pipeline:
        what, limit, advice = "elements", "max_rejected", _ADVICE_OF_PIPELINES
    raise OverBudgetError(
        f"{rejected} of {inputs} {what} rejected ({_by_reason(reasons)}), which is {share:.3%} "
        f"where {limit} allows {job.max_rejected:.3%}; "
        f"{_first_reject(folder, of_pipeline=of_pipeline)}all are listed in {folder}; {advice}"
    )


def _by_reason(reasons: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))


def say_rejected(reasons: dict[str, int]) -> str:
    """Returns ", 3 rejected (broken_file 3)", "" for none."""
    count = sum(reasons.values())
    return f", {count} rejected ({_by_reason(reasons)})" if count else ""
