"""`ReadExamples | … | WriteExamples` on other engines gives the shards of one worker here."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.engines.flink import flink_engine
from recordmill.records.manifest import Manifest

from ...conftest import SharedFolder
from ...pipelines.clusters import Flink, flink_cluster, prism
from ...pipelines.engines.test_flink import get, running, wait_for
from .record_files import example, write_records

__all__ = ["prism"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_PROGRAM = str(Path(__file__).with_name("write_program.py"))
_SMALL, _BIG = 2_000, 12_000
_HERE = "--runner=FnApiRunner"
Line = Callable[..., list[str]]
Written = Callable[[int], dict[str, bytes]]


def shards(output: Path) -> dict[str, bytes]:
    found = sorted(output.glob("*/*.tfrecords"))
    return {str(path.relative_to(output)): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def line(shared_folder: SharedFolder) -> Line:
    """The program with its input: plain files, which are cut, and a compressed one."""

    def fill(folder: Path) -> None:
        for count in (_SMALL, _BIG):
            rng = random.Random(count)
            made = [example(id=i, text="x" * rng.randrange(200)) for i in range(count)]
            write_records(folder / f"{count}/a", made[: count // 2])
            write_records(folder / f"{count}/b", made[count // 2 : -100])
            write_records(folder / f"{count}/c.gz", made[-100:], "GZIP")

    folder = shared_folder("write-examples", fill)

    def make(count: int, output: Path, *flags: str) -> list[str]:
        return [sys.executable, _PROGRAM, f"{folder}/{count}/*", str(output), *flags]

    return make


@pytest.fixture(scope="module")
def written(line: Line, shared_folder: SharedFolder) -> Written:
    """What one worker of this machine writes, once a session."""

    def write(count: int) -> dict[str, bytes]:
        def fill(folder: Path) -> None:
            subprocess.run(line(count, folder / "ds", _HERE), check=True, timeout=600)

        return shards(shared_folder(f"write-examples-{count}", fill) / "ds")

    return write


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """A cluster of its own: each test kills a task manager, and two must be left."""
    folder = tmp_path_factory.mktemp("flink-examples") / "cluster"
    with flink_cluster(folder, "--task_managers=5", "--slots=1") as found:
        yield found


def flags_of(cluster: Flink) -> list[str]:
    engine = flink_engine(cluster.flags[1:], wait=True)  # which asks the cluster for the rest
    return [f"--runner={engine.runner}", *engine.flags]


def check(output: Path, expected: dict[str, bytes], count: int) -> None:
    assert shards(output) == expected != {}
    counts = Manifest.from_bytes((output / "_meta/manifest.json").read_bytes()).counts
    kept = count - len(range(0, count, 7))
    assert (counts["records_read"], counts["examples"]) == (kept, kept)
    assert counts["rejected"] == {}
    assert not (output / "_tmp").exists()
    assert main(["verify", str(output)]) == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
        ["--direct_runner_bundle_repeat=1"],
        ["--direct_num_workers=2", "--direct_running_mode=multi_processing", "--regroup"],
    ],
)
def test_here(line: Line, written: Written, tmp_path: Path, flags: list[str]) -> None:
    subprocess.run(line(_SMALL, tmp_path / "ds", _HERE, *flags), check=True, timeout=300)
    check(tmp_path / "ds", written(_SMALL), _SMALL)


@pytest.mark.prism
@pytest.mark.parametrize("flags", [[], ["--regroup"]])
def test_prism(prism: Path, line: Line, written: Written, tmp_path: Path, flags: list[str]) -> None:
    given = ["--runner=PrismRunner", f"--prism_location={prism}", *flags]
    command = line(_SMALL, tmp_path / "ds", *given)
    subprocess.run(command, check=True, timeout=300, cwd=tmp_path)
    check(tmp_path / "ds", written(_SMALL), _SMALL)


@pytest.mark.flink
@pytest.mark.parametrize("during", ["runs-0", "runs-1", "done"])
def test_flink_with_a_killed_task_manager(
    cluster: Flink, line: Line, written: Written, tmp_path: Path, during: str
) -> None:
    expected = written(_BIG)
    folder = tmp_path / "ds/_tmp" / during
    flags = ["--slow", *(["--regroup"] if during == "runs-1" else [])]
    with running(line(_BIG, tmp_path / "ds", *flags, *flags_of(cluster))) as process:
        wait_for(lambda: folder.is_dir() and any(folder.iterdir()))
        managers = [p for n, p in cluster.pids.items() if n.startswith("task-manager")]
        alive = [pid for pid in managers if psutil.pid_exists(pid)]
        killed = next(pid for pid in alive if psutil.Process(pid).children())
        os.kill(killed, signal.SIGKILL)
        error = process.communicate(timeout=600)[1]
    assert process.returncode == 0, error
    jobs = get(f"{cluster.url}/jobs/overview")["jobs"]
    last = max(jobs, key=lambda job: job["start-time"])["jid"]
    failures = get(f"{cluster.url}/jobs/{last}/exceptions")["exceptionHistory"]["entries"]
    assert failures, "the job had ended before its task manager did"
    check(tmp_path / "ds", expected, _BIG)
