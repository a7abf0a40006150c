"""`WriteImages` on other engines gives the shards that one worker here gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recordmill.records.manifest import Manifest

from ...conftest import SharedFolder
from ...pipelines.clusters import Flink, prism
from ...pipelines.flink_runs import cluster, program_flags, run_with_a_kill, running, wait_for
from ...pipelines.jobs import shard_bytes

__all__ = ["cluster", "prism"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_PROGRAM = str(Path(__file__).with_name("write_program.py"))
_SMALL, _BIG = 300, 3000


def line(output: Path, count: int, *flags: str) -> list[str]:
    return [sys.executable, _PROGRAM, str(output), str(count), *flags]


def written(shared_folder: SharedFolder, count: int) -> dict[str, bytes]:
    """What one worker of this process' kind writes, once a session."""

    def fill(folder: Path) -> None:
        command = line(folder / "ds", count, "--runner=FnApiRunner")
        subprocess.run(command, check=True, timeout=600)

    return shard_bytes(shared_folder(f"write-images-{count}", fill) / "ds")


def check(output: Path, expected: dict[str, bytes], count: int) -> None:
    assert shard_bytes(output) == expected
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
    assert not shard_bytes(tmp_path / "ds")
    subprocess.run(command, check=True, timeout=600)
    check(tmp_path / "ds", written(shared_folder, _BIG), _BIG)


@pytest.mark.prism
def test_prism(prism: Path, shared_folder: SharedFolder, tmp_path: Path) -> None:
    flags = ["--runner=PrismRunner", f"--prism_location={prism}"]
    subprocess.run(line(tmp_path / "ds", _SMALL, *flags), check=True, timeout=300, cwd=tmp_path)
    check(tmp_path / "ds", written(shared_folder, _SMALL), _SMALL)


@pytest.mark.flink
def test_flink_with_a_killed_task_manager(
    cluster: Flink, shared_folder: SharedFolder, tmp_path: Path
) -> None:
    expected = written(shared_folder, _BIG)
    command = line(tmp_path / "ds", _BIG, *program_flags(cluster))
    run_with_a_kill(cluster, command, tmp_path / "ds/_tmp/elements")
    check(tmp_path / "ds", expected, _BIG)
