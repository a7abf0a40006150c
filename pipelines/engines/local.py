"""The local engine: stages without Beam, by this process or a pool of processes for their items.

A small input is done by this process alone, a larger one by as many as there are cores, see
`transforms/dataset/worker_pool.py`. When a run is cut short, all finished work is on disk, and the
same command continues from there.

* `_Work` does the stages in a thread: Ctrl-C ends the wait for them at once, also where an item is
  in native code, or waits for a disk.
* `Watchdog` ends a job in which nothing happens any more, such as on a dead network disk.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from traceback import format_exception_only
from typing import Any, ClassVar

from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.call_stacks import answer_with_calls
from recordmill.pipelines.engines.preloading import Preloading, missing_environment, preloading
from recordmill.pipelines.engines.watchdog import Watchdog
from recordmill.records.errors import RunError
from recordmill.transforms.dataset.commit import CommitSpec, commit_run
from recordmill.transforms.dataset.stages import Stage, do_here
from recordmill.transforms.dataset.worker_pool import WorkerPool
from recordmill.transforms.storage import files

STAGES_THREAD = "stages"
_SIGNALS_EVERY_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class JobSize:
    """How large a job is, for engines that choose their workers by it.

    Attributes:
      work_items: the number of work items of its first stage.
      input_bytes: the bytes that these work items read.
      processes: the number of processes that are worth starting on one machine.
    """

    work_items: int
    input_bytes: int
    processes: int


class _Work:
    """The stages of a job, which a thread of its own does.

    Attributes:
      errors: why the job failed, the first error first; empty after a success.
      counters: ours, after a success.
    """

    def __init__(
        self, stages: Sequence[Stage[Any]], commit: CommitSpec | None, pool: WorkerPool | None
    ) -> None:
        self.errors: list[BaseException] = []
        self.counters: dict[str, int] = {}
        self._stages = stages
        self._commit = commit
        self._pool = pool
        self._ended = threading.Event()

    def run(self) -> None:
        """Does the stages; the caller gets errors and signals while it waits for the end."""
        thread = threading.Thread(target=self._run, name=STAGES_THREAD, daemon=True)
        try:
            thread.start()  # a signal may come before it returns
            while not self._ended.wait(_SIGNALS_EVERY_SECONDS):
                pass
        finally:
            self._ended.set()

    def fail(self, error: BaseException) -> None:
        """Ends the wait for the job."""
        self.errors.append(error)
        self._ended.set()

    def _check(self) -> None:
        if self._ended.is_set():  # nobody waits for it any more
            raise RunError("interrupted; run the same command again")

    def _run(self) -> None:
        try:
            done = do_here(self._stages, self._pool, check=self._check)
            if self._commit:
                self._check()
                commit_run(self._stages[0].job, self._commit, done.records)
            self.counters = dict(done.counts)
        except BaseException as error:
            self.fail(error)
        self._ended.set()


def run_here(
    stages: Sequence[Stage[Any]],
    commit: CommitSpec | None = None,
    *,
    pool: WorkerPool | None = None,
    watchdog: Watchdog | None = None,
    calls_folder: str | None = None,
) -> dict[str, int]:
    """Does the stages of a job, and commits it; returns our counters.

    Args:
      stages: in order.
      commit: what its manifest says; None where the stages are all.
      pool: does their items, and is closed at the end; None where this process does them.
      watchdog: what may end the job meanwhile.
      calls_folder: where the workers of the pool write their calls for it.

    Raises:
      StalledError: by the watchdog.
      WorkerDiedError: a worker process was killed or crashed.
      Exception: why an item failed.
    """
    work = _Work(stages, commit, pool)
    # Its storages log errors with their tracebacks; our one line says it all.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    watched = watchdog.job(work.fail, calls_folder) if watchdog else nullcontext()
    with pool or nullcontext(), watched:
        work.run()
    if work.errors:
        raise _named(work.errors[0])
    return work.counters


def _named(error: BaseException) -> BaseException:
    """Returns an error whose text is a sentence, or begins with its type."""
    is_sentence = error.args and isinstance(error.args[0], str)
    if is_sentence and not isinstance(error, LookupError):  # of which the text is a key
        return error
    named = RuntimeError(format_exception_only(type(error), error)[-1].strip())
    named.__cause__ = error
    return named


@dataclass
class LocalEngine:
    """This machine, as an engine.

    Attributes:
      processes: the number of workers; 0: as many as the input is worth.
      stall_seconds: how long nothing may happen before a run is ended; 0: for ever.
    """

    processes: int = 0
    stall_seconds: float = 0.0
    name: ClassVar[str] = "direct"
    wait: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._preloading: Preloading | None = None
        self._warm_up: Callable[[], None] | None = None
        self._watchdog: Watchdog | None = None

    @property
    def workers(self) -> int:
        """The number of workers that the input is cut for."""
        return self.processes or usable_cores()

    def workers_for(self, size: JobSize) -> int:
        """Returns the number of processes that run a job."""
        return self.processes or size.processes

    def check(self, paths: Mapping[str, str]) -> None:
        """Accepts every path: all are within reach of this machine."""

    @contextmanager
    def started(
        self, warm_up: Callable[[], None] | None = None, *, at_once: bool = True
    ) -> Iterator[None]:
        """Loads meanwhile what workers need.

        Args:
          warm_up: is called in the process that they are forked from, once.
          at_once: False where the job is expected to need none of them.
        """
        self._warm_up = warm_up or self._warm_up
        if self._preloading or self.workers == 1 or not at_once:
            with self._watched():
                yield
            return
        with preloading() as self._preloading:
            try:
                self._preloading.warm_up(self._warm_up)
                with self._watched():
                    yield
            finally:
                self._preloading = None

    def prepare(
        self, size: JobSize, compile_kernels: Callable[[], None], release: Callable[[], None]
    ) -> None:
        """Compiles what the job needs; the process that loads the same for workers helps.

        A job that this process does alone needs that one no more then, and one of several
        processes needs nothing of what this one has loaded.
        """
        compile_kernels()
        if self._preloading and self.workers_for(size) == 1:
            self._preloading.end()
        elif self._preloading:
            release()

    @contextmanager
    def _watched(self) -> Iterator[Watchdog | None]:
        """Watches what runs meanwhile, if nobody does yet."""
        if self._watchdog or not self.stall_seconds:
            yield self._watchdog
            return
        with Watchdog(self.stall_seconds) as self._watchdog:
            try:
                yield self._watchdog
            finally:
                self._watchdog = None

    def run(
        self,
        stages: Sequence[Stage[Any]],
        commit: CommitSpec | None = None,
        *,
        folder: str,
        failure_path: str,
        size: JobSize,
    ) -> dict[str, int]:
        """Does the stages of a job, and commits it, see `run_here`; returns our counters.

        Args:
          stages: in order.
          commit: what its manifest says; None where the stages are all.
          folder: the folder of the job's temporary files; what workers print goes there.
          failure_path: not used here, errors are raised.
          size: the size of the job.
        """
        workers = self.workers_for(size)
        with self.started(at_once=workers > 1), self._watched() as watchdog:
            if workers == 1 or not self._preloading:
                return run_here(stages, commit, watchdog=watchdog)
            if not files.is_local(folder):
                folder = tempfile.gettempdir()
            calls = self._preloading.folder
            pool = WorkerPool(
                workers,
                environment=missing_environment(),
                begin=partial(answer_with_calls, calls),
                log=files.join(folder, f"recordmill-workers-{os.getpid()}.log"),
            )
            return run_here(stages, commit, pool=pool, watchdog=watchdog, calls_folder=calls)
