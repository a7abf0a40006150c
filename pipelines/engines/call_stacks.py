"""Where the threads of this process and of the workers stand, one line a process.

A worker writes all its calls to a file when it gets a signal (faulthandler): also one that hangs in
C code, which runs no Python.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

import psutil

_EXTENSION = ".calls"
_ANSWER_SECONDS = 2.0
_SHOWN_CALLS = 3
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Below this folder of the package threads wait by design.
_ENGINES = os.path.join(_PACKAGE, "pipelines", "engines") + os.sep
_OURS = tuple(
    os.path.join(_PACKAGE, name) + os.sep
    for name in ("records", "reader", "transforms", "pipelines")
)
_CALL = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')

Call = tuple[str, int, str]  # file, line, function


def answer_with_calls(folder: str) -> None:
    """Makes this process write where its threads stand to a file of `folder`, at SIGUSR1."""
    if not hasattr(faulthandler, "register"):  # Windows
        return
    with suppress(OSError):  # no room for the file: the process works without
        handle = open(_path(folder, os.getpid()), "w")  # noqa: SIM115 - open until the end
        faulthandler.register(signal.SIGUSR1, file=handle, all_threads=True)


def describe_workers(folder: str) -> Iterator[str]:
    """Yields for each worker that answers with its calls: its process id, and where it stands."""
    workers = sorted(
        int(name.removesuffix(_EXTENSION))
        for name in os.listdir(folder)
        if name.endswith(_EXTENSION)
    )
    for pid in workers:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
            yield f"worker {pid}: {_answer(folder, pid)}"


def describe_this_process(onlookers: Collection[str]) -> str:
    """Returns where this process stands, not counting threads of those names."""
    frames = sys._current_frames()
    threads = [
        _calls_of(frames[thread.ident])
        for thread in threading.enumerate()
        if thread.ident in frames and thread.name not in onlookers
    ]
    return f"process {os.getpid()}: {summarize_calls(threads)}"


def summarize_calls(threads: Sequence[Sequence[Call]]) -> str:
    """Returns the calls of the thread that works, the innermost first.

    Args:
      threads: the calls of each thread, the innermost first.
    """
    shown = max(threads, key=_closeness, default=())
    if not shown:
        return "runs no Python"
    ours = [call for call in shown if call[0].startswith(_OURS)]
    calls = [shown[0], *(call for call in ours if call is not shown[0])][:_SHOWN_CALLS]
    return " < ".join(f"{function} ({_short(file)}:{line})" for file, line, function in calls)


def parse_calls(text: str) -> list[list[Call]]:
    """Returns the calls of each thread, from what faulthandler writes."""
    threads: list[list[Call]] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
        elif threads and (call := _CALL.fullmatch(line)):
            threads[-1].append((call["file"], int(call["line"]), call["function"]))
    return threads


def _closeness(calls: Sequence[Call]) -> tuple[bool, bool, int]:
    """Orders threads by how likely they are the one that does the work."""
    ours = [file for file, _, _ in calls if file.startswith(_OURS)]
    # The threads of an engine wait for others; a stage may be of the user's own code.
    works = bool(ours) and not ours[0].startswith(_ENGINES)
    return works, any("bundle_processor" in file for file, _, _ in calls), len(ours)


def _answer(folder: str, pid: int) -> str:
    path = _path(folder, pid)
    until = time.monotonic() + _ANSWER_SECONDS
    size = -1
    while time.monotonic() < until:
        time.sleep(0.1)
        with suppress(OSError):
            before, size = size, os.path.getsize(path)
            if size == before > 0:
                with open(path, encoding="utf-8", errors="replace") as handle:
                    return summarize_calls(parse_calls(handle.read()))
    return f"does not answer ({_state(pid)})"


def _state(pid: int) -> str:
    try:
        state = psutil.Process(pid).status()
    except psutil.Error:
        return "it has just ended"
    return "it waits for a disk" if state == psutil.STATUS_DISK_SLEEP else f"its state is {state}"


def _calls_of(frame: object) -> list[Call]:
    stack = traceback.extract_stack(frame)  # type: ignore[arg-type]
    return [(call.filename, call.lineno or 0, call.name) for call in reversed(stack)]


def _short(file: str) -> str:
    if file.startswith(_OURS):
        return os.path.relpath(file, _PACKAGE)
    return os.path.join(*file.split(os.sep)[-2:])


def _path(folder: str, pid: int) -> str:
    return os.path.join(folder, f"{pid}{_EXTENSION}")
