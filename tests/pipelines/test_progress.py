"""Progress: a bar on a terminal, a line each half minute elsewhere, and the memory, if known."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Iterator

import psutil
import pytest

from recordmill.pipelines import progress
from recordmill.pipelines.progress import Progress, resident_bytes
from recordmill.transforms.dataset.stages import Phase


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
        "write 50%",
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
        clock.seconds = 2.0
        shown.show(Phase("read", 3, 4, 4_000_000))
        shown.show(Phase("commit", 0, 1))
    assert "read  25%|" in before.getvalue()
    assert "?" not in before.getvalue()  # no speed is known
    assert "read  75%|" in after.getvalue()
    assert "B/s" in after.getvalue()
    assert "commit" in after.getvalue()
    assert "\n" not in before.getvalue() + after.getvalue()
    assert after.getvalue().endswith("\r")  # nothing stays behind


def test_a_terminal_without_a_size_has_a_bar_too() -> None:
    code = """
import itertools, sys
from recordmill.transforms.dataset.stages import Phase
from recordmill.pipelines.progress import Progress
ticks = itertools.count()
with Progress("nowhere", lambda: iter(()), clock=lambda: float(next(ticks))) as shown:
    shown.show(Phase("read", 1, 4, 4_000_000))
"""
    terminal, other = os.openpty()  # 0 columns, as of `docker run -t` and `script`
    process = subprocess.Popen([sys.executable, "-c", code], stderr=other, stdout=other)
    os.close(other)
    assert process.wait() == 0
    text = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert "read  25%|" in text
    assert max(map(len, text.split("\r"))) <= 80


def test_json_has_an_object_for_each_phase_and_second(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    shown = Progress("nowhere", lambda: iter(()), "json", clock=clock)
    shown.show(Phase("read", 0, 4, 8_000_000))
    for seconds in (0.5, 2.0):
        clock.seconds = seconds
        shown.show(Phase("read", 1, 4, 8_000_000))
    shown.is_done = True
    shown.show(Phase("commit", 0, 1))
    shown.peak_bytes = 5
    with shown:
        pass
    objects = [json.loads(line) for line in sys.stderr.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert [(o["phase"], o["share"], o["seconds"]) for o in objects] == [
        ("read", 0.0, 0.0),
        ("read", 0.25, 2.0),
        ("read", 1.0, 2.0),
        ("commit", 0.0, 2.0),
        ("commit", 1.0, 2.0),
        ("done", 1.0, 2.0),
    ]
    assert objects[1] == {
        "phase": "read", "done": 1, "total": 4, "share": 0.25, "bytes": 2_000_000,
        "total_bytes": 8_000_000, "bytes_per_second": 1_000_000, "seconds": 2.0,
        "seconds_left": 6.0, "memory_bytes": None,
    }  # fmt: skip


@pytest.mark.parametrize("choice", ["log", "none"])
def test_a_terminal_may_have_no_bar(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("nowhere", lambda: iter(()), choice, clock=clock) as shown:
        shown.show(Phase("read", 1, 4, 4_000_000))
        clock.seconds = 40.0
        shown.show(Phase("read", 2, 4, 4_000_000))
    text = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert text == ("read 50%  25.0kB/s  01:20 left\n" if choice == "log" else "")


def test_a_notebook_has_a_bar(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    kernel = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", kernel)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with watching(clock) as shown:
        shown.show(Phase("read", 1, 4, 4_000_000))
    assert "read  25%|" in sys.stderr.getvalue()  # type: ignore[attr-defined]


def test_phases_have_their_times(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """All bytes of a phase count, also those moved before it was looked at or after the last
    look, but those of earlier runs."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    phases: list[Phase] = []
    shown = Progress("nowhere", lambda: iter(phases), clock=clock)
    phases[:] = [Phase("read", 0, 4, 4_000_000), Phase("write", 1, 4, 8_000_000)]
    shown.begin()
    for seconds, read, written in ((1, 0, 1), (5, 3, 1), (7, 4, 3), (9, 4, 4)):
        clock.seconds = seconds
        phases[:] = [Phase("read", read, 4, 4_000_000), Phase("write", written, 4, 8_000_000)]
        shown.look()
    clock.seconds = 10.0
    shown.is_done = True
    with shown:
        pass
    assert [(n, t.seconds, t.moved_bytes) for n, t in shown.times.items()] == [
        ("read", 5.0, 4_000_000),
        ("write", 2.0, 6_000_000),
        ("commit", 3.0, 0),
    ]


def ended(lines: str) -> list[tuple[str, int, int]]:
    return [(o["phase"], o["done"], o["total"]) for o in map(json.loads, lines.splitlines())]


def test_phases_end_in_order(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that no look saw, and though the commit removes what they are read from."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    seen = [
        [Phase("read", 0, 4), Phase("regroup", 0, 2), Phase("regroup", 0, 1), Phase("plan", 0, 1)],
        [Phase("read", 3, 4), Phase("regroup", 0, 2), Phase("regroup", 0, 1), Phase("plan", 0, 1)],
        [Phase("read", 4, 4), Phase("regroup", 2, 2), Phase("regroup", 0, 1), Phase("plan", 0, 1)],
        [Phase("read", 4, 4), Phase("regroup", 2, 2), Phase("regroup", 1, 1), Phase("write", 2, 3)],
        [Phase("read", 0, 4), Phase("regroup", 0, 2), Phase("regroup", 0, 1), Phase("plan", 0, 1)],
    ]
    phases = seen[0]
    shown = Progress("nowhere", lambda: iter(phases), "json", clock=clock)
    shown.begin()
    for phases in seen:  # noqa: B007  # what the function above returns
        shown.look()
        clock.seconds += 1
    shown.is_done = True
    with shown:
        pass
    assert ended(sys.stderr.getvalue()) == [  # type: ignore[attr-defined]
        ("read", 0, 4), ("read", 3, 4), ("read", 4, 4), ("regroup", 2, 2), ("regroup", 0, 1),
        ("regroup", 1, 1), ("write", 2, 3), ("write", 2, 3), ("write", 3, 3), ("commit", 1, 1),
        ("done", 1, 1),
    ]  # fmt: skip


def test_phases_that_an_earlier_run_did_are_not_shown(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    phases = [Phase("read", 4, 4), Phase("write", 1, 3)]
    shown = Progress("nowhere", lambda: iter(phases), "json", clock=clock)
    shown.begin()
    shown.look()
    with shown:
        pass  # it fails: nothing says that it ended
    assert ended(sys.stderr.getvalue()) == [("write", 1, 3)]  # type: ignore[attr-defined]


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
