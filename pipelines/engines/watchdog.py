"""Ends a run in which nothing happens any more, and says where each process stands."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from recordmill.pipelines.engines.activity import Activity
from recordmill.pipelines.engines.call_stacks import describe_this_process, describe_workers
from recordmill.pipelines.progress import PROGRESS_THREAD
from recordmill.pipelines.temporary_folders import remove_others
from recordmill.records.errors import RunError, visible

_WATCHDOG_THREAD = "watchdog"
_ONLOOKERS = (PROGRESS_THREAD, _WATCHDOG_THREAD)
# From look to look. Processor time is counted in hundredths of a second.
_LEAST_INTERVAL, _MOST_INTERVAL = 1.0, 10.0
_GRACE_SECONDS = 15.0


def exit_now(status: int) -> None:
    """Ends the process without waiting for threads of an engine, which would never end."""
    remove_others()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the terminal may be closed
            stream.flush()
    os._exit(status)


class StalledError(RunError):
    """No process of the run did anything for a long time; threads of it may never end."""

    leaves_threads = True


class Watchdog:
    """Watches the processes of a run from a thread of its own, while it is entered.

    What counts is whether any thread computes, reads or writes, see `Activity`: a slow input is no
    reason to end a run. A loop without an end is not noticed.
    """

    def __init__(self, seconds: float, *, grace_seconds: float = _GRACE_SECONDS) -> None:
        """Takes how long nothing may happen, and how long the run may then take to end."""
        self._seconds = seconds
        self._grace_seconds = grace_seconds
        self._error: StalledError | None = None
        self._fail: Callable[[BaseException], None] | None = None
        self._folder: str | None = None
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=_WATCHDOG_THREAD, daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends watching.

        Raises:
          StalledError: this watchdog has interrupted the run.
        """
        self._left.set()
        if self._error and isinstance(error, KeyboardInterrupt):
            raise self._error from None

    @contextmanager
    def job(
        self, fail: Callable[[BaseException], None], folder: str | None = None
    ) -> Iterator[None]:
        """Tells how to end the job that runs meanwhile.

        Args:
          fail: ends the job with an error, from any thread.
          folder: where workers write their calls; None where this process is the only one.
        """
        self._fail, self._folder = fail, folder
        try:
            yield
        finally:
            self._fail, self._folder = None, None

    def _watch(self) -> None:
        activity = Activity(_ONLOOKERS)
        interval = min(max(self._seconds / 10, _LEAST_INTERVAL), _MOST_INTERVAL)
        looked, quiet_seconds = time.monotonic(), 0.0
        while not self._left.wait(interval):
            passed, looked = time.monotonic() - looked, time.monotonic()
            # A run that was stopped for a night (Ctrl-Z) was not quiet for a night.
            quiet = 0.0 if activity.was_seen(passed) else min(passed, 2 * interval)
            quiet_seconds = quiet_seconds + quiet if quiet else 0.0
            if quiet_seconds >= self._seconds:
                self._end()
                return

    def _end(self) -> None:
        where = list(describe_workers(self._folder)) if self._folder else []
        where = where or [describe_this_process(_ONLOOKERS)]
        if self._left.is_set():
            return
        _print("nothing happens any more; where each process stands, the innermost call first:")
        for line in where:
            _print(f"  {line}")
        self._error = StalledError(
            f"no process of this run has computed, read or written anything for {self._seconds:g} "
            "s: see what it waits for (a pipe, a network disk, a service), and run the same "
            "command again to go on; --stall_timeout=0 waits for ever"
        )
        if self._fail:
            self._fail(self._error)
        else:
            self._interrupt()
        if not self._left.wait(self._grace_seconds):  # what has to end cannot
            _print(str(self._error))
            exit_now(1)

    def _interrupt(self) -> None:
        """Raises KeyboardInterrupt in the main thread, also while it waits in the system."""
        main = threading.main_thread()
        if main.ident and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.pthread_kill(main.ident, signal.SIGINT)


def _print(line: str) -> None:
    with suppress(OSError):  # the terminal may be closed
        print(f"recordmill: {visible(line)}", file=sys.stderr, flush=True)
