"""`recordmill examples --map` on other engines gives the shards of one worker here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.example_values import parse_any

from ..conftest import SharedFolder
from ..transforms.examples.record_files import example, write_records
from .jobs import manifest, shard_bytes
from .test_examples_job import records_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_COUNT = 2_000
FUNCTIONS = """
WORDS = {0: "none", 1: "one"}

def odd(record):
    return record if record["id"][0] % 2 else None

def named(record):
    if record["id"][0] == 99:
        raise ValueError("no such word")
    first = {**record, "word": WORDS.get(int(record["id"][0]) % 4, "many")}
    return [first, {"id": record["id"], "word": "again"}] if record["id"][0] % 5 == 0 else first
"""


@pytest.fixture(scope="module")
def written(shared_folder: SharedFolder) -> Path:
    """The input, the functions, and what one worker of this machine makes of them."""

    def fill(folder: Path) -> None:
        records = [example(id=i, text="x" * (i % 90)) for i in range(_COUNT)]
        write_records(folder / "in/a", records[: _COUNT // 2])
        write_records(folder / "in/b.gz", records[_COUNT // 2 :], "GZIP")
        (folder / "functions.py").write_text(FUNCTIONS)
        subprocess.run(line(folder, folder / "ds", "--direct_num_workers=1"), check=True)

    return shared_folder("examples-map-engines", fill)


def line(folder: Path, output: Path, *flags: str) -> list[str]:
    functions = [f"--map={folder}/functions.py:{name}" for name in ("odd", "named")]
    return [
        sys.executable, "-m", "recordmill.pipelines.examples", f"--input={folder}/in/*",
        f"--output={output}", "--splits=train:0.8,test:0.2", "--num_shards=4",
        "--max_rejected=0.01", *functions, *flags,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "engine",
    [
        "two workers",
        pytest.param("flink", marks=pytest.mark.flink),
        pytest.param("prism", marks=pytest.mark.prism),
    ],
)
def test_functions_on_engines(
    engine: str, written: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    flags = ["--direct_num_workers=2"]
    if engine == "flink":
        found: Any = request.getfixturevalue("flink")
        flags = found.flags
    elif engine == "prism":
        flags = ["--runner=prism", f"--prism_location={request.getfixturevalue('prism')}"]
    output = tmp_path / "ds"
    subprocess.run(line(written, output, *flags), check=True, timeout=600, cwd=tmp_path)
    assert shard_bytes(output) == shard_bytes(written / "ds") != {}
    assert manifest(output)["counts"] == {
        "records_read": 1999, "records_added": 200, "dropped": {"map": 1000},
        "rejected": {"map_error": 1}, "examples": 1199,
    }  # fmt: skip
    words = [bytes(parse_any(record)["word"][0]).decode() for record in records_of(output)]
    assert {word: words.count(word) for word in words} == {"one": 500, "many": 499, "again": 200}
    (reject,) = (output / "_meta/rejected").iterdir()
    assert "named: ValueError: no such word" in reject.read_text()
    assert main(["verify", str(output)]) == 0
