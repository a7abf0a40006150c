"""The processes of this machine that do work items: forked from one that has loaded what they need.

They are Python's own (`multiprocessing`, start method "forkserver"): no port is opened, and a
worker that dies is seen at once, with the item that it did. A worker gets one item at a time. It
ends when this process ends, however that happens.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from recordmill.records.errors import RunError
from recordmill.transforms.dataset.fork_server import SIGNALS, socket_folder
from recordmill.transforms.dataset.function_bytes import function_bytes, function_of
from recordmill.transforms.dataset.worker_note import make_note, read_note, use_note

_Result = TypeVar("_Result")


class WorkerDiedError(RunError):
    """A worker process died before its work was done."""


@dataclass(slots=True)
class _Worker:
    """A worker, and what it does.

    Attributes:
      process: of the worker.
      connection: to it.
      note: the file that it has noted, see `worker_note.py`.
      function: that it has; items of another one are sent with it.
      item: that it does; None while it waits.
    """

    process: BaseProcess
    connection: Connection
    note: Any
    function: object = None
    item: int | None = None


class WorkerPool:
    """Calls functions for work items in several processes, one function after the other.

    Args:
      workers: the number of processes.
      environment: variables for them beside those of this process.
      begin: called in each of them before its first item.
      log: the file that they print to; "" where they print as this process does.
    """

    def __init__(
        self,
        workers: int,
        *,
        environment: Mapping[str, str] | None = None,
        begin: Callable[[], object] | None = None,
        log: str = "",
    ) -> None:
        self._count = workers
        self._environment = dict(environment or {})
        self._begin = begin
        self._log = log
        self._workers: list[_Worker] = []
        self._is_closed = False

    def map(
        self,
        function: Callable[[int], _Result],
        items: Iterable[int],
        describe: Callable[[int], str] = str,
    ) -> Iterator[_Result]:
        """Yields the results of a function for work items, as they come.

        Args:
          function: is sent to each process once, as cloudpickle has it.
          items: their numbers.
          describe: returns what an item is, for the message that its worker died.

        Raises:
          WorkerDiedError: a worker was killed or crashed; names the item that it did. Or what
            workers are forked from was.
          Exception: what the first item raised that failed.
        """
        waiting = deque(items)
        sent = function_bytes(function)
        try:
            self._start(min(self._count, len(waiting)))
            while True:
                for worker in self._workers:
                    if worker.item is None and waiting:
                        self._send(worker, function, sent, waiting.popleft(), describe)
                busy = [worker for worker in self._workers if worker.item is not None]
                if self._is_closed:  # by another thread
                    raise RunError("interrupted; run the same command again")
                if not busy:
                    return
                for worker in self._ready(busy):
                    yield self._receive(worker, describe)
        except BaseException:
            self.close()  # other workers may be at their items
            raise

    def _start(self, workers: int) -> None:
        context = get_context("forkserver")
        socket_folder()
        with _no_main_module():
            while len(self._workers) < workers:
                ours, theirs = context.Pipe()
                note = make_note(context)
                settings = {**os.environ, **self._environment}
                process = context.Process(
                    target=_work,
                    args=(theirs, settings, function_bytes(self._begin), self._log, note),
                    name=f"recordmill-worker-{len(self._workers)}",
                    daemon=True,
                )
                try:
                    process.start()
                except (EOFError, ConnectionError):
                    raise WorkerDiedError(
                        "the process that workers are forked from died before a worker was there; "
                        "run the same command again"
                    ) from None
                theirs.close()
                self._workers.append(_Worker(process, ours, note))

    def _send(
        self,
        worker: _Worker,
        function: object,
        sent: bytes,
        item: int,
        describe: Callable[[int], str],
    ) -> None:
        worker.item = item
        try:
            worker.connection.send((None if worker.function is function else sent, item))
        except OSError:
            raise self._death(worker, describe) from None
        worker.function = function

    @staticmethod
    def _ready(busy: Sequence[_Worker]) -> Iterator[_Worker]:
        """Yields the workers that have answered, and those that died."""
        ready = set(wait([each for w in busy for each in (w.connection, w.process.sentinel)]))
        for worker in busy:
            if worker.connection in ready or worker.process.sentinel in ready:
                yield worker

    def _receive(self, worker: _Worker, describe: Callable[[int], str]) -> Any:
        try:
            done, error = worker.connection.recv()
        except (EOFError, OSError):
            raise self._death(worker, describe) from None
        worker.item = None
        if error is not None:
            raise error
        return done

    @staticmethod
    def _death(worker: _Worker, describe: Callable[[int], str]) -> WorkerDiedError:
        worker.process.join(5)
        status = worker.process.exitcode or 0
        how = f"its exit status is {status}"
        if status < 0:
            how = f"signal {-status} killed it"
            if -status == signal.SIGKILL:
                how += ", which the system does where memory runs out"
        read, advice = "", ""
        if noted := read_note(worker.note):
            read = f", and read {noted}"
            advice = ", or leave that file out by --skip_files and start anew with --overwrite"
        return WorkerDiedError(
            f"a worker died: {how}, while it did {describe(worker.item or 0)}{read}; run the same "
            f"command again{advice}"
        )

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes, whatever they do; the pool does no more items."""
        self._is_closed = True
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()


@contextmanager
def _no_main_module() -> Iterator[None]:
    """Keeps workers from running the program of this process: a script may have no guard."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


def _work(
    connection: Connection, environment: dict[str, str], begin: bytes, log: str, note: Any
) -> None:
    """Does items until the connection is closed."""
    use_note(note)
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    os.environ.clear()
    os.environ.update(environment)
    if log:
        with suppress(OSError):  # where it cannot be made, the first item says why
            handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    start = function_of(begin)
    if start:
        start()
    function: Any = None
    with suppress(EOFError, OSError):
        while True:
            sent, item = connection.recv()
            if sent is not None:
                function = None  # with what was loaded for it
                function = function_of(sent)
            try:
                answer: tuple[Any, Any] = (function(item), None)
            except Exception as error:
                answer = (None, _sendable(error))
            connection.send(answer)
    os._exit(0)  # taking a loaded interpreter apart takes half a second


def _sendable(error: Exception) -> Exception:
    """Returns an error as it can be sent."""
    error.__cause__ = None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _end_with_parent() -> None:
    parent = parent_process()
    if parent:
        wait([parent.sentinel])
    os._exit(1)
