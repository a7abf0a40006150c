"""The local engine: Beam's FnApiRunner, with what it lacks for jobs of hours.

One process for small inputs, else as many as cores. A worker that dies would leave the runner
waiting for ever, so its death ends the run at once with one line; Ctrl-C does too. What is finished
by then is on disk, and the same command goes on from there.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import ClassVar

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from recordmill.pipelines.worker import Nursery
from recordmill.records.errors import RunError
from recordmill.transforms import files

_SMALL_INPUT_BYTES = 16_000_000
_BEAM_WORKER = "apache_beam.runners.worker.sdk_worker_main"
_AGAIN = "what is finished is kept, run the same command again to go on"

# For the workers: no module of the current folder is imported for one of ours, and one thread each.
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


def default_workers() -> int:
    """Returns the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class JobSize:
    """How large a job is, for engines that choose their workers by it.

    Attributes:
      tasks: of its first stage.
      input_bytes: that they read.
      processes: that are worth starting on one machine.
    """

    tasks: int
    input_bytes: int
    processes: int


def processes_for(input_bytes: int) -> int:
    """Returns the processes for an input: starting more than one costs more than a small one."""
    return 1 if input_bytes < _SMALL_INPUT_BYTES else default_workers()


@contextmanager
def _worker_environment() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k not in before})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _standard_error_to(path: str) -> Iterator[None]:
    """Sends what workers and Beam's threads print to a file; what we print goes where it did.

    When a run is cut short each of them prints a page about its lost connection.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 2)
    os.close(log)
    before, sys.stderr = sys.stderr, os.fdopen(terminal, "w", buffering=1)
    try:
        yield
    finally:
        ours, sys.stderr = sys.stderr, before
        os.dup2(terminal, 2)
        with suppress(OSError):  # the terminal may be closed
            ours.close()


class WorkerDiedError(RunError):
    """A worker process ended before its work."""


def start_nursery(modules: tuple[str, ...] = ()) -> Nursery:
    """Starts the process that workers are forked from; it loads Beam and `modules` meanwhile."""
    environment = {k: v for k, v in ENVIRONMENT.items() if k not in os.environ}
    return Nursery((_BEAM_WORKER, *modules), environment)


def run_local(
    build: Callable[[beam.Pipeline], object],
    flags: list[str],
    *,
    workers: int,
    log: str,
    nursery: Nursery | None = None,
) -> None:
    """Builds a pipeline and runs it to its end.

    Args:
      build: applies transforms to the pipeline.
      flags: Beam's own options.
      workers: processes; 1 is this one.
      log: the file for what worker processes print.
      nursery: what workers are forked from, where it has been started before.

    Raises:
      WorkerDiedError: a worker process was killed or crashed. The runner's threads still wait for
        it: the caller should end the process.
      Exception: what the pipeline raised.
    """
    flags = [*flags, f"--direct_num_workers={workers}"]
    if workers == 1:
        nursery = None
    elif nursery is None:
        nursery = start_nursery()
    # Beam logs each error of a worker with its traceback; the one line of ours says it all.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    ended = threading.Event()
    problems: list[BaseException] = []
    previous_hook = threading.excepthook
    folders: list[str] = []  # Beam's own, which it removes only at a good end

    def on_thread_error(args: threading.ExceptHookArgs) -> None:
        if args.thread is not None and args.thread.name == "run_worker":
            problems.append(WorkerDiedError(f"a worker died: {args.exc_value}; {_AGAIN}"))
            ended.set()
        elif not isinstance(args.exc_value, grpc.RpcError):
            previous_hook(args)

    def run() -> None:
        try:
            runner = FnApiRunner(
                default_environment=SubprocessSDKEnvironment.from_command_string(nursery.command)
                if nursery
                else None
            )
            pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(flags))
            folders.append(pipeline.local_tempdir)
            build(pipeline)
            pipeline.run().wait_until_finish()
        except BaseException as error:
            problems.append(error)
        ended.set()

    threading.excepthook = on_thread_error
    quiet = _standard_error_to(log) if workers > 1 else nullcontext()
    try:
        with _worker_environment(), quiet:
            threading.Thread(target=run, name="pipeline", daemon=True).start()
            while not ended.wait(0.2):
                pass
    except BaseException:
        problems.append(RunError("interrupted"))
        raise
    finally:
        if nursery:
            nursery.close()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        # Cut short, Beam's threads go on complaining of lost connections to the process's end.
        if not any(isinstance(problem, RunError) for problem in problems):
            threading.excepthook = previous_hook
    if problems:
        raise problems[0]


@dataclass
class LocalEngine:
    """This machine, as an engine.

    Attributes:
      flags: Beam's own options.
      processes: so many workers; 0: as many as the input is worth.
    """

    flags: tuple[str, ...] = ()
    processes: int = 0
    wait: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._nursery: Nursery | None = None

    @property
    def workers(self) -> int:
        """For how many the input is cut."""
        return self.processes or default_workers()

    def check(self, paths: Mapping[str, str]) -> None:
        """Every path is within reach."""

    @contextmanager
    def started(self, modules: tuple[str, ...]) -> Iterator[None]:
        """Loads what workers need meanwhile."""
        self._nursery = start_nursery(modules) if self.workers > 1 else None
        try:
            yield
        finally:
            if self._nursery:
                self._nursery.close()

    def run(
        self,
        build: Callable[[beam.Pipeline], object],
        *,
        folder: str,
        failure_path: str,
        size: JobSize,
    ) -> None:
        """Runs a pipeline to its end, see `run_local`.

        Args:
          build: applies transforms to the pipeline.
          folder: of the job's temporary files; what workers print goes there.
          failure_path: not used here, errors are raised.
          size: of the job.
        """
        if not files.is_local(folder):
            folder = tempfile.gettempdir()
        log = files.join(folder, f"recordmill-workers-{os.getpid()}.log")
        workers = self.processes or size.processes
        run_local(build, list(self.flags), workers=workers, log=log, nursery=self._nursery)
