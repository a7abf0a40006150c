"""How many processes of this machine an input is worth, also before anything of it is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from recordmill.pipelines.cores import usable_cores

_SMALL_INPUT_BYTES = 16_000_000
_MOST_FILES = 1000  # that are looked at before the input is listed
_WILDCARDS = "*?["


def processes_for(input_bytes: int) -> int:
    """Returns the processes for an input; for a small one, starting a second one takes longer."""
    return 1 if input_bytes < _SMALL_INPUT_BYTES else usable_cores()


def is_surely_small(patterns: Iterable[str]) -> bool:
    """Tells whether one process is enough for local globs, at a glance: False where that is open.

    What folders before a wildcard have is counted as a whole, and what is not there as nothing.
    """
    size = 0
    for number, each in enumerate(_sizes(patterns)):
        size += each
        if number >= _MOST_FILES or processes_for(size) > 1:
            return False
    return True


def _sizes(patterns: Iterable[str]) -> Iterator[int]:
    """Yields the sizes of files that globs may match, as `--input` has them."""
    for pattern in patterns:
        parts = [pattern] if os.path.exists(pattern) else pattern.split(",")
        for part in parts:
            split, _, named = part.partition("=")
            path = named if split.isidentifier() and not os.path.exists(part) else part
            yield from _sizes_below(path)


def _sizes_below(path: str) -> Iterator[int]:
    if "://" in path:
        yield _SMALL_INPUT_BYTES
        return
    while not os.path.lexists(path) and any(each in path for each in _WILDCARDS):
        path = os.path.dirname(path) or "."
    if not os.path.isdir(path):
        yield os.path.getsize(path) if os.path.exists(path) else 0
        return
    waiting = [path]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:  # one at a time: a folder may have millions
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    yield 0
                else:
                    yield os.path.getsize(entry.path) if os.path.exists(entry.path) else 0
