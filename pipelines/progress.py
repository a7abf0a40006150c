"""Watch a job: its phases, how long each took, the peak memory; show its progress meanwhile.

Progress is read from the files that finished tasks write, because engines report nothing before
their end. How it is shown: `progress_displays.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil

from recordmill.pipelines.planning.work_plan import Phase
from recordmill.pipelines.progress_displays import Display, Standing, choose_display
from recordmill.records.errors import RunError
from recordmill.transforms.storage import files

PROGRESS_THREAD = "progress"
_POLL_SECONDS = 0.5
_FIRST_POLL_SECONDS = 0.1
_REMOTE_POLLS = 10  # listing object storage costs requests: it is done at each tenth poll


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


@dataclass(slots=True)
class PhaseTime:
    """What a run did in a phase: seconds, as often as it was looked at, and the bytes it moved."""

    seconds: float = 0.0
    moved_bytes: int = 0


@dataclass
class Progress:
    """Watches a job from a thread of its own.

    Attributes:
      work: the folder of the job's temporary files.
      phases: returns the phases of the job and how far each is.
      display: what is shown, one of `PROGRESS_CHOICES`.
      peak_bytes: the most memory that all processes held together; None while it is unknown.
      clock: seconds, for the speed and the time between lines.
      is_done: the run has done its work; set before the end.
      times: phase -> what this run did in it, in order; those too short to be seen are missing.
    """

    work: str
    phases: Callable[[], Iterator[Phase]]
    display: str = "auto"
    peak_bytes: int | None = None
    clock: Callable[[], float] = time.monotonic
    is_done: bool = False
    times: dict[str, PhaseTime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=PROGRESS_THREAD, daemon=True)
        self._display: Display | None = None
        self._phase: Phase | None = None
        self._began = self._phase_began = self._looked_at = self.clock()
        self._bytes_before = 0

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._measure()
        if self._phase:
            self._count(self._phase)
        display = self._display = self._display or choose_display(self.display)
        display.close()
        if self.is_done:
            display.finish(self._standing(Phase("done", 1, 1), 0))

    def _watch(self) -> None:
        every = 1 if files.is_local(self.work) else _REMOTE_POLLS
        turn = 0
        # A short run is looked at more often: its phases are short too.
        while not self._stop.wait(
            min(_POLL_SECONDS, max(_FIRST_POLL_SECONDS, (self.clock() - self._began) / 20))
        ):
            self._measure()
            turn += 1
            if turn % every:
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

    def _count(self, phase: Phase) -> None:
        """Counts the time since the last look as that of a phase."""
        now = self.clock()
        self.times.setdefault(phase.name, PhaseTime()).seconds += now - self._looked_at
        self._looked_at = now

    def show(self, phase: Phase) -> None:
        """Notes how far a phase is, and shows it."""
        done_bytes = phase.size_bytes * phase.done // max(1, phase.total)
        is_new = self._phase is None or phase.name != self._phase.name
        self._count(phase)
        if is_new:
            self._phase_began, self._bytes_before = self.clock(), done_bytes
            self.times[phase.name].moved_bytes = phase.size_bytes - done_bytes
        self._phase = phase
        self._display = self._display or choose_display(self.display)
        self._display.show(self._standing(phase, done_bytes), is_new=is_new)

    def _standing(self, phase: Phase, done_bytes: int) -> Standing:
        now = self.clock()
        return Standing(
            phase,
            done_bytes,
            self._bytes_before,
            now - self._phase_began,
            now - self._began,
            self.peak_bytes,
        )
