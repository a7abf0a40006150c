"""Watch a job: its phases, how long each took, the peak memory; show its progress meanwhile.

Progress is read from the files that finished tasks write, because engines report nothing before
their end. How it is shown: `progress_displays.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import psutil

from recordmill.pipelines.progress_displays import Display, Standing, choose_display
from recordmill.records.errors import RunError
from recordmill.transforms.dataset.stages import Phase
from recordmill.transforms.storage import files

PROGRESS_THREAD = "progress"
_POLL_SECONDS = 0.5
_FIRST_POLL_SECONDS = 0.1
_MEASURE_SECONDS = 1.0
_COMMIT = "commit"
_UNREADABLE = (OSError, ValueError, KeyError, RunError)
_REMOTE_POLLS = 10  # listing object storage costs requests: it is done at each tenth poll


def resident_bytes(root: int | None = None) -> int | None:
    """Returns the memory of a process (this one by default) and its descendants together.

    On Linux, pages that several of them share are counted once. None if the system does not report
    it.
    """
    sizes = []
    try:
        process = psutil.Process(root)
        processes = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    for each in processes:
        try:
            if psutil.LINUX:
                sizes.append(each.memory_full_info().pss)
            else:
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
      display: what is shown, see `EngineSpec.progress`.
      peak_bytes: the most memory that all processes held together; None while it is unknown.
      clock: seconds, for the speed and the time between lines.
      is_done: the run has done its work; set before the end.
      times: phase -> what this run did in it, in order; those too short to be seen are missing.

    Phases are looked at in their order: the commit removes the files that they are read from, and
    what is gone then was done.
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
        self._measure_at = self._began
        self._bytes_before = 0
        self._key: tuple[int, str] | None = None  # position and name of the phase that is shown
        self._first = 0  # position of the first phase that is not done
        self._known: list[Phase] = []
        self._done_before: dict[tuple[int, str], int] = {}  # bytes of earlier runs, by key

    def __enter__(self) -> Progress:
        if not self._known:
            with suppress(*_UNREADABLE):
                self.begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._measure()
        if self._phase:
            self._count(self._phase)
        display = self._display = self._display or choose_display(self.display)
        if self.is_done:
            shown = self._key
            self._end()
            for position, phase in enumerate([*self._known, Phase(_COMMIT, 1, 1)]):
                if position >= self._first and phase.name != (shown and shown[1]):
                    self._pass(phase)
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
            with suppress(*_UNREADABLE):  # the commit has just removed what was to be read
                self.look()

    def _measure(self) -> None:
        now = self.clock()
        if now < self._measure_at:  # to find shared pages takes milliseconds of each process
            return
        self._measure_at = now + _MEASURE_SECONDS
        size = resident_bytes()
        if size is not None:
            self.peak_bytes = max(self.peak_bytes or 0, size)

    def begin(self) -> None:
        """Notes what earlier runs have done."""
        self._known = list(self.phases())
        self._first = _first_unfinished(self._known)
        for position, phase in enumerate(self._known):
            self._done_before[position, phase.name] = _done_bytes(phase)

    def look(self) -> None:
        """Shows how far the first phase is that is not done, and the end of those before."""
        phases = list(self.phases())
        first = _first_unfinished(phases)
        if first < self._first:
            if self._phase:
                self.show(self._phase, self._first)
            return
        for position in range(self._first, first):
            if (position, phases[position].name) != self._key:
                self._end()
                self._pass(phases[position])
        self._first, self._known = first, phases
        self.show(phases[first] if first < len(phases) else Phase(_COMMIT, 0, 1), first)

    def _count(self, phase: Phase) -> None:
        """Counts the time since the last look as that of a phase."""
        now = self.clock()
        self.times.setdefault(phase.name, PhaseTime()).seconds += now - self._looked_at
        self._looked_at = now

    def show(self, phase: Phase, position: int = 0) -> None:
        """Notes how far a phase is, and shows it; `position` is that among all phases."""
        done_bytes = _done_bytes(phase)
        is_new = self._key != (position, phase.name)
        if is_new:
            self._end()
        self._count(phase)
        if is_new:
            self._key = (position, phase.name)
            self._phase_began, self._bytes_before = self.clock(), done_bytes
        self._phase = phase
        self._display = self._display or choose_display(self.display)
        self._display.show(self._standing(phase, done_bytes), is_new=is_new)

    def _end(self) -> None:
        """Notes that the phase that is shown is done: all its bytes were moved, seen or not."""
        phase, key = self._phase, self._key
        if phase is None or key is None:
            return
        moved = phase.size_bytes - self._done_before.get(key, 0)
        self.times.setdefault(phase.name, PhaseTime()).moved_bytes += moved
        if phase.done < phase.total:
            self._show_end(phase)
        self._phase = self._key = None

    def _pass(self, phase: Phase) -> None:
        """Shows the end of a phase that no look saw, and whose speed is not known."""
        self._bytes_before = phase.size_bytes
        self._show_end(phase)

    def _show_end(self, phase: Phase) -> None:
        self._display = self._display or choose_display(self.display)
        ended = replace(phase, done=phase.total)
        self._display.end(self._standing(ended, phase.size_bytes))

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


def _first_unfinished(phases: Sequence[Phase]) -> int:
    """Returns the position of the first phase that is not done; behind the last where all are."""
    return next((i for i, p in enumerate(phases) if p.done < p.total), len(phases))


def _done_bytes(phase: Phase) -> int:
    return phase.size_bytes * phase.done // max(1, phase.total)
