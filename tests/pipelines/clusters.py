"""Engines beyond this process: a Flink cluster and Prism, each started or built once a session."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PRISM = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"


@dataclass(frozen=True)
class Flink:
    """A running cluster: the numbers of its processes by name, its ports, the flags of a job."""

    pids: dict[str, int]
    ports: dict[str, int]

    @property
    def url(self) -> str:
        return f"http://localhost:{self.ports['rest']}"

    @property
    def flags(self) -> list[str]:
        """For the job server that runs beside the cluster."""
        return [*self.flags_but_server, f"--job_endpoint=localhost:{self.ports['job']}"]

    @property
    def flags_but_server(self) -> list[str]:
        return ["--runner=flink", f"--flink_master={self.url}", "--parallelism=2"]


_CLUSTER = [sys.executable, str(ROOT / "examples/flink/cluster.py")]
_PRISM_PROGRAM = ROOT / "build/prism/prism"
_INSTALL_PRISM = ["env", f"GOBIN={_PRISM_PROGRAM.parent}", "go", "install", _PRISM]
_ahead: dict[str, subprocess.Popen[bytes]] = {}


def build_ahead(markers: Iterable[str]) -> None:
    """Begins to build what tests of these markers need; their fixtures await it."""
    commands = {"flink": ("mvn", [*_CLUSTER, "build"]), "prism": ("go", _INSTALL_PRISM)}
    missing = {"flink": True, "prism": not _PRISM_PROGRAM.exists()}  # the script looks by itself
    for marker in markers:
        tool, command = commands[marker]
        if missing[marker] and shutil.which(tool):
            _ahead[marker] = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )


def await_build(marker: str) -> None:
    """Waits for what was begun for tests of a marker."""
    # Whether it went well the command that comes next will tell.
    if marker in _ahead:
        _ahead.pop(marker).wait(900)


@pytest.fixture(scope="session")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    for tool in ("java", "mvn"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed, and a Flink cluster needs a JDK and Maven")
    await_build("flink")
    folder = tmp_path_factory.mktemp("flink") / "cluster"
    script = [*_CLUSTER, f"--folder={folder}"]
    # The job server sends what the cluster has already: loading it again for each job takes long.
    settings = ["--set=classloader.resolve-order=parent-first", "--rest_port=0", "--job_port=0"]
    start = [*script, "start", *settings]
    try:
        subprocess.run(start, check=True, timeout=900)
        yield Flink(**json.loads((folder / "cluster.json").read_bytes()))
    finally:
        subprocess.run([*script, "stop"], check=True, timeout=60)


@pytest.fixture(scope="session")
def prism() -> Path:
    """The program, built from Beam's Go module."""
    await_build("prism")
    if not _PRISM_PROGRAM.exists():
        if not shutil.which("go"):
            pytest.skip("go is not installed, and Prism is built from Beam's Go module")
        subprocess.run(_INSTALL_PRISM, check=True, timeout=900)
    return _PRISM_PROGRAM
