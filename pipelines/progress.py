"""What a person sees while a job runs: phase, share, speed, time left; and the most memory used.

Progress is read from the files that tasks leave when they are done, because an engine tells nothing
until its end. On a terminal it is one line that changes; elsewhere a plain line now and then.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from dataclasses import dataclass

from recordmill.pipelines.planning import TextPlan
from recordmill.transforms import files
from recordmill.transforms.job import read_json

_LINES_EVERY_SECONDS = 10.0
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024 if hasattr(os, "sysconf") else 4


def resident_bytes() -> int:
    """Returns the memory of this process and its descendants together; 0 where that is unknown."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[pid], resident[pid] = int(fields[1]), int(fields[21])
    total = 0
    for pid in resident:
        at = pid
        while at not in (0, 1, os.getpid()):
            at = parents.get(at, 0)
        if at == os.getpid():
            total += resident[pid]
    return total * _PAGE_KB * 1024


def _seconds(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@dataclass(slots=True)
class _Phase:
    name: str
    done: int
    total: int
    size_bytes: int


@dataclass
class Progress:
    """Watches a job from a thread of its own.

    Attributes:
      plan: of the job.
      peak_bytes: the most memory that all processes held together.
    """

    plan: TextPlan
    peak_bytes: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._begun: dict[str, tuple[float, int]] = {}
        self._printed = ""
        self._printed_at = time.monotonic()
        self._shards: tuple[int, int] | None = None

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        if self._printed and self._is_terminal():
            self._write("\r\x1b[K")

    def _is_terminal(self) -> bool:
        return sys.stderr.isatty()

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def _watch(self) -> None:
        # Listing object storage costs requests; the memory of processes costs nothing to ask for.
        rounds = 1 if files.is_local(self.plan.job.work) else 10
        for turn in itertools.count(1):
            if self._stop.wait(0.5):
                return
            self.peak_bytes = max(self.peak_bytes, resident_bytes())
            if turn % rounds:
                continue
            try:
                self._show(self._phase())
            except (OSError, ValueError, KeyError):
                continue  # the commit is just removing what was to be read

    def _count(self, folder: str) -> int:
        return sum(path.endswith(".json") for path in files.list_files(folder))

    def _phase(self) -> _Phase:
        job, tree = self.plan.job, self.plan.tree
        for level in range(tree.levels + 1):
            done, total = self._count(files.join(job.work, f"runs-{level}")), tree.runs(level)
            if done < total:
                return _Phase("regroup" if level else "read", done, total, self.plan.input_bytes)
        if self._shards is None and files.exists(files.join(job.work, "shards.json")):
            splits = read_json(files.join(job.work, "shards.json"))["splits"]
            expected = sum(int(split["expected_bytes"]) for split in splits)
            self._shards = sum(int(split["shards"]) for split in splits), expected
        if self._shards is None:
            return _Phase("plan shards", 0, 1, 0)
        total, expected = self._shards
        done = self._count(files.join(job.staging, "done"))
        if done < total:
            return _Phase("write", done, total, expected)
        return _Phase("commit", 0, 1, 0)

    def _show(self, phase: _Phase) -> None:
        now = time.monotonic()
        begun, done_before = self._begun.setdefault(phase.name, (now, phase.done))
        text = phase.name
        if phase.size_bytes:
            text += f" {100 * phase.done // phase.total}%"
            elapsed, done = now - begun, phase.done - done_before
            if done and elapsed > 0:
                speed = phase.size_bytes * done / phase.total / elapsed
                left = elapsed * (phase.total - phase.done) / done
                text += f"  {speed / 1e6:.1f} MB/s  {_seconds(left)} left"
        if self._is_terminal():
            self._write(f"\r\x1b[K{text}")
        elif text != self._printed and now - self._printed_at >= _LINES_EVERY_SECONDS:
            self._write(text + "\n")
            self._printed_at = now
        else:
            return
        self._printed = text
