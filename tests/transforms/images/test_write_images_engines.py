"""`WriteImages` on other engines gives the shards that one worker here gives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from recordmill.pipelines.engines.flink import flink_engine
from recordmill.records.manifest import Manifest

from ...conftest import SharedFolder
from ...pipelines.clusters import Flink, flink_cluster, prism
from ...pipelines.engines.test_flink import get, running, wait_for

__all__ = ["prism"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_PROGRAM = str(Path(__file__).with_name("write_program.py"))
_SMALL, _BIG = 300, 3000


def line(output: Path, count: int, *flags: str) -> list[str]:
    return [sys.executable, _PROGRAM, str(output), str(count), *flags]


def shards(output: Path) -> dict[str, bytes]:
    found = sorted(output.glob("*/*.tfrecords"))
    return {str(path.relative_to(output)): path.read_bytes() for path in found}


def written(shared_folder: SharedFolder, count: int) -> dict[str, bytes]:
    """What one worker of this process' kind writes, once a session."""

    def fill(folder: Path) -> None:
        command = line(folder / "ds", count, "--runner=FnApiRunner")
        subprocess.run(command, check=True, timeout=600)

    return shards(shared_folder(f"write-images-{count}", fill) / "ds")


def flags_of(cluster: Flink) -> list[str]:
    engine = flink_engine(cluster.flags[1:], wait=True)  # which asks the cluster for the rest
    return [f"--runner={engine.runner}", *engine.flags]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """A cluster of its own: each test kills one of the task managers."""
    folder = tmp_path_factory.mktemp("flink-images") / "cluster"
    with flink_cluster(folder, "--task_managers=3", "--slots=1") as found:
        yield found


def check(output: Path, expected: dict[str, bytes], count: int) -> None:
    assert shards(output) == expected
    counts = Manifest.from_bytes((output / "_meta/manifest.json").read_bytes()).counts
    assert counts["images_listed"] == count
    assert counts["rejected"] == {"not_an_image": count // 100}
    assert counts["images_written"] == count - count // 100
    assert counts["examples"] == 2 * counts["images_written"]
    assert not (output / "_tmp").exists()


def test_a_program_that_is_killed_and_run_again(
    shared_folder: SharedFolder, tmp_path: Path
) -> None:
    parts = tmp_path / "ds/_tmp/parts"
    command = line(tmp_path / "ds", _BIG, "--runner=FnApiRunner")
    with running(command) as process:
        wait_for(lambda: parts.is_dir() and any(parts.glob("*.json")))
        process.kill()
        process.communicate()
    assert not (tmp_path / "ds/_SUCCESS").exists()
    assert not shards(tmp_path / "ds")
    subprocess.run(command, check=True, timeout=600)
    check(tmp_path / "ds", written(shared_folder, _BIG), _BIG)


@pytest.mark.prism
def test_prism(prism: Path, shared_folder: SharedFolder, tmp_path: Path) -> None:
    flags = ["--runner=PrismRunner", f"--prism_location={prism}"]
    subprocess.run(line(tmp_path / "ds", _SMALL, *flags), check=True, timeout=300, cwd=tmp_path)
    check(tmp_path / "ds", written(shared_folder, _SMALL), _SMALL)


@pytest.mark.parametrize("during", ["runs-0", "done"])
@pytest.mark.flink
def test_flink_with_a_killed_task_manager(
    cluster: Flink, shared_folder: SharedFolder, tmp_path: Path, during: str
) -> None:
    expected = written(shared_folder, _BIG)
    folder = tmp_path / "ds/_tmp" / during
    with running(line(tmp_path / "ds", _BIG, *flags_of(cluster))) as process:
        wait_for(lambda: folder.is_dir() and any(folder.iterdir()), 600)
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
