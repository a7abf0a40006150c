"""`_meta/run.json` and `_meta/report.html`: what a run leaves beside the dataset that it made.

Both say how a run went, and so differ between two runs that write the same bytes. No manifest lists
them, `verify` does not ask for them, and a dataset without them is complete: where one cannot be
written, that is a warning.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.progress import Progress
from recordmill.records import manifest as m
from recordmill.records.manifest import Manifest
from recordmill.records.state import encode
from recordmill.transforms.dataset.counters import FINISHED, STARTED
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """How a run went.

    Attributes:
      command: of `recordmill`.
      engine: as in --runner.
      workers: the processes of this machine, or the workers that the input was cut for.
      resumed: it finished an earlier run, whose work is in no duration and no speed.
      began: when it was started, in UTC, as ISO 8601.
      plan_seconds, seconds: of planning alone, and of all until the dataset was complete.
      input_bytes: of the whole input.
      input_modified: see `Inventory.modified`.
      counters: of the job, {} where the engine has none.
      notes: what planning said of the input.
    """

    command: str
    engine: str
    workers: int
    resumed: bool
    began: str
    plan_seconds: float
    seconds: float
    input_bytes: int
    input_modified: str
    counters: dict[str, int]
    notes: Sequence[str] = ()

    def to_json(self, progress: Progress, manifest: Manifest) -> dict[str, Any]:
        """Returns the content of `run.json`, whose fields docs/guides/progress.md names."""
        records = sum(shard.records for shard in manifest.shards)
        retried = None
        if STARTED in self.counters:
            retried = self.counters[STARTED] - self.counters.get(FINISHED, 0)
        phases: list[dict[str, Any]] = [{"name": "plan", "seconds": round(self.plan_seconds, 2)}]
        output_bytes = sum(shard.file_bytes for shard in manifest.shards)
        for name, time in progress.times.items():
            phase: dict[str, Any] = {"name": name, "seconds": round(time.seconds, 2)}
            moved = time.moved_bytes
            if name == "write" and moved and not self.resumed:
                moved = output_bytes  # it was an estimate before
            if moved and time.seconds:
                phase["bytes"] = moved
                phase["bytes_per_second"] = round(moved / time.seconds)
            phases.append(phase)
        return {
            "command": self.command,
            "engine": self.engine,
            "workers": self.workers,
            "resumed": self.resumed,
            "began": self.began,
            "seconds": round(self.seconds, 2),
            "phases": phases,
            "input_bytes": self.input_bytes,
            "input_modified": self.input_modified,
            "input_bytes_per_second": round(self.input_bytes / self.seconds),
            "examples": records,
            "examples_per_second": round(records / self.seconds, 1),
            "output_bytes": output_bytes,
            "peak_memory_bytes": progress.peak_bytes,
            "retried_work_items": retried,
            "counters": self.counters,
            "notes": list(self.notes),
            "versions": manifest.versions,
            "machine": {
                "system": platform.platform(),
                "cores": usable_cores(),
                "memory_bytes": _memory_bytes(),
            },
        }


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def write_run(workspace: Workspace, facts: dict[str, Any]) -> None:
    """Writes `run.json`; where that fails it says so, because the dataset is complete."""
    try:
        _write(workspace, m.RUN_PATH, encode(facts))
    except Exception as error:
        _warn(m.RUN_PATH, error)


def write_report_of(workspace: Workspace, vocab_file: str) -> str:
    """Writes `report.html`; returns its path, "" where that failed, which it says.

    Args:
      workspace: of a run whose dataset is complete.
      vocab_file: the vocabulary of the dataset; "" where it has none.
    """
    try:
        from recordmill.pipelines.commands.report import make_report

        _write(workspace, m.REPORT_PATH, make_report(workspace.output, vocab_file=vocab_file))
    except Exception as error:  # a defect of the page is no defect of the dataset
        _warn(m.REPORT_PATH, error)
        return ""
    return files.join(workspace.output, m.REPORT_PATH)


def _write(workspace: Workspace, path: str, content: bytes) -> None:
    files.write_bytes(files.join(workspace.output, path), content, workspace.partial_folder)


def _warn(path: str, error: Exception) -> None:
    what = " ".join(str(error).split()) or type(error).__name__
    print(
        f"recordmill: warning: {path} could not be written: {what}; the dataset is complete",
        file=sys.stderr,
    )
