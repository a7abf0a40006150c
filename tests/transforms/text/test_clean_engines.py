"""`WriteText` that normalizes, drops short and similar documents and lists them: on any engine the
bytes of one worker here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main

from ...conftest import SharedFolder
from ...pipelines.clusters import Flink, prism
from ...pipelines.flink_runs import cluster, program_flags, run_with_a_kill
from ...pipelines.jobs import shard_bytes

__all__ = ["cluster", "prism"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_PROGRAM = str(Path(__file__).with_name("clean_program.py"))
_HERE = "--runner=FnApiRunner"


def run(output: Path, vocab_file: str, flags: list[str]) -> None:
    command = [sys.executable, _PROGRAM, str(output), vocab_file, *flags]
    subprocess.run(command, check=True, timeout=600, cwd=output.parent)


def counts_of(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "_meta/manifest.json").read_bytes())["counts"]
    return found


@pytest.fixture(scope="module")
def expected(shared_folder: SharedFolder, vocab_file: str) -> Path:
    """What one worker of this machine writes, once a session."""

    def fill(folder: Path) -> None:
        run(folder / "ds", vocab_file, [_HERE])

    output = shared_folder("clean-program", fill) / "ds"
    counts = counts_of(output)
    # 70 of 700 are short; of the 300 that come again 30 are short, and the others near duplicates.
    assert counts["dropped"]["near_duplicate"] >= 270
    assert counts["dropped"]["too_short"] >= 40
    assert counts["documents_read"] == 700
    assert counts["documents_written"] == 700 - sum(counts["dropped"].values())
    return output


def check(output: Path, expected: Path) -> None:
    assert shard_bytes(output) == shard_bytes(expected) != {}
    names = sorted(path.name for path in expected.glob("_meta/dropped/*"))
    assert names
    for name in ("statistics.json", *(f"dropped/{name}" for name in names)):
        path = f"_meta/{name}"
        assert (output / path).read_bytes() == (expected / path).read_bytes(), name
    assert sorted(path.name for path in output.glob("_meta/dropped/*")) == names
    assert counts_of(output) == counts_of(expected)
    assert not (output / "_tmp").exists()
    assert main(["verify", str(output)]) == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
        ["--direct_runner_bundle_repeat=1"],
    ],
)
def test_here(expected: Path, vocab_file: str, tmp_path: Path, flags: list[str]) -> None:
    run(tmp_path / "ds", vocab_file, [_HERE, *flags])
    check(tmp_path / "ds", expected)


@pytest.mark.prism
def test_prism(prism: Path, expected: Path, vocab_file: str, tmp_path: Path) -> None:
    flags = ["--runner=PrismRunner", f"--prism_location={prism}"]
    run(tmp_path / "ds", vocab_file, flags)
    check(tmp_path / "ds", expected)


@pytest.mark.flink
@pytest.mark.parametrize("during", ["fingerprints", "duplicates", "lists"])
def test_flink_with_a_killed_task_manager(
    cluster: Flink, expected: Path, vocab_file: str, tmp_path: Path, during: str
) -> None:
    command = [sys.executable, _PROGRAM, str(tmp_path / "ds"), vocab_file, *program_flags(cluster)]
    run_with_a_kill(cluster, command, tmp_path / "ds/_tmp" / during)
    check(tmp_path / "ds", expected)
