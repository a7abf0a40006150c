"""A Google Cloud Storage on this machine, whose requests can be counted and made to fail.

It is `gcp-storage-emulator`, served in this process; a fault is chosen before a request reaches it,
or strikes its answer on the way back.
"""

from __future__ import annotations

import gc
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import server
from typing import Any

import pytest

SILENT_SECONDS = 6.0  # that a "silent" service keeps a connection open without a word
BUCKET = "bucket"

# A rule returns the fault of a request: "" for none, "429" or another status, "drop" before it is
# done, "lose" the answer when it is done, "cut" the answer in its middle.
Rule = Callable[[int, str, str], str]


@dataclass
class Cloud:
    """The service.

    Attributes:
      port: where it listens.
      requests: (method, path) of each request since `watch`.
      rule: what becomes of a request, by its number from 0, its method and its path.
    """

    port: int
    requests: list[tuple[str, str]] = field(default_factory=list)
    rule: Rule = lambda number, method, path: ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self) -> None:
        """Begins to count anew, and without faults."""
        with self.lock:
            self.rule = lambda number, method, path: ""
            self.requests.clear()

    def fault(self, method: str, path: str) -> str:
        """Counts a request, and returns its fault."""
        if re.fullmatch(r"/storage/v1/b/\w+\?.*", path):
            return ""  # Google's client asks for the bucket now and then, in a thread of its own
        with self.lock:
            self.requests.append((method, path))
            return self.rule(len(self.requests) - 1, method, path)

    @contextmanager
    def failing(self, rule: Rule) -> Iterator[None]:
        """Makes requests fail by a rule until the block ends."""
        self.watch()
        self.rule = rule
        try:
            yield
        finally:
            self.rule = lambda number, method, path: ""

    def count(self, *words: str) -> int:
        """Returns how many requests have all of these words in method or path."""
        return sum(all(word in f"{m} {p}" for word in words) for m, p in self.requests)


def once(*faults: str) -> Rule:
    """The first requests have these faults, the others none."""
    return lambda number, method, path: faults[number] if number < len(faults) else ""


def only(number: int, fault: str) -> Rule:
    """One request has a fault."""
    return lambda n, method, path: fault if n == number else ""


def after(number: int, fault: str) -> Rule:
    """All requests from this one on have a fault: a machine that lost its network."""
    return lambda n, method, path: fault if n >= number else ""


def breaking(number: int, fault: str) -> Rule:
    """One request has a fault, and all after it are dropped: a machine that died."""
    return lambda n, method, path: fault if n == number else "drop" * (n > number)


def _handler(base: Any, cloud: Cloud) -> Any:
    class Handler(base):  # type: ignore[misc]
        def _served(self, method: str, serve: Callable[[], None]) -> None:
            fault = cloud.fault(method, self.path)
            if not fault:
                serve()
                return
            if fault == "drop":
                self._hang_up()
            elif fault == "silent":
                time.sleep(SILENT_SECONDS)
                self._hang_up()
            elif fault.isdigit():
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.send_response(int(fault))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                kept, self.wfile = self.wfile, _Kept()
                serve()
                answer, self.wfile = self.wfile.data, kept
                head, body = answer.split(b"\r\n\r\n", 1)
                if fault == "cut" and body:
                    self.wfile.write(head + b"\r\n\r\n" + body[: len(body) // 2])
                    self.wfile.flush()
                self._hang_up()

        def _hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def do_GET(self) -> None:
            self._served("GET", super().do_GET)

        def do_POST(self) -> None:
            self._served("POST", super().do_POST)

        def do_PUT(self) -> None:
            self._served("PUT", super().do_PUT)

        def do_DELETE(self) -> None:
            self._served("DELETE", super().do_DELETE)

    return Handler


class _Kept:
    """What an answer would have been."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> int:
        self.data += data
        return len(data)

    def flush(self) -> None:
        pass


class _Server(server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing of connections that were cut on purpose."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """A service with one empty bucket, which Google's libraries in this process take for Google."""
    emulator = pytest.importorskip("gcp_storage_emulator.server")
    auth = pytest.importorskip("apache_beam.internal.gcp.auth")
    from functools import partial

    from gcp_storage_emulator.handlers.buckets import create_bucket
    from gcp_storage_emulator.storage import Storage

    from recordmill.transforms.storage import google_storage

    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    storage = Storage(use_memory_fs=True)
    storage._write_config_to_file = lambda: None  # at each request all that it knows, for a restart
    create_bucket(BUCKET, storage)
    found = Cloud(0)
    handler = partial(_handler(emulator.RequestHandler, found), storage)
    service = _Server(("127.0.0.1", 0), handler)
    found.port = service.server_address[1]
    thread = threading.Thread(target=service.serve_forever, name="cloud", daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{found.port}")
        # Or else the first call looks for an account for 20 seconds.
        patch.setattr(auth._Credentials, "_credentials_init", True)
        google_storage.close_clients()
        patch.setattr(google_storage, "patience", google_storage.Patience(0.01, 0.05, 2.0))
        try:
            yield found
        finally:
            google_storage.close_clients()
            gc.collect()  # Beam leaves its clients to it
            service.shutdown()
            service.server_close()
            thread.join(timeout=10)
