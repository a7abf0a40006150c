"""The local engine: Beam's FnApiRunner, with what it lacks for jobs of hours.

A small input gets one process, a larger one as many as there are cores. When a run is cut short,
all finished work is on disk, and the same command continues from there. What this module replaces
of Beam, and why:

* `_BeamJob` runs the pipeline in a thread: the runner waits without looking at signals, and Ctrl-C
  would be seen only after the job.
* `_worker_failures_end` ends the job when a worker dies: Beam raises that error in a thread of its
  own, while the job mostly waits for ever; where the job fails by itself, `_BeamJob` says why.
* `standard_error_to` collects in a file what workers and Beam's threads print: when a run is cut
  short, each of them prints a page about its lost connection.
* `_worker_environment` gives each worker one thread, and no module of the current folder.
* `Watchdog` ends a job in which nothing happens any more, such as on a dead network disk.
* `servers_on_sockets` lets only this user's processes connect: Beam's servers listen on all network
  addresses, and hand any file to anyone who asks.
* `engines/worker.py` forks workers from one process that has loaded Beam: Beam starts each one from
  nothing, which takes seconds.
* Beam's temporary folder is removed in any case, after a kill by the next run: Beam removes it
  only after a success.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from recordmill.pipelines import temporary_folders
from recordmill.pipelines.beam_internals import (
    BEAM_WORKER_MODULE,
    BEAM_WORKER_THREAD,
    is_lost_worker,
    move_pipeline_folder,
    servers_on_sockets,
    without_stage_names,
    worker_environment,
)
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.counters import read_counters
from recordmill.pipelines.engines.standard_streams import standard_error_to
from recordmill.pipelines.engines.watchdog import Watchdog
from recordmill.pipelines.engines.worker import ForkServer
from recordmill.records.errors import RunError
from recordmill.transforms.storage import files

PIPELINE_THREAD = "pipeline"
_SMALL_INPUT_BYTES = 16_000_000
_SIGNALS_EVERY_SECONDS = 0.2
_DEATH_SECONDS = 0.5

# For workers: the current folder is not on their path, and each has one thread.
ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "GRPC_VERBOSITY": "ERROR",
}


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


class WorkerDiedError(RunError):
    """A worker process died before its work was done."""


def _missing_environment() -> dict[str, str]:
    """Returns the variables for workers that the user has not set."""
    return {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}


@contextmanager
def _worker_environment() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(_missing_environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def start_fork_server(
    modules: tuple[str, ...] = (), warm_up: Callable[[], None] | None = None
) -> ForkServer:
    """Starts the process that workers are forked from; it loads Beam and `modules` meanwhile.

    Args:
      modules: what workers need.
      warm_up: see `ForkServer`.
    """
    return ForkServer((BEAM_WORKER_MODULE, *modules), _missing_environment(), warm_up)


class _BeamJob:
    """A pipeline that FnApiRunner runs in a thread of its own.

    Attributes:
      errors: why the job failed, the first error first; empty after a success.
      counters: Beam's counters of ours, after a success.
    """

    def __init__(
        self,
        build: Callable[[beam.Pipeline], object],
        flags: Sequence[str],
        fork_server: ForkServer | None,
    ) -> None:
        self.errors: list[BaseException] = []
        self.counters: dict[str, int] = {}
        self._build = build
        self._flags = list(flags)
        self._fork_server = fork_server
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

    def fail_by_death(self, reason: object) -> None:
        """Ends the wait for the job, one of whose workers has died."""
        self.fail(WorkerDiedError(self._describe_death(reason)))

    def close(self) -> None:
        """Removes what Beam leaves of a job that failed."""
        if self._folder:
            temporary_folders.remove_folder(self._folder)

    def _describe_death(self, reason: object) -> str:
        why = f"a worker died: {reason}"
        if self._fork_server:
            until = time.monotonic() + _DEATH_SECONDS
            # The end of a worker's connection is seen before the end of the process behind it.
            while (reason := self._fork_server.failure()) is None and time.monotonic() < until:
                time.sleep(0.02)
            if reason:
                why = f"the process that workers are forked from died: {reason}"
        return f"{why}; finished work is kept, run the same command again to go on"

    def _run(self) -> None:
        try:
            server = self._fork_server
            environment = worker_environment(server.command) if server else None
            runner = FnApiRunner(default_environment=environment)
            pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(self._flags))
            self._folder = temporary_folders.make_folder()
            move_pipeline_folder(pipeline, f"{self._folder}/pipeline")
            self._build(pipeline)
            result = pipeline.run()
            result.wait_until_finish()
            self.counters = read_counters(result)
        except BaseException as error:
            if not is_lost_worker(error):
                self.fail(error)
            # Beam's thread for that worker, which knows how it died, may be about to tell it.
            elif not self._ended.wait(_DEATH_SECONDS):
                self.fail_by_death("its connection was closed")
        self._ended.set()


@contextmanager
def _worker_failures_end(job: _BeamJob) -> Iterator[None]:
    """Ends a job when Beam's thread for one of its workers fails."""
    previous = threading.excepthook

    def on_thread_error(args: threading.ExceptHookArgs) -> None:
        if args.thread is not None and args.thread.name == BEAM_WORKER_THREAD:
            job.fail_by_death(args.exc_value)
        elif not isinstance(args.exc_value, grpc.RpcError):
            previous(args)

    threading.excepthook = on_thread_error
    try:
        yield
    except BaseException:  # a signal
        job.fail(RunError("interrupted"))
        raise
    finally:
        # When a job is cut short, Beam's threads report lost connections until the process ends.
        if not any(isinstance(error, RunError) for error in job.errors):
            threading.excepthook = previous


def run_local(
    build: Callable[[beam.Pipeline], object],
    flags: Sequence[str],
    *,
    workers: int,
    log: str,
    fork_server: ForkServer | None = None,
    watchdog: Watchdog | None = None,
) -> dict[str, int]:
    """Builds a pipeline and runs it to its end; returns Beam's counters of ours.

    Args:
      build: applies transforms to the pipeline.
      flags: Beam's own options.
      workers: the number of processes; 1 is this one.
      log: the file for what worker processes print.
      fork_server: the process that workers are forked from, where it is running already.
      watchdog: what may end the job meanwhile.

    Raises:
      StalledError: by the watchdog.
      WorkerDiedError: a worker process was killed or crashed. The runner's threads still wait for
        it: the caller should end the process.
      Exception: what the pipeline raised.
    """
    server = (fork_server or start_fork_server()) if workers > 1 else None
    job = _BeamJob(build, [*flags, f"--direct_num_workers={workers}"], server)
    # Beam logs each error of a worker with its traceback; our one line says it all.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    log_file: AbstractContextManager[None] = (
        standard_error_to(log) if workers > 1 else nullcontext()
    )
    sockets = servers_on_sockets(server.folder) if server else nullcontext()
    watched: AbstractContextManager[None] = (
        watchdog.job(job.fail, server.folder if server else None) if watchdog else nullcontext()
    )
    with _worker_failures_end(job):
        try:
            with _worker_environment(), log_file, sockets, watched:
                job.run()
        finally:
            if server:
                server.close()
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
        self._fork_server: ForkServer | None = None
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
        self, modules: tuple[str, ...], warm_up: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Loads meanwhile what workers need."""
        self._fork_server = start_fork_server(modules, warm_up) if self.workers > 1 else None
        try:
            with self._watched():
                yield
        finally:
            if self._fork_server:
                self._fork_server.close()

    def warms_workers(self, size: JobSize) -> bool:
        """Returns whether `warm_up` is called for the workers of a job; if not, it ends.

        A job that this process does alone needs no other one to take its core.
        """
        server = self._fork_server
        if server and self.workers_for(size) == 1:
            server.close()
            self._fork_server = None
        return bool(self._fork_server and self._fork_server.is_warm)

    @contextmanager
    def _watched(self) -> Iterator[Watchdog | None]:
        """Watches what runs meanwhile, if nobody does yet; call it after the last fork."""
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
        if not files.is_local(folder):
            folder = tempfile.gettempdir()
        log = files.join(folder, f"recordmill-workers-{os.getpid()}.log")
        workers = self.workers_for(size)
        server = self._fork_server or (start_fork_server() if workers > 1 else None)
        with self._watched() as watchdog:
            return run_local(
                build, self.flags, workers=workers, log=log, fork_server=server, watchdog=watchdog
            )
