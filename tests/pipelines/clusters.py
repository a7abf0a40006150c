"""Engines beyond this process: a Flink cluster and Prism, each started or built once a session."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
_CLUSTER = [sys.executable, str(ROOT / "examples/flink/cluster.py")]
ENDED = {"FINISHED", "CANCELED", "FAILED"}  # the states of a job of Flink's that is over
_OWN_END = re.compile("did not exit gracefully|[Ff]atal error occurred|OutOfMemoryError")
AFTER_JOB_SECONDS = 120.0  # in which a program must end whose job has
_JOB_THREADS = ('"flink-runner-job', '"Flink-Rest', '"flink-rest', '"grpc-default-executor')
_JOB_ERROR = re.compile(r"\] (WARN|ERROR) |^(SEVERE|WARNING)|Exception")
_PRISM = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"


@dataclass(frozen=True)
class Flink:
    """A cluster that runs, and whose processes may be killed.

    Attributes:
      folder: its state and logs.
    """

    folder: Path

    def _state(self) -> dict[str, dict[str, int]]:
        return dict(json.loads((self.folder / "cluster.json").read_bytes()))

    @property
    def url(self) -> str:
        return f"http://localhost:{self._state()['ports']['rest']}"

    @property
    def flags(self) -> list[str]:
        """For the job server that runs beside the cluster."""
        port = self._state()["ports"]["job"]
        return [*self.flags_but_server, f"--job_endpoint=localhost:{port}"]

    @property
    def flags_but_server(self) -> list[str]:
        return ["--runner=flink", f"--flink_master={self.url}", "--parallelism=2"]

    def get(self, path: str) -> Any:
        """Returns what Flink's REST interface answers."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)

    def task_managers(self) -> list[int]:
        """Returns the processes of the task managers that live."""
        pids = self._state()["pids"].items()
        return [pid for name, pid in pids if name.startswith("task-manager") and self._lives(pid)]

    def _lives(self, pid: int) -> bool:
        # Numbers of processes are used again; what has ended has no command line.
        with suppress(psutil.Error):
            return str(self.folder.resolve()) in " ".join(psutil.Process(pid).cmdline())
        return False

    def await_end(self, process: subprocess.Popen[Any], seconds: float, *, needed: int) -> int:
        """Waits for the end of a program, and starts task managers again where too few live.

        Kubernetes and YARN do so: Flink itself ends a task manager whose tasks do not stop within
        three minutes, as they must when another one is lost (docs/guides/engines.md).

        Args:
          process: of the program.
          seconds: to wait at most.
          needed: the task managers without which its job cannot go on.

        Raises:
          subprocess.TimeoutExpired: the program has not ended, not even a while behind its job. It
            is ended then, and Python writes to its stderr where it stood.
        """
        start = time.monotonic()
        launched = psutil.Process(process.pid).create_time() * 1000
        until = start + seconds
        while (now := time.monotonic()) < until:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(min(until - now, 1.0))
            if len(self.task_managers()) < needed:
                self.revive()
            ours = [job for job in self.jobs() if job["start-time"] > launched]
            ended = bool(ours) and ours[0]["state"] in ENDED
            until = min(until, now + AFTER_JOB_SECONDS) if ended else start + seconds
        process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10.0)
        raise subprocess.TimeoutExpired(process.args, round(time.monotonic() - start))

    def jobs(self) -> list[dict[str, Any]]:
        """Returns what Flink tells of its jobs, the newest first."""
        jobs = self.get("/jobs/overview")["jobs"]
        return sorted(jobs, key=lambda job: -job["start-time"])

    def cancel_jobs(self, seconds: float) -> None:
        """Ends all jobs, of which a launcher that was killed leaves its own; waits for their end.

        Raises:
          TimeoutError: one has not ended.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            left = [job["jid"] for job in self.jobs() if job["state"] not in ENDED]
            if not left:
                return
            for number in left:
                line = urllib.request.Request(f"{self.url}/jobs/{number}", method="PATCH")
                with suppress(urllib.error.HTTPError):  # it has ended meanwhile
                    urllib.request.urlopen(line, timeout=30).close()
            time.sleep(1.0)
        raise TimeoutError("a job that is cancelled does not end")

    def tell_job_server(self) -> str:
        """Returns where the threads of Beam's job server stand that run jobs, and its errors."""
        log = self.folder / "job-server.log"
        with suppress(KeyError, OSError):
            os.kill(self._state()["pids"]["job-server"], signal.SIGQUIT)  # Java writes its threads
            time.sleep(2.0)
            before, _, dump = log.read_text(errors="replace").rpartition("Full thread dump")
            threads = [part[:3000] for part in dump.split("\n\n") if part.startswith(_JOB_THREADS)]
            errors = [line[:300] for line in before.splitlines() if _JOB_ERROR.search(line)]
            return "\n".join(["job server:", *errors[-20:], *threads])
        return "no job server"

    def own_ends(self) -> list[str]:
        """Returns the lines in which task managers say why they end themselves."""
        logs = sorted(self.folder.glob("task-manager-*.log"))
        lines = (line for log in logs for line in log.read_text(errors="replace").splitlines())
        return [line[:300] for line in lines if _OWN_END.search(line)]

    def revive(self) -> None:
        """Starts the task managers again that were killed, and waits for them."""
        line = [*_CLUSTER, f"--folder={self.folder}", "revive"]
        subprocess.run(line, check=True, timeout=180, stdout=subprocess.DEVNULL)


_PRISM_PROGRAM = ROOT / "build/prism/prism"
_ahead: dict[str, threading.Thread] = {}


def _build_flink() -> None:
    """Makes the jar where it is not there yet; of two processes one waits for the other."""
    command = [*_CLUSTER, "build"]
    subprocess.run(command, timeout=900, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _build_prism() -> None:
    _PRISM_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(_PRISM_PROGRAM.with_name("lock")):
        if not _PRISM_PROGRAM.exists():
            command = ["env", f"GOBIN={_PRISM_PROGRAM.parent}", "go", "install", _PRISM]
            subprocess.run(command, timeout=900, capture_output=True)


_BUILDS = {"flink": ("mvn", _build_flink), "prism": ("go", _build_prism)}


def build_ahead(markers: Iterable[str]) -> None:
    """Begins to build what tests of these markers need; their fixtures await it."""
    for marker in markers:
        tool, build = _BUILDS[marker]
        if shutil.which(tool):
            _ahead[marker] = threading.Thread(target=build, name=f"build-{marker}", daemon=True)
            _ahead[marker].start()


def await_build(marker: str) -> None:
    """Waits for what was begun for tests of a marker."""
    # Whether it went well, the command that comes next finds.
    if marker in _ahead:
        _ahead.pop(marker).join()


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    with flink_cluster(tmp_path_factory.mktemp("flink") / "cluster") as cluster:
        yield cluster


@contextmanager
def flink_cluster(folder: Path, *flags: str) -> Iterator[Flink]:
    """Starts a cluster, with more flags of `examples/flink/cluster.py`, and stops it."""
    for tool in ("java", "mvn"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed, and a Flink cluster needs a JDK and Maven")
    await_build("flink")
    script = [*_CLUSTER, f"--folder={folder}"]
    # The job server sends what the cluster has already: loading it again for each job takes long.
    settings = ["--set=classloader.resolve-order=parent-first", "--rest_port=0", "--job_port=0"]
    start = [*script, "start", *settings, *flags]
    try:
        subprocess.run(start, check=True, timeout=900)
        yield Flink(folder)
    finally:
        subprocess.run([*script, "stop"], check=True, timeout=60)


@pytest.fixture(scope="session")
def prism() -> Path:
    """The program, built from Beam's Go module."""
    if not _PRISM_PROGRAM.exists() and not shutil.which("go"):
        pytest.skip("go is not installed, and Prism is built from Beam's Go module")
    await_build("prism")
    _build_prism()
    assert _PRISM_PROGRAM.exists(), f"go install {_PRISM} failed"
    return _PRISM_PROGRAM
