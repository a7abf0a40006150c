"""Whether the processes of a run do anything: what a watchdog can trust for every stage.

A task may take an hour, and its output appears at its end only. What every working thread does all
the time is computing, or reading and writing; a thread that waits for a pipe, for a dead network
disk or for another thread does neither. The system counts both for each thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

# A thread that uses less does not work: the clock by which Beam samples its stages takes 0.005.
_WORKING_SHARE = 0.02
_HAS_PROC = os.path.isdir("/proc/self/task")
_MAJOR_FAULTS, _USER_TICKS, _SYSTEM_TICKS = 9, 11, 12  # of /proc/PID/task/TID/stat, after the name


@dataclass(frozen=True, slots=True)
class _Counters:
    """What a thread has done since it began.

    Attributes:
      cpu_seconds: the processor time that it took.
      transfers: bytes read and written by system calls, and pages read from a disk.
    """

    cpu_seconds: float
    transfers: int


class Activity:
    """The processes of this run, watched from one look to the next.

    Not counted are threads of this process that look on: they read files of the system, and print.
    """

    def __init__(self, onlookers: Collection[str]) -> None:
        """Takes the names of those threads."""
        self._onlookers = frozenset(onlookers)
        self._before: dict[tuple[int, int], _Counters] = {}

    def was_seen(self, seconds: float) -> bool:
        """Tells whether any thread has worked since the last look, which is `seconds` ago."""
        before, self._before = self._before, dict(self._look())
        least = seconds * _WORKING_SHARE
        for thread, now in self._before.items():
            then = before.get(thread, _Counters(0.0, 0))
            if now.transfers != then.transfers or now.cpu_seconds - then.cpu_seconds >= least:
                return True
        return False

    def _look(self) -> Iterator[tuple[tuple[int, int], _Counters]]:
        here = os.getpid()
        ignored = {t.native_id for t in threading.enumerate() if t.name in self._onlookers}
        try:
            processes = [here, *(p.pid for p in psutil.Process().children(recursive=True))]
        except psutil.Error:
            processes = [here]
        for process in processes:
            for thread, counters in _threads(process):
                if process != here or thread not in ignored:
                    yield (process, thread), counters


def _threads(process: int) -> Iterator[tuple[int, _Counters]]:
    """Yields the threads of a process, less those that have just ended."""
    if not _HAS_PROC:  # processor time only
        with suppress(psutil.Error):
            for each in psutil.Process(process).threads():
                yield each.id, _Counters(each.user_time + each.system_time, 0)
        return
    tasks = Path(f"/proc/{process}/task")
    with suppress(OSError):
        for name in os.listdir(tasks):
            with suppress(OSError):
                yield int(name), _read(tasks / name)


def _read(task: Path) -> _Counters:
    # The name of a program, in brackets, may hold anything.
    fields = (task / "stat").read_bytes().rpartition(b")")[2].split()
    ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    transfers = int(fields[_MAJOR_FAULTS])
    with suppress(OSError):  # a kernel without these counters, or another user's process
        lines = (task / "io").read_bytes().splitlines()[:2]  # rchar, wchar
        transfers += sum(int(line.split()[1]) for line in lines)
    return _Counters(ticks / os.sysconf("SC_CLK_TCK"), transfers)
