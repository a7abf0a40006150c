"""The process that workers of this machine are forked from: it loads what all of them need.

Loading kernels takes a second or two. It begins before this process loads the same, and goes on
while this one plans: `preloading`. What the job itself needs follows when it is known: `warm_up`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context, resource_tracker

import psutil

from recordmill.pipelines import temporary_folders
from recordmill.transforms.dataset.fork_server import SIGNALS, socket_folder

# For workers: the current folder is not on their path, and each has one thread.
ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
    "FASTOKENS_BPE_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "GRPC_VERBOSITY": "ERROR",
}
PRELOADED = "RECORDMILL_PRELOADED"  # the variable with the folder below and names of modules
WARM_UP = "warm-up"  # the file in the folder with what is called at last
_PRELOADED = "recordmill.pipelines.engines.preloaded"
_LOOK_EVERY_SECONDS, _MOST_FORK_SECONDS = 0.001, 5.0


def missing_environment() -> dict[str, str]:
    """Returns the variables for workers that the user has not set."""
    return {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}


class Preloading:
    """The process that workers are forked from; `preloading` begins it.

    Where a program has such a process already, that one is used as it is, and workers load what
    they need.

    Attributes:
      folder: a private one, for what processes of the job tell each other.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self.folder = temporary_folders.make_folder()
        temporary_folders.remove_with(self.folder, socket_folder())
        get_context("forkserver").set_forkserver_preload([_PRELOADED])
        resource_tracker.ensure_running()
        here = psutil.Process()
        before = {child.pid for child in here.children()}
        variables = {**missing_environment(), PRELOADED: " ".join([self.folder, *modules])}
        with _variables(variables):
            # It ignores them once it is loaded: until then they wait.
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            try:
                forkserver.ensure_running()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        begun = [child for child in here.children() if child.pid not in before]
        self._process = next((c for c in begun if _is_fork_server(c, here)), None)

    def warm_up(self, function: Callable[[], None] | None) -> None:
        """Says what is called once modules are loaded; workers are forked then.

        Args:
          function: leaves no thread; an error of it is not reported. None: nothing.
        """
        from recordmill.transforms.dataset.function_bytes import function_bytes

        path = os.path.join(self.folder, WARM_UP)
        with open(f"{path}-", "wb") as handle:
            handle.write(function_bytes(function))
        os.rename(f"{path}-", path)

    @property
    def is_own(self) -> bool:
        """Whether the process loads what was asked for."""
        return self._process is not None

    def end(self) -> None:
        """Ends the process; the next `preloading` begins another one."""
        process, self._process = self._process, None
        if process:
            # By its number, which is its own until its status is collected: psutil takes a process
            # for another one where the clock of the machine is set, and leaves it.
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(process.pid, signal.SIGKILL)
                # Python itself collects its status, before it begins another one.
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


_current: Preloading | None = None


def is_preloading() -> bool:
    """Tells whether this program has begun to load what workers of a job need."""
    return _current is not None


@contextmanager
def preloading(modules: Sequence[str] = ()) -> Iterator[Preloading]:
    """Begins to load modules for the workers of a job, which is done within.

    Within another one, that one is given.
    """
    global _current
    if _current:
        yield _current
        return
    _current = Preloading(modules)
    try:
        yield _current
    finally:
        ended, _current = _current, None
        ended.end()
        temporary_folders.remove_folder(ended.folder)


@contextmanager
def _variables(settings: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


def _is_fork_server(process: psutil.Process, parent: psutil.Process) -> bool:
    """Tells what a child is, once it is no copy of its parent any more, which it begins as."""
    until = time.monotonic() + _MOST_FORK_SECONDS
    with suppress(psutil.Error):
        while process.cmdline() in ([], parent.cmdline()) and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_SECONDS)
        return "multiprocessing.forkserver" in " ".join(process.cmdline())
    return False
