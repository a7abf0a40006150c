"""Show the progress of a job: phase, share, speed, time left; and measure the peak memory.

Progress is read from the files that finished tasks write, because engines report nothing before
their end. A terminal shows a bar by tqdm; elsewhere a plain line is printed each half minute.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psutil
from tqdm import tqdm

from recordmill.pipelines.planning.work_plan import Phase
from recordmill.records.errors import RunError
from recordmill.transforms.storage import files

PROGRESS_THREAD = "progress"
_POLL_SECONDS = 0.5
_REMOTE_POLLS = 10  # listing object storage costs requests: it is done at each tenth poll
_LINES_EVERY_SECONDS = 30.0
_BAR = "{desc} {percentage:3.0f}%|{bar:30}| {rate_noinv_fmt}, {remaining} left"
_LINE = "{desc} {percentage:.0f}%  {rate_noinv_fmt}  {remaining} left"
_STAGE = "{desc}"  # of a phase whose size says nothing


def resident_bytes(root: int | None = None) -> int | None:
    """Returns the memory of a process (this one by default) and its descendants together.

    Pages that they share are counted for each. None if the system does not report it.
    """
    sizes = []
    try:
        process = psutil.Process(root)
        processes = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    for each in processes:
        try:
            sizes.append(each.memory_info().rss)
        except psutil.Error:
            continue  # it has just ended
    return sum(sizes) or None


class _StandardError:
    """Standard error as it is at the moment of a write: engines replace it while they run."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def fileno(self) -> int:
        return sys.stderr.fileno()


class _Bar(tqdm):
    """A bar without tqdm's own thread and without its lock among processes."""

    monitor_interval = 0
    _lock = threading.RLock()


@dataclass
class Progress:
    """Watches a job from a thread of its own.

    Attributes:
      work: the folder of the job's temporary files.
      phases: returns the phases of the job and how far each is.
      peak_bytes: the most memory that all processes held together; None while it is unknown.
      clock: seconds, for the speed and the time between lines.
    """

    work: str
    phases: Callable[[], Iterator[Phase]]
    peak_bytes: int | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=PROGRESS_THREAD, daemon=True)
        self._bar: _Bar | None = None
        self._phase = ""
        self._began = self._printed_at = self.clock()
        self._bytes_before = 0
        self._printed = ""

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._measure()
        self._close_bar()

    def _watch(self) -> None:
        polls = 1 if files.is_local(self.work) else _REMOTE_POLLS
        for turn in itertools.count(1):
            if self._stop.wait(_POLL_SECONDS):
                return
            self._measure()
            if turn % polls:
                continue
            try:
                self.show(self._unfinished())
            except (OSError, ValueError, KeyError, RunError):
                continue  # the commit has just removed what was to be read

    def _measure(self) -> None:
        size = resident_bytes()
        if size is not None:
            self.peak_bytes = max(self.peak_bytes or 0, size)

    def _unfinished(self) -> Phase:
        """Returns the first phase that is not done."""
        phases = self.phases()
        return next((p for p in phases if p.done < p.total), Phase("commit", 0, 1))

    def show(self, phase: Phase) -> None:
        """Shows how far a phase is: at once on a terminal, else if the last line is old enough."""
        done_bytes = phase.size_bytes * phase.done // max(1, phase.total)
        if phase.name != self._phase:
            self._close_bar()
            self._phase, self._began, self._bytes_before = phase.name, self.clock(), done_bytes
        if sys.stderr.isatty():
            self._show_bar(phase, done_bytes)
        else:
            self._print_line(phase, done_bytes)

    def _show_bar(self, phase: Phase, done_bytes: int) -> None:
        if self._bar is None:
            self._bar = _Bar(
                file=_StandardError(),
                leave=False,
                dynamic_ncols=True,
                desc=phase.name,
                **self._layout(phase, _BAR),
            )
        self._bar.n = done_bytes
        self._bar.refresh()

    def _print_line(self, phase: Phase, done_bytes: int) -> None:
        now = self.clock()
        if now - self._printed_at < _LINES_EVERY_SECONDS:
            return
        line = tqdm.format_meter(
            n=done_bytes,
            elapsed=now - self._began,
            prefix=phase.name,
            **self._layout(phase, _LINE),
        )
        if line != self._printed:
            print(line, file=sys.stderr, flush=True)
            self._printed, self._printed_at = line, now

    def _layout(self, phase: Phase, layout: str) -> dict[str, Any]:
        return {
            "total": phase.size_bytes or None,
            "initial": self._bytes_before,
            "unit": "B",
            "unit_scale": True,
            "bar_format": layout if phase.size_bytes else _STAGE,
        }

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
