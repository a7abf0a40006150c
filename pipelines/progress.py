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
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from recordmill.pipelines.planning import Phase
from recordmill.records.errors import RunError
from recordmill.transforms import files

_LINES_EVERY_SECONDS = 10.0
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024 if hasattr(os, "sysconf") else 4


def resident_bytes(root: int | None = None) -> int:
    """Returns the memory of a process (this one by default) and its descendants together.

    0 where that is unknown. Pages that they share are counted for each.
    """
    root = root or os.getpid()
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
        while at not in (0, 1, root):
            at = parents.get(at, 0)
        if at == root:
            total += resident[pid]
    return total * _PAGE_KB * 1024


def _seconds(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@dataclass
class Progress:
    """Watches a job from a thread of its own.

    Attributes:
      work: where the job's temporary files lie.
      phases: tells how far its phases are.
      peak_bytes: the most memory that all processes held together.
    """

    work: str
    phases: Callable[[], Iterator[Phase]]
    peak_bytes: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._begun: dict[str, tuple[float, int]] = {}
        self._printed = ""
        self._printed_at = time.monotonic()

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
        rounds = 1 if files.is_local(self.work) else 10
        for turn in itertools.count(1):
            if self._stop.wait(0.5):
                return
            self.peak_bytes = max(self.peak_bytes, resident_bytes())
            if turn % rounds:
                continue
            try:
                self._show(self._phase())
            except (OSError, ValueError, KeyError, RunError):
                continue  # the commit is just removing what was to be read

    def _phase(self) -> Phase:
        """Returns the first phase that is not done."""
        phases = self.phases()
        return next((p for p in phases if p.done < p.total), Phase("commit", 0, 1))

    def _show(self, phase: Phase) -> None:
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
