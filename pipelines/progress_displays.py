"""How progress is shown: a bar for people, lines in a log, JSON for machines."""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from recordmill.transforms.dataset.stages import Phase

_LINES_EVERY_SECONDS = 30.0
_OBJECTS_EVERY_SECONDS = 1.0
# Of a phase; while nothing is done, and its speed is not known; and where its size says nothing.
_BARS = (
    "{desc} {percentage:3.0f}%|{bar}| {rate_noinv_fmt} [{elapsed}, {remaining} left]",
    "{desc} {percentage:3.0f}%|{bar}| [{elapsed}]",
    "{desc} [{elapsed}]",
)
_LINES = (
    "{desc} {percentage:.0f}%  {rate_noinv_fmt}  {remaining} left",
    "{desc} {percentage:.0f}%",
    "{desc}",
)
_COLUMNS = 80  # of a terminal that does not say how many it has


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a run is.

    Attributes:
      phase: the one that is not done.
      done_bytes: of it, earlier runs included; `bytes_before` are those of earlier runs alone.
      phase_seconds: since the phase began; `seconds` since the run began.
      memory_bytes: the most memory so far; None while it is unknown.
    """

    phase: Phase
    done_bytes: int
    bytes_before: int
    phase_seconds: float
    seconds: float
    memory_bytes: int | None

    @property
    def bytes_per_second(self) -> float | None:
        """The speed of this run in this phase, None while nothing is done."""
        moved = self.done_bytes - self.bytes_before
        return moved / self.phase_seconds if moved > 0 and self.phase_seconds > 0 else None

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `--progress=json`; docs/guides/progress.md has its fields."""
        phase, speed = self.phase, self.bytes_per_second
        left = (phase.size_bytes - self.done_bytes) / speed if speed else None
        return {
            "phase": phase.name,
            "done": phase.done,
            "total": phase.total,
            "share": round(phase.done / max(1, phase.total), 4),
            "bytes": self.done_bytes,
            "total_bytes": phase.size_bytes,
            "bytes_per_second": None if speed is None else round(speed),
            "seconds": round(self.seconds, 1),
            "seconds_left": None if left is None else round(left, 1),
            "memory_bytes": self.memory_bytes,
        }


class Display:
    """Where progress is shown; this one shows nothing."""

    def show(self, standing: Standing, *, is_new: bool) -> None:
        """Shows how far a run is; `is_new`: its phase has just begun."""

    def end(self, standing: Standing) -> None:
        """Shows that a phase is done."""

    def finish(self, standing: Standing) -> None:
        """Shows that a run is done."""

    def close(self) -> None:
        """Removes what must not stay."""


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


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except (OSError, ValueError, AttributeError):
        return _COLUMNS


def _bar_format(standing: Standing, layouts: tuple[str, str, str]) -> str:
    moving, waiting, stage = layouts
    if not standing.phase.size_bytes:
        return stage
    return waiting if standing.bytes_per_second is None else moving


def _layout(standing: Standing, layouts: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "total": standing.phase.size_bytes or None,
        "initial": standing.bytes_before,
        "unit": "B",
        "unit_scale": True,
        "bar_format": _bar_format(standing, layouts),
    }


class BarDisplay(Display):
    """One bar, of the phase that works; it goes when the phase ends."""

    def __init__(self) -> None:
        self._bar: Any = None

    def _make(self, standing: Standing) -> Any:
        return _Bar(
            file=_StandardError(),
            leave=False,
            ncols=_columns(),
            desc=standing.phase.name,
            **_layout(standing, _BARS),
        )

    def _width(self) -> int | str | None:
        return _columns()  # now: the window may have changed

    def show(self, standing: Standing, *, is_new: bool) -> None:
        """Draws the bar."""
        if is_new:
            self.close()
        if self._bar is None:
            self._bar = self._make(standing)
        elif self._bar.bar_format:  # a notebook's own has none
            self._bar.bar_format = _bar_format(standing, _BARS)
        self._bar.n = standing.done_bytes
        self._bar.ncols = self._width()
        self._bar.refresh()

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class NotebookDisplay(BarDisplay):
    """The bar of a notebook, which is a widget."""

    def _make(self, standing: Standing) -> Any:
        from tqdm.notebook import tqdm as widget

        layout = _layout(standing, _BARS)
        if standing.phase.size_bytes:
            del layout["bar_format"]  # the widget has its own: n/total [elapsed<left, speed]
        return widget(desc=standing.phase.name, leave=False, **layout)

    def _width(self) -> int | str | None:
        return None  # the page's own


class LogDisplay(Display):
    """A line each half minute."""

    def __init__(self) -> None:
        self._printed, self._printed_at = "", 0.0

    def show(self, standing: Standing, *, is_new: bool) -> None:
        """Prints a line, if the last one is old enough and another."""
        if standing.seconds - self._printed_at < _LINES_EVERY_SECONDS:
            return
        line = tqdm.format_meter(
            n=standing.done_bytes,
            elapsed=standing.phase_seconds,
            prefix=standing.phase.name,
            **_layout(standing, _LINES),
        )
        if line != self._printed:
            print(line, file=sys.stderr, flush=True)
            self._printed, self._printed_at = line, standing.seconds


class JsonDisplay(Display):
    """An object a line: each second, and where a phase begins or ends."""

    def __init__(self) -> None:
        self._printed_at = 0.0

    def show(self, standing: Standing, *, is_new: bool) -> None:
        """Prints an object, if a phase begins or the last one is old enough."""
        if is_new or standing.seconds - self._printed_at >= _OBJECTS_EVERY_SECONDS:
            self.finish(standing)
            self._printed_at = standing.seconds

    def end(self, standing: Standing) -> None:
        """Prints an object."""
        self.finish(standing)

    def finish(self, standing: Standing) -> None:
        """Prints an object."""
        print(json.dumps(standing.to_json()), file=sys.stderr, flush=True)


def is_notebook() -> bool:
    """Tells whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", ())


def _bar() -> Display:
    if is_notebook():
        try:
            import ipywidgets  # type: ignore[import-not-found,import-untyped,unused-ignore] # noqa: F401
        except ImportError:
            return BarDisplay()  # a notebook shows it too, as text
        return NotebookDisplay()
    return BarDisplay()


def choose_display(choice: str) -> Display:
    """Returns the display of `--progress`; "auto" is a bar where somebody watches, else lines."""
    if choice == "auto":
        choice = "bar" if sys.stderr.isatty() or is_notebook() else "log"
    displays = {"bar": _bar, "log": LogDisplay, "json": JsonDisplay, "none": Display}
    return displays[choice]()
