"""What a test says of a program on a Flink cluster that failed or did not end."""

from __future__ import annotations

import io
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from .clusters import Flink
from .flink_runs import explained, wait_for

_STACK = "org.apache.flink.NoResourceAvailableException: Could not acquire the resources\n  at A"


class _Rest(BaseHTTPRequestHandler):
    """What a cluster answers in which a job waits for a slot until it is cancelled."""

    jobs: list[dict[str, Any]]

    def do_GET(self) -> None:
        self._answer(
            {
                "/overview": {"slots-available": 0, "slots-total": 1},
                "/jobs/overview": {"jobs": self.jobs},
                "/jobs/second/exceptions": {
                    "exceptionHistory": {"entries": [{"stacktrace": _STACK}, {"stacktrace": "?"}]}
                },
            }[self.path]
        )

    def do_PATCH(self) -> None:
        self.jobs[1]["state"] = self.path
        self._answer({})

    def _answer(self, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flink]:
    """A cluster whose newest job waits for a slot."""
    monkeypatch.setattr(Flink, "revive", lambda _: None)
    times = {"start-time": 5, "duration": 1000}
    first = {"jid": "first", "name": "a", "state": "FINISHED", **times}
    _Rest.jobs = [first, {"jid": "second", "name": "b", "state": "RUNNING", **times}]
    _Rest.jobs[1].update({"start-time": 9, "duration": 400_000})
    with ThreadingHTTPServer(("localhost", 0), _Rest) as server:
        threading.Thread(target=server.serve_forever, name="rest").start()
        state = {"pids": {}, "ports": {"rest": server.server_address[1]}}
        (tmp_path / "cluster.json").write_text(json.dumps(state))
        yield Flink(tmp_path)
        server.shutdown()


def test_a_program_that_does_not_end_is_told_of_and_its_job_cancelled(waiting: Flink) -> None:
    shown = io.StringIO("what the launcher wrote")
    with pytest.raises(AssertionError) as raised, explained(waiting, shown):
        raise subprocess.TimeoutExpired(["program"], 400)
    lines = str(raised.value).splitlines()
    assert lines == [
        "Command '['program']' timed out after 400 seconds",
        "b is RUNNING after 400 s; 0 of 1 slots are free; 2 failures, the last one:",
        *_STACK.splitlines(),
        "no job server",
        "stderr:",
        "what the launcher wrote",
    ]
    assert [job["state"] for job in _Rest.jobs] == ["FINISHED", "/jobs/second?mode=cancel"]


def test_a_cluster_that_does_not_answer_hides_no_error(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"pids": {}, "ports": {"rest": 1}}')
    shown = io.StringIO("what the launcher wrote")
    with pytest.raises(AssertionError) as raised, explained(Flink(tmp_path), shown):
        wait_for(lambda: False, 0.1)
    first, second, *rest = str(raised.value).splitlines()
    assert first == "nothing happened in 0 s"
    assert second.startswith("the cluster does not answer: ")
    assert rest == ["stderr:", "what the launcher wrote"]
