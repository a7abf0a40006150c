"""The fork server: one process that has loaded Beam, from which the local engine forks its workers.

Loading Beam and the kernels takes seconds. The fork server is a fork of the driver, which has
loaded them. Where the driver has threads, which a fork would lose, it is a new process that loads
them while the driver plans. Beam starts a worker by a command, `worker_client.py`: this asks the
fork server for a fork and ends when the fork ends. A worker ends when its client or the driver is
gone, and a client reports the death of its worker by its exit status.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence

from recordmill.pipelines import temporary_folders
from recordmill.pipelines.beam_internals import connect_by_sockets
from recordmill.pipelines.engines import worker_client
from recordmill.pipelines.engines.call_stacks import answer_with_calls
from recordmill.pipelines.engines.standard_streams import unfailing

_MAX_REQUEST_BYTES = 1 << 22
_MAX_FOLDER_BYTES = 60


class ForkServer:
    """The driver's handle of the process that workers are forked from."""

    def __init__(
        self,
        modules: Sequence[str],
        environment: Mapping[str, str],
        warm_up: Callable[[], None] | None = None,
    ) -> None:
        """Starts the process; it loads `modules` while the caller goes on.

        Args:
          modules: what workers need.
          environment: variables for workers.
          warm_up: called then, where the process is a fork of this one; it leaves no thread.
        """
        # A socket's path may have some hundred bytes, and a batch system's TMPDIR is long.
        short = len(os.fsencode(tempfile.gettempdir())) <= _MAX_FOLDER_BYTES
        self._folder = temporary_folders.make_folder(None if short else "/tmp")
        # The process exits when this pipe is closed: then the driver has ended.
        end, self._life = os.pipe()
        self._process: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        self.is_warm = False  # it calls, or has called, `warm_up`
        # It listens before there is a process: a client waits in the queue while modules are
        # loaded, and is refused as soon as the process has died.
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(_address(self._folder))
            listener.listen(128)
            if _may_fork():
                pipe = (end, self._life)
                self.is_warm = warm_up is not None
                self._pid = _start_process(
                    listener, self._folder, modules, environment, pipe, warm_up
                )
            else:
                number = listener.fileno()
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(number), self._folder, *modules],
                    stdin=end,
                    env={**os.environ, **environment},
                    pass_fds=[number],
                )
                self._pid = self._process.pid
        os.close(end)

    @property
    def folder(self) -> str:
        """The folder of the sockets; no other user can enter it."""
        return self._folder

    @property
    def command(self) -> str:
        """The shell command that Beam starts for each worker."""
        # Without site-packages an interpreter is there in a hundredth of a second.
        program = [sys.executable, "-I", "-S", worker_client.__file__]
        words = [*program, _address(self._folder), str(os.getpid())]
        return f"exec {shlex.join(words)}"

    def failure(self) -> str | None:
        """Returns why the process has ended, in one line; None while it runs."""
        if not self._has_ended():
            return None
        try:
            with open(_failure_path(self._folder), encoding="utf-8") as handle:
                return handle.read()
        except OSError:
            status = self._status or 0
            return f"signal {-status} killed it" if status < 0 else f"its exit status is {status}"

    def close(self) -> None:
        """Ends the process and all its workers."""
        if not self._pid:
            return
        if not self._has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._wait()
        self._pid = 0
        os.close(self._life)
        temporary_folders.remove_folder(self._folder)

    def _has_ended(self) -> bool:
        if self._status is None:
            self._wait(os.WNOHANG)
        return self._status is not None

    def _wait(self, options: int = 0) -> None:
        if self._process:
            self._status = self._process.poll() if options else self._process.wait()
            return
        try:
            process, status = os.waitpid(self._pid, options)
        except ChildProcessError:  # a parent process may have made us ignore SIGCHLD
            with contextlib.suppress(ProcessLookupError):
                if options:
                    os.kill(self._pid, 0)
                    return
            process, status = self._pid, 0
        if process:
            self._status = os.waitstatus_to_exitcode(status)


def _failure_path(folder: str) -> str:
    return os.path.join(folder, "failure")


def _address(folder: str) -> str:
    return os.path.join(folder, "fork_server")


def _may_fork() -> bool:
    """Returns whether a fork would be complete: there is one thread, and TensorFlow is absent."""
    linux = sys.platform == "linux"  # elsewhere system libraries do not survive a fork
    return linux and threading.active_count() == 1 and "tensorflow" not in sys.modules


def _fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of all threads, also those of libraries that handle forks (OpenBLAS).
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _start_process(
    listener: socket.socket,
    folder: str,
    modules: Sequence[str],
    environment: Mapping[str, str],
    pipe: tuple[int, int],
    warm_up: Callable[[], None] | None,
) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, worker_client.STOP_SIGNALS)
    process = _fork()
    if process:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return process
    try:
        end, life = pipe
        os.close(life)
        if sys.path[0] in ("", os.getcwd()):  # what -m put there: as PYTHONSAFEPATH
            del sys.path[0]
        os.dup2(end, 0)
        os.environ.update(environment)
        main(listener, folder, modules, warm_up)
    except BaseException as error:
        _report(folder, error)
    os._exit(1)


def _report(folder: str, error: BaseException) -> None:
    """Leaves for the driver why the fork server cannot go on."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    with contextlib.suppress(OSError), open(_failure_path(folder), "w", encoding="utf-8") as handle:
        handle.write(reason)


def _watch(connection: socket.socket) -> None:
    """Ends this worker when its client is gone."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os._exit(1)


def _work(connection: socket.socket, folder: str) -> None:
    """Runs Beam's worker until the driver is done with it."""
    request, descriptors, *_ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 2)
    if len(descriptors) != 2:
        os._exit(1)  # the client has gone
    out, err = descriptors
    while not request.endswith(b"\n"):
        more = connection.recv(_MAX_REQUEST_BYTES)
        if not more:
            os._exit(1)
        request += more
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdout, sys.stderr = unfailing(sys.stdout), unfailing(sys.stderr)
    os.environ.clear()
    os.environ.update(json.loads(request))
    threading.Thread(target=_watch, args=(connection,), name="watch_client", daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    connect_by_sockets(folder)
    answer_with_calls(folder)
    sdk_worker_main.main(sys.argv[:1])
    connection.sendall(b"0")
    # Everything is written and closed; taking a loaded interpreter apart takes half a second.
    os._exit(0)


def _nothing() -> None:
    """Loads no kernels."""


def main(
    listener: socket.socket,
    folder: str,
    modules: Sequence[str],
    warm_up: Callable[[], None] | None = None,
) -> None:
    """Loads modules, then forks a worker for each connection.

    Args:
      listener: the socket on which clients ask for workers.
      folder: the folder of all sockets.
      modules: what workers need.
      warm_up: called when these are loaded.
    """
    worker_client.ignore_termination_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, worker_client.STOP_SIGNALS)  # blocked at the fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # only its client asks how a worker ended
    for module in modules:
        importlib.import_module(module)
    if "recordmill.records.codec.jit" in sys.modules:
        sys.modules["recordmill.records.codec.jit"].load()
    for module in modules:  # those that all workers call, once for all of them
        getattr(sys.modules[module], "load_kernels", _nothing)()
    if warm_up:
        warm_up()
    while True:
        # No thread may run at a fork.
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready:  # the driver is gone
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        connection, _ = listener.accept()
        if _fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _work(connection, folder)
        connection.close()


if __name__ == "__main__":
    try:
        main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3:])
    except BaseException as error:
        _report(sys.argv[2], error)
        os._exit(1)
