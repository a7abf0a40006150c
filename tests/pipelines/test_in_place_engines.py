"""`recordmill examples --in_place_metadata` on other engines writes the metadata of one worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main

from ..transforms.examples.record_files import write_records
from .test_examples_in_place import metadata, numbered, shards, state

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TFRecords of another tool in three splits."""
    folder = tmp_path_factory.mktemp("in-place") / "old"
    shards(folder, count=5)
    shards(folder, "validation", 3, start=200)
    for i in range(2):
        name = f"test-{i:05d}-of-00002.tfrecord"
        write_records(folder / name, numbered(500 + 40 * i, 460 + 40 * i))
    return folder


def run(folder: Path, *flags: str) -> dict[str, bytes]:
    """Writes metadata into the folder, and takes them out of it again."""
    before = state(folder)
    line = [sys.executable, "-m", "recordmill.pipelines", "examples", "--in_place_metadata"]
    line += [f"--input={folder}/*.tfrecord", *flags]
    subprocess.run(line, check=True, timeout=600, cwd=folder.parent)
    found = metadata(folder, before)
    assert main(["verify", str(folder)]) == 0
    for name in [*found, *(set(state(folder)) - set(before) - set(found))]:
        (folder / name).unlink()
    return found


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, bytes]:
    found = run(folder, "--direct_num_workers=1")
    assert sum(name.startswith("_meta/index/") for name in found) == 10
    assert "_meta/manifest.json" in found
    return found


@pytest.mark.parametrize(
    "engine",
    [
        "two workers",
        pytest.param("flink", marks=pytest.mark.flink),
        pytest.param("prism", marks=pytest.mark.prism),
    ],
)
def test_metadata_of_engines(
    engine: str, folder: Path, expected: dict[str, bytes], request: pytest.FixtureRequest
) -> None:
    flags = ["--direct_num_workers=2"]
    if engine == "flink":
        cluster: Any = request.getfixturevalue("flink")
        flags = cluster.flags
    elif engine == "prism":
        flags = ["--runner=prism", f"--prism_location={request.getfixturevalue('prism')}"]
    found = run(folder, *flags)
    assert found == expected
