"""The options of the engine that runs a job, and of how a run shows itself."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from recordmill.records.errors import UsageError
from recordmill.records.spec import Spec, option

STALL_SECONDS = 600.0
LOCAL_RUNNERS = ("direct", "DirectRunner", "FnApiRunner")  # names of this machine


class RunnerSpec(Spec, frozen=True, kw_only=True):
    """Where work is done; Beam's own flags, which are no options of ours, configure it further.

    Attributes:
      runner: "direct" is this machine.
    """

    group: ClassVar[str] = "engine"

    runner: Annotated[str, option(
        "direct (this machine, all cores), flink, dataflow, prism, or any of Beam's runners; "
        "Beam's own flags configure it.", short="this machine, or flink, dataflow, prism",
        value="NAME", of_run=True, fingerprint=False, example="flink"
    )] = "direct"  # fmt: skip


class EngineSpec(RunnerSpec, frozen=True, kw_only=True):
    """Where a job runs, and how it shows itself.

    Attributes:
      direct_num_workers: processes of this machine; 0: as many as the input is worth.
      stall_timeout: seconds without progress after which a run of this machine ends; 0: never.
      wait: wait for the end of the job.
      config: the file of options, which are among the others already.
      progress: how progress is shown.
      report: write a page about the dataset at the end.
    """

    direct_num_workers: Annotated[int, option(
        "Processes of the direct runner; 0 means one for a small input, else one per core.", ge=0,
        short="processes; 0: as many as the input is worth", value="N", of_run=True,
        fingerprint=False, example="4"
    )] = 0  # fmt: skip
    stall_timeout: Annotated[float, option(
        "End a run of this machine, and print where each process stands, when none of them has "
        "computed, read or written anything for that long; 0: wait for ever.", ge=0,
        value="SECONDS", of_run=True, fingerprint=False, example="1800"
    )] = STALL_SECONDS  # fmt: skip
    wait: Annotated[bool, option(
        "Wait for the job's end; --no_wait submits the job, prints where it runs, and ends.",
        negative="no_wait", of_run=True, fingerprint=False, example="--no_wait"
    )] = True  # fmt: skip
    config: Annotated[str | None, option(
        "A file of flags, a line `name: value` each, such as _meta/config.yaml of a dataset; "
        "flags of the command line go before.", value="FILE.yaml", of_run=True, fingerprint=False,
        example="ds/_meta/config.yaml"
    )] = None  # fmt: skip
    progress: Annotated[Literal["auto", "bar", "log", "json", "none"], option(
        "How progress is shown on standard error: a bar, a line each half minute (log), an object "
        "a line for machines (json), or not; auto is a bar in a terminal or notebook, else log.",
        value="HOW", of_run=True, fingerprint=False, example="json"
    )] = "auto"  # fmt: skip
    report: Annotated[bool, option(
        "Write a page about the dataset at the end of the run: _meta/report.html, see `recordmill "
        "report`.", short="end with a page about the dataset", of_run=True, fingerprint=False
    )] = False  # fmt: skip

    def check(self) -> None:
        """Checks that the process that writes the report is there at the end."""
        if self.report and not self.wait:
            raise UsageError(
                "--report is written by the process that waits for the job's end; leave out "
                "--no_wait, or run `recordmill report` on the dataset"
            )
