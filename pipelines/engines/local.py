"""The local engine: Beam's FnApiRunner in memory, and a pool of processes for items of stages.

A small input is done by this process alone, a larger one by as many as there are cores, see
`transforms/dataset/worker_pool.py`. When a run is cut short, all finished work is on disk, and the
same command continues from there. What this module adds to Beam:

* `_BeamJob` runs the pipeline in a thread: the runner waits without looking at signals, and Ctrl-C
  would be seen only after the job.
* `Watchdog` ends a job in which nothing happens any more, such as on a dead network disk.
* Beam's temporary folder is removed in any case, after a kill by the next run: Beam removes it
  only after a success.
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
from typing import ClassVar

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from recordmill.pipelines import temporary_folders
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.call_stacks import answer_with_calls
from recordmill.pipelines.engines.counters import sum_counters
from recordmill.pipelines.engines.error_text import without_stage_names
from recordmill.pipelines.engines.preloading import Preloading, missing_environment, preloading
from recordmill.pipelines.engines.watchdog import Watchdog
from recordmill.records.errors import RunError
from recordmill.transforms.dataset.worker_pool import WorkerPool, using
from recordmill.transforms.storage import files

PIPELINE_THREAD = "pipeline"
_SMALL_INPUT_BYTES = 16_000_000
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


def processes_for(input_bytes: int) -> int:
    """Returns the processes for an input; for a small one, starting a second one takes longer."""
    return 1 if input_bytes < _SMALL_INPUT_BYTES else usable_cores()


class _BeamJob:
    """A pipeline that FnApiRunner runs in a thread of its own.

    Attributes:
      errors: why the job failed, the first error first; empty after a success.
      counters: Beam's counters of ours, after a success.
    """

    def __init__(self, build: Callable[[beam.Pipeline], object], flags: Sequence[str]) -> None:
        self.errors: list[BaseException] = []
        self.counters: dict[str, int] = {}
        self._build = build
        self._flags = [*flags, "--direct_num_workers=1"]
        self._ended = threading.Event()
        self._folder = ""

    def run(self) -> None:
        """Runs the pipeline; the caller gets errors and signals while it waits for the end."""
        threading.Thread(target=self._run, name=PIPELINE_THREAD, daemon=True).start()
        while not self._ended.wait(_SIGNALS_EVERY_SECONDS):
            pass

    def fail(self, error: BaseException) -> None:
        """Ends the wait for the job."""
        self.errors.append(error)
        self._ended.set()

    def close(self) -> None:
        """Removes what Beam leaves of a job that failed."""
        if self._folder:
            temporary_folders.remove_folder(self._folder)

    def _run(self) -> None:
        try:
            pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(self._flags))
            self._folder = temporary_folders.make_folder()
            moved = f"{self._folder}/pipeline"
            os.rename(pipeline.local_tempdir, moved)
            pipeline.local_tempdir = moved
            self._build(pipeline)
            result = pipeline.run()
            result.wait_until_finish()
            self.counters = sum_counters(result.metrics())
        except BaseException as error:
            self.fail(error)
        self._ended.set()


def run_local(
    build: Callable[[beam.Pipeline], object],
    flags: Sequence[str] = (),
    *,
    pool: WorkerPool | None = None,
    watchdog: Watchdog | None = None,
    calls_folder: str | None = None,
) -> dict[str, int]:
    """Builds a pipeline and runs it to its end; returns Beam's counters of ours.

    Args:
      build: applies transforms to the pipeline.
      flags: Beam's own options.
      pool: does the items of stages; None where this process does them.
      watchdog: what may end the job meanwhile.
      calls_folder: where the workers of the pool write their calls for it.

    Raises:
      StalledError: by the watchdog.
      WorkerDiedError: a worker process was killed or crashed.
      Exception: what the pipeline raised.
    """
    job = _BeamJob(build, flags)
    # Beam logs each error of a worker with its traceback; our one line says it all.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    watched = watchdog.job(job.fail, calls_folder) if watchdog else nullcontext()
    try:
        with using(pool), watched:
            job.run()
    finally:
        job.close()
    if job.errors:
        raise _without_stage_name(job.errors[0])
    return job.counters


def _without_stage_name(error: BaseException) -> BaseException:
    """Returns an error of ours as it was raised, before Beam appended the name of its stage."""
    if isinstance(error, RunError):
        error.args = (without_stage_names(str(error)),)
    return error


@dataclass
class LocalEngine:
    """This machine, as an engine.

    Attributes:
      flags: Beam's own options.
      processes: the number of workers; 0: as many as the input is worth.
      stall_seconds: how long nothing may happen before a run is ended; 0: for ever.
    """

    flags: tuple[str, ...] = ()
    processes: int = 0
    stall_seconds: float = 0.0
    name: ClassVar[str] = "direct"
    wait: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._preloading: Preloading | None = None
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
    def started(self, warm_up: Callable[[], None] | None = None) -> Iterator[None]:
        """Loads meanwhile what workers need."""
        if self._preloading or self.workers == 1:
            with self._watched():
                yield
            return
        with preloading() as self._preloading:
            try:
                self._preloading.warm_up(warm_up)
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
        build: Callable[[beam.Pipeline], object],
        *,
        folder: str,
        failure_path: str,
        size: JobSize,
    ) -> dict[str, int]:
        """Runs a pipeline to its end, see `run_local`; returns Beam's counters of ours.

        Args:
          build: applies transforms to the pipeline.
          folder: the folder of the job's temporary files; what workers print goes there.
          failure_path: not used here, errors are raised.
          size: the size of the job.
        """
        with self.started(), self._watched() as watchdog:
            workers = self.workers_for(size)
            if workers == 1 or not self._preloading:
                return run_local(build, self.flags, watchdog=watchdog)
            if not files.is_local(folder):
                folder = tempfile.gettempdir()
            calls = self._preloading.folder
            pool = WorkerPool(
                workers,
                environment=missing_environment(),
                begin=partial(answer_with_calls, calls),
                log=files.join(folder, f"recordmill-workers-{os.getpid()}.log"),
            )
            return run_local(build, self.flags, pool=pool, watchdog=watchdog, calls_folder=calls)
