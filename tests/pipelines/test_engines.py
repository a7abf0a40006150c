"""Every engine writes the same bytes, and says in one line what it cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.engines import choose_engine, parse_arguments
from recordmill.pipelines.remote import check_shared
from recordmill.records.arguments import Parser
from recordmill.records.errors import UsageError

Bytes = dict[str, bytes]


def shard_bytes(output: Path) -> Bytes:
    return {
        str(path.relative_to(output)): path.read_bytes()
        for path in sorted(output.glob("*/*.tfrecords"))
    }


@pytest.fixture(scope="session")
def jobs(corpus: Path, vocab_file: str) -> dict[str, list[str]]:
    """Commands without an output: one small job of each kind."""
    return {
        "text": [
            "text", f"--input={corpus}/*.txt", f"--vocab_file={vocab_file}",
            "--max_seq_length=64", "--max_predictions_per_seq=10", "--dupe_factor=2",
            "--num_shards=4", "--splits=train:0.8,validation:0.2",
        ],
    }  # fmt: skip


@pytest.fixture(scope="session")
def on_one_worker(
    jobs: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Bytes]:
    """What a job writes on the direct engine with one worker."""
    written: dict[str, Bytes] = {}

    def write(job: str) -> Bytes:
        if job not in written:
            output = tmp_path_factory.mktemp("engine") / "ds"
            assert main([*jobs[job], f"--output={output}", "--direct_num_workers=1"]) == 0
            written[job] = shard_bytes(output)
        return written[job]

    return write


def engine_flags(engine: str, request: pytest.FixtureRequest) -> list[str]:
    if engine == "direct":
        return ["--direct_num_workers=2"]
    if engine == "prism":
        return ["--runner=prism", f"--prism_location={request.getfixturevalue('prism')}"]
    return list(request.getfixturevalue("flink").flags)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("job", ["text"])
@pytest.mark.parametrize(
    "engine",
    [
        "direct",
        pytest.param("prism", marks=[pytest.mark.prism, pytest.mark.slow]),
        pytest.param("flink", marks=[pytest.mark.flink, pytest.mark.slow]),
    ],
)
def test_same_bytes(
    engine: str,
    job: str,
    jobs: dict[str, list[str]],
    on_one_worker: Callable[[str], Bytes],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    expected = on_one_worker(job)
    assert len(expected) > 1
    assert len(set(expected.values())) == len(expected)
    flags = engine_flags(engine, request)
    command = [sys.executable, "-m", "recordmill.pipelines.command_line", *jobs[job], *flags]
    subprocess.run([*command, f"--output={tmp_path}/ds"], check=True, timeout=300, cwd=tmp_path)
    assert shard_bytes(tmp_path / "ds") == expected


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--runner=flnk"], "--runner must be one of direct, flink, prism"),
        (["--runner=flink"], "--flink_master=HOST:PORT is required"),
        (["--runner=flink", "--flink_master=localhost:9"], "localhost:9 does not answer as one"),
        (["--runner=prism", "--prism_location=/none"], "--prism_location must be the program"),
        (["--runner=prism", "--no_wait"], "--no_wait has no meaning for --runner=prism"),
        (["--no_wait"], "--no_wait has no meaning for --runner=direct"),
        (["--direct_num_workers=-1"], "--direct_num_workers must be at least 0, got -1"),
        (["--flink_mastr=x"], "unknown flag --flink_mastr=x; did you mean --flink_master?"),
        (["--runner=flink", "--parallelism=x"], "--parallelism: invalid int value: 'x'"),
    ],
)
def test_mistakes_are_one_line(flags: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        choose_engine(*parse_arguments(Parser(), flags))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_engines_by_beams_names() -> None:
    engine = choose_engine(*parse_arguments(Parser(), ["--runner=PrismRunner"]))
    assert engine.workers == len(os.sched_getaffinity(0))
    other = choose_engine(*parse_arguments(Parser(), ["--runner=SparkRunner", "--parallelism=7"]))
    assert other.workers == 7


def test_workers_elsewhere_need_shared_storage(tmp_path: Path) -> None:
    check_shared("flink", {"--output": "gs://bucket/ds"})
    with pytest.raises(UsageError, match=r"--output must be storage that all workers of flink"):
        check_shared("flink", {"--input": "gs://bucket/in", "--output": str(tmp_path)})
