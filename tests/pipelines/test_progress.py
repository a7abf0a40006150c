"""Progress: a bar on a terminal, a line each half minute elsewhere, and the memory, if known."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from recordmill.pipelines import progress
from recordmill.pipelines.planning.work_plan import Phase
from recordmill.pipelines.progress import Progress, resident_bytes


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watching(clock: Clock) -> Progress:
    return Progress("nowhere", lambda: iter(()), clock=clock)


def test_lines_each_half_minute(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    shown = watching(clock)
    for seconds in range(0, 121, 5):
        clock.seconds = seconds
        shown.show(Phase("read", 1 + seconds // 5, 100, 200_000_000))
    assert sys.stderr.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "read 7%  400kB/s  07:45 left",
        "read 13%  400kB/s  07:15 left",
        "read 19%  400kB/s  06:45 left",
        "read 25%  400kB/s  06:15 left",
    ]


def test_each_phase_has_its_own_speed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    shown = watching(clock)
    shown.show(Phase("read", 0, 4, 4_000_000))
    clock.seconds = 40.0
    shown.show(Phase("write", 2, 4, 80_000_000))  # a resumed run: two are not of this one
    clock.seconds = 80.0
    shown.show(Phase("write", 3, 4, 80_000_000))
    clock.seconds = 120.0
    shown.show(Phase("commit", 0, 1))
    assert sys.stderr.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "write 50%  ?B/s  ? left",
        "write 75%  500kB/s  00:40 left",
        "commit",
    ]


def test_a_terminal_has_one_bar_that_changes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", before)
    with watching(clock) as shown:
        shown.show(Phase("read", 1, 4, 4_000_000))
        monkeypatch.setattr(sys, "stderr", after)  # as an engine does while it runs
        time.sleep(0.01)
        shown.show(Phase("read", 3, 4, 4_000_000))
        shown.show(Phase("commit", 0, 1))
    assert "read  25%|" in before.getvalue()
    assert "read  75%|" in after.getvalue()
    assert "commit" in after.getvalue()
    assert "\n" not in before.getvalue() + after.getvalue()
    assert after.getvalue().endswith("\r")  # nothing stays behind


def test_memory_of_descendants() -> None:
    alone = resident_bytes()
    code = "import time; x = bytearray(64 << 20); print('made', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout
        child.stdout.readline()
        both, own = resident_bytes(), resident_bytes(child.pid)
    finally:
        child.kill()
        child.communicate()
    assert alone
    assert both
    assert own
    assert own > 64 << 20
    assert both > alone + (60 << 20)


def test_unknown_memory_is_none(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    def denied(_: object = None) -> Iterator[None]:
        raise psutil.AccessDenied(os.getpid())

    monkeypatch.setattr(progress.psutil, "Process", denied)
    assert resident_bytes() is None
    with watching(clock) as shown:
        pass
    assert shown.peak_bytes is None


def test_a_short_job_knows_its_memory(clock: Clock) -> None:
    with watching(clock) as shown:
        pass
    assert shown.peak_bytes
