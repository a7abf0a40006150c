"""Worker processes of the local engine: forked from one that has loaded Beam, the nursery.

Loading Beam and the kernels takes seconds. The nursery does it once, while the driver plans, and a
worker is a fork of it. Beam starts what it takes for a worker by a command: `worker_client.py`,
which asks the nursery for a fork and ends when that ends. A worker whose client or driver is gone
ends too, and a client whose worker died says so by its exit status.
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
from collections.abc import Mapping, Sequence

from recordmill.pipelines import worker_client

_MAX_REQUEST_BYTES = 1 << 22


class Nursery:
    """The process that workers are forked from, as its driver sees it."""

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts it; it loads `modules` while the caller goes on."""
        self._folder = tempfile.mkdtemp(prefix="recordmill-")
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-m", "recordmill.pipelines.worker", self._address, *modules],
            stdin=subprocess.PIPE,
            env={**os.environ, **environment},
        )

    @property
    def _address(self) -> str:
        return os.path.join(self._folder, "nursery")

    @property
    def command(self) -> str:
        """The shell command that is a worker while it runs."""
        # Without site-packages an interpreter is there in a hundredth of a second.
        words = [sys.executable, "-I", "-S", worker_client.__file__, self._address]
        return f"exec {shlex.join(words)}"

    def close(self) -> None:
        """Ends it and every worker of it."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None
            shutil.rmtree(self._folder, ignore_errors=True)


def _watch(connection: socket.socket) -> None:
    """Ends this worker when its client has gone."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os._exit(1)


def _work(connection: socket.socket) -> None:
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
    os.environ.clear()
    os.environ.update(json.loads(request))
    threading.Thread(target=_watch, args=(connection,), name="watch_client", daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv[:1])
    connection.sendall(b"0")
    # Everything is written and closed; taking a loaded interpreter apart takes half a second.
    os._exit(0)


def main(address: str, modules: Sequence[str]) -> None:
    """Loads modules, then forks a worker for each connection."""
    # Ctrl-C reaches all processes of a terminal; what to do about it is the driver's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a worker ended but its client
    # The client may come before the modules are loaded: it waits in the queue.
    partial = f"{address}.partial"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(partial)
    listener.listen(128)
    os.rename(partial, address)
    for module in modules:
        importlib.import_module(module)
    while True:
        connection, _ = _accept(listener)
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _work(connection)
        connection.close()


def _accept(listener: socket.socket) -> tuple[socket.socket, object]:
    """Waits for a client; ends the process when the driver is gone. No thread may run at a fork."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin.fileno()], [], [])
        if listener in ready:
            return listener.accept()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
