"""Standard output and error that never fail, and an end that does not wait.

Beam prints a worker's error before it reports it. On a full disk, where the log lies too, that
print fails: the report would never be sent, and the job would wait for ever.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


class _UnfailingStream:
    """A text stream that drops what cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # no room, nobody reads; closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def unfailing(stream: TextIO) -> TextIO:
    """Returns a stream that writes to another one, and drops what this one refuses."""
    return cast(TextIO, _UnfailingStream(stream))


def exit_now(status: int) -> None:
    """Ends the process without waiting for threads of an engine, which would never end."""
    for stream in (sys.stdout, sys.stderr):
        unfailing(stream).flush()  # the terminal may be closed
    os._exit(status)


@contextmanager
def standard_error_to(path: str) -> Iterator[None]:
    """Sends what workers and Beam's threads print to a file; our own lines go where they did.

    Where the file cannot be made, what they print goes nowhere.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:  # the first thing that the job writes there will say why
        log = os.open(os.devnull, os.O_WRONLY)
    os.dup2(log, 2)
    os.close(log)
    before, sys.stderr = sys.stderr, unfailing(os.fdopen(terminal, "w", buffering=1))
    try:
        yield
    finally:
        ours, sys.stderr = sys.stderr, before
        os.dup2(terminal, 2)
        with suppress(OSError):  # the terminal may be closed
            ours.close()
