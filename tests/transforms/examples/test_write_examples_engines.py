"""`ReadExamples | … | WriteExamples` on other engines gives the shards of one worker here."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.manifest import Manifest

from ...conftest import SharedFolder
from ...pipelines.clusters import Flink, prism
from ...pipelines.flink_runs import cluster, program_flags, run_with_a_kill
from ...pipelines.jobs import shard_bytes
from .record_files import example, write_records

__all__ = ["cluster", "prism"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_PROGRAM = str(Path(__file__).with_name("write_program.py"))
_SMALL, _BIG = 2_000, 12_000
_HERE = "--runner=FnApiRunner"
Line = Callable[..., list[str]]
Written = Callable[[int], dict[str, bytes]]


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

        return shard_bytes(shared_folder(f"write-examples-{count}", fill) / "ds")

    return write


def check(output: Path, expected: dict[str, bytes], count: int) -> None:
    assert shard_bytes(output) == expected != {}
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
@pytest.mark.parametrize("during", ["elements", "runs-0", "runs-1", "done"])
def test_flink_with_a_killed_task_manager(
    cluster: Flink, line: Line, written: Written, tmp_path: Path, during: str
) -> None:
    expected = written(_BIG)
    flags = ["--slow", *(["--regroup"] if during == "runs-1" else [])]
    command = line(_BIG, tmp_path / "ds", *flags, *program_flags(cluster))
    run_with_a_kill(cluster, command, tmp_path / "ds/_tmp" / during)
    check(tmp_path / "ds", expected, _BIG)


@pytest.mark.flink
def test_flink_with_a_task_manager_that_dies_behind_the_commit(
    cluster: Flink, line: Line, written: Written, tmp_path: Path
) -> None:
    expected = written(_SMALL)
    mark = tmp_path / "died"
    command = line(_SMALL, tmp_path / "ds", f"--dying={mark}", *program_flags(cluster), "--regroup")
    subprocess.run(command, check=True, timeout=600, cwd=tmp_path)
    assert mark.exists()
    check(tmp_path / "ds", expected, _SMALL)
    cluster.revive()
