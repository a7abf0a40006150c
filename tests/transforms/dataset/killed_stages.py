"""Runs toy stages once for each of their steps: killed there, then finished by another process.

    python -m tests.transforms.dataset.killed_stages FOLDER here|beam

Prints for each step what the run that was killed had written, and what was done by whom in the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from recordmill.transforms.dataset.stages import Done, Stage, do_here
from recordmill.transforms.storage import files

from .small_job import SmallJob, small_job

ITEMS = 2
_left = -1  # steps until this process kills itself; below 0 it does not


def step() -> None:
    """A moment at which a process may be killed."""
    global _left
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    _left -= 1


class Put(Stage[SmallJob]):
    """Writes a file for each item: what the stage before has, and who wrote it."""

    def __init__(self, job: SmallJob, name: str, before: str = "") -> None:
        super().__init__(job)
        self.name = name
        self._before = before

    def _path(self, name: str, item: int) -> str:
        return f"{self.job.workspace.work}/{name}-{item}"

    def items(self) -> int:
        step()
        return ITEMS

    def do(self, item: int) -> Done:
        path = self._path(self.name, item)
        if files.size(path) < 0:
            step()
            found = [
                files.size(self._path(self._before, i)) for i in range(ITEMS * bool(self._before))
            ]
            with files.writing(path) as handle:
                handle.write(f"{min(found, default=1) > 0} {os.getpid()}".encode())
                handle.flush()
                step()
            step()
        return Done(1)


def run_in_beam(stages: Sequence[Stage[SmallJob]]) -> None:
    """Runs stages in Beam's runner of one process."""
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.pipeline import Pipeline
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    from recordmill.transforms.dataset.stage_pipeline import DoStages

    with Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
        _ = pipeline | DoStages(stages)


def run(job: SmallJob, steps: int, how: str) -> int:
    """Runs the stages in a process of its own; returns its status, below 0 the signal."""
    global _left
    process = os.fork()
    if not process:
        _left = steps
        stages = [Put(job, "First"), Put(job, "Second", "First")]
        if how == "beam":
            run_in_beam(stages)
        else:
            do_here(stages)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def written(job: SmallJob) -> dict[str, str]:
    """The content of what items have written, by name."""
    paths = Path(job.workspace.work).glob("*-[0-9]")
    return {path.name: path.read_text() for path in sorted(paths)}


def main(folder: str, how: str) -> None:
    """Kills a run at step 0, at step 1 and so on, until one is not killed."""
    steps, status = 0, -1
    while status:
        job = small_job(Path(folder) / str(steps), token="0" * 16)
        status = run(job, steps, how)
        before = written(job)
        print(json.dumps([status, before, run(job, -1, how), written(job)]), flush=True)
        steps += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
