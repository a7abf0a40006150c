"""The program that Beam starts as a worker: it asks the fork server for one and waits for it.

It runs without site-packages, so it imports the standard library only.
"""

import json
import os
import select
import signal
import socket
import sys

_WATCH_EVERY_SECONDS = 0.5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore_termination_signals() -> None:
    """Ignores the signals that reach all processes of a terminal: the driver handles them."""
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def main(address: str, driver: int) -> int:
    """Returns 0 when the worker has finished, 1 when it, the fork server or the driver has died.

    The driver names its own process id: asked for the parent, this program could get another one,
    because the driver may be gone before this program is loaded.
    """
    ignore_termination_signals()
    if os.getppid() != driver:
        return 1
    try:
        return _ask(address, driver)
    except OSError:  # the fork server has died
        return 1


def _ask(address: str, driver: int) -> int:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)
    request = json.dumps(dict(os.environ)).encode() + b"\n"
    sent = socket.send_fds(connection, [request], [1, 2])
    connection.sendall(request[sent:])
    while os.getppid() == driver:
        ready, _, _ = select.select([connection], [], [], _WATCH_EVERY_SECONDS)
        if ready:
            return 0 if connection.recv(1) == b"0" else 1
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
