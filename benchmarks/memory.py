"""Memory of a process and of all that it has started, looked at once a second."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

import psutil


def peak_of_all(line: Sequence[str]) -> tuple[float, int]:
    """Runs a program; returns its seconds, and the peak in bytes of all its processes together.

    Memory that processes share counts once.
    """
    began, peak = time.perf_counter(), 0
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, memory_of_all(process.pid))
        time.sleep(1)
    if process.returncode:
        raise RuntimeError(f"{line} failed")
    return time.perf_counter() - began, peak


def memory_of_all(pid: int) -> int:
    """Returns the bytes that a process and all that it has started have together."""
    try:
        whole = psutil.Process(pid)
        return sum(map(_proportional, [whole, *whole.children(recursive=True)]))
    except psutil.Error:
        return 0


def _proportional(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0
