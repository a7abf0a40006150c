"""The local engine: Beam's FnApiRunner, with what it lacks for jobs of hours.

One process for small inputs, else as many as cores. A worker that dies would leave the runner
waiting for ever, so its death ends the run at once with one line; Ctrl-C does too. What is finished
by then is on disk, and the same command goes on from there.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from recordmill.records.errors import RunError
from recordmill.transforms.driver import DRIVER_VARIABLE

_SMALL_INPUT_BYTES = 16_000_000
_AGAIN = "what is finished is kept, run the same command again to go on"

# For the workers: no module of the current folder is imported for one of ours, and one thread each.
_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "GRPC_VERBOSITY": "ERROR",
}


def default_workers(input_bytes: int) -> int:
    """Returns the processes for an input: starting more than one costs more than a small one."""
    if input_bytes < _SMALL_INPUT_BYTES:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextmanager
def _worker_environment() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update({k: v for k, v in _ENVIRONMENT.items() if k not in before})
    os.environ[DRIVER_VARIABLE] = str(os.getpid())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class WorkerDiedError(RunError):
    """A worker process ended before its work."""


def run_local(build: Callable[[beam.Pipeline], object], flags: list[str], *, workers: int) -> None:
    """Builds a pipeline and runs it to its end.

    Args:
      build: applies transforms to the pipeline.
      flags: Beam's own options.
      workers: processes; 1 is this one.

    Raises:
      WorkerDiedError: a worker process was killed or crashed. The runner's threads still wait for
        it: the caller should end the process.
      Exception: what the pipeline raised.
    """
    flags = [*flags, f"--direct_num_workers={workers}"]
    flags.append(f"--direct_running_mode={'multi_processing' if workers > 1 else 'in_memory'}")
    # Beam logs each error of a worker with its traceback; the one line of ours says it all.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    ended = threading.Event()
    problems: list[BaseException] = []
    previous_hook = threading.excepthook

    def on_thread_error(args: threading.ExceptHookArgs) -> None:
        if args.thread is not None and args.thread.name == "run_worker":
            problems.append(WorkerDiedError(f"a worker died ({args.exc_value}); {_AGAIN}"))
            ended.set()
        else:
            previous_hook(args)

    def run() -> None:
        # Workers inherit the mask: Ctrl-C reaches the driver only, and they end with it.
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(flags))
            build(pipeline)
            pipeline.run().wait_until_finish()
        except BaseException as error:
            problems.append(error)
        ended.set()

    threading.excepthook = on_thread_error
    try:
        with _worker_environment():
            threading.Thread(target=run, name="pipeline", daemon=True).start()
            while not ended.wait(0.2):
                pass
    finally:
        threading.excepthook = previous_hook
    if problems:
        raise problems[0]
