"""`recordmill verify --runner=…`: another engine reads the shards, and finds the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines import write_examples_dataset
from recordmill.pipelines.command_line import main

from ...transforms.examples.record_files import example, write_records


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of six shards, of which one has a flipped bit, and one no index."""
    folder = tmp_path_factory.mktemp("verify")
    write_records(folder / "old.tfrecord", [example(id=i) for i in range(300)])
    output = folder / "ds"
    write_examples_dataset(input=f"{folder}/old.tfrecord", output=output, num_shards="6")
    shard = output / "train/train-00002-of-00006.tfrecords"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    (output / "_meta/index/train/train-00004-of-00006.idx").unlink()
    return output


def verify(dataset: Path, *flags: str) -> tuple[int, str]:
    line = [sys.executable, "-m", "recordmill.pipelines", "verify", str(dataset), *flags]
    shown = subprocess.run(line, timeout=600, capture_output=True, text=True)
    return shown.returncode, shown.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("flink", marks=pytest.mark.flink),
        pytest.param("prism", marks=pytest.mark.prism),
    ],
)
def test_engines_find_the_same(
    engine: str, damaged: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "flink":
        cluster: Any = request.getfixturevalue("flink")
        flags = [flag for flag in cluster.flags if not flag.startswith("--direct")]
    else:
        flags = ["--runner=prism", f"--prism_location={request.getfixturevalue('prism')}"]
    here = verify(damaged)
    assert here[0] == 1
    assert verify(damaged, f"--temp_dir={tmp_path}", *flags) == here
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--runner=prism"], "--runner=prism needs --temp_dir"),
        (["--temp_dir=/tmp"], "--temp_dir has no effect with --runner=direct"),
        (["--runner=prism", "--workers=2", "--temp_dir=/tmp"], "--workers has no effect"),
        (["--runer=flink"], "unknown flag --runer=flink; did you mean --runner?"),
    ],
)
def test_mistakes_are_one_line(
    damaged: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(damaged), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
