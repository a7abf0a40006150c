"""The examples of users' own pipelines give the shards of one worker here on any engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ...conftest import SharedFolder, bert_text, make_documents
from ...pipelines.clusters import ROOT, Flink, prism
from ...pipelines.flink_runs import cluster, program_flags, run_with_a_kill
from ...pipelines.jobs import shard_bytes

__all__ = ["cluster", "prism"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_SMALL, _BIG = 600, 24_000
_KEPT = 2  # of so many documents one is of the language
Line = Callable[..., list[str]]
_HERE = "--runner=FnApiRunner"


@pytest.fixture(scope="module")
def line(shared_folder: SharedFolder, vocab_file: str) -> Line:
    """An example with its input, some documents of which are of another language."""

    def fill(folder: Path) -> None:
        for count in (_SMALL, _BIG):
            texts = ["\n".join(lines) for lines in make_documents(_SMALL)]
            rows = {
                "id": list(range(count)),
                "text": [f"{texts[i % _SMALL]} {i}" for i in range(count)],
                "lang": ["de" if i % _KEPT else "en" for i in range(count)],
            }
            pq.write_table(pa.table(rows), folder / f"{count}.parquet", row_group_size=count // 8)
        (folder / "corpus.txt").write_text(bert_text(make_documents(_SMALL)))

    folder = shared_folder("write-text", fill)

    def make(program: str, source: str, output: Path, *flags: str) -> list[str]:
        given = [f"--input={folder}/{source}", f"--output={output}", f"--tokenizer={vocab_file}"]
        if program == "filter_parquet":
            given += ["--dupe_factor=2", "--num_shards=12"]
        return [sys.executable, str(ROOT / f"examples/{program}.py"), *given, *flags]

    return make


@pytest.fixture(scope="module")
def written(line: Line, shared_folder: SharedFolder) -> Callable[..., dict[str, bytes]]:
    """What one worker of this machine writes, once a session."""

    def write(program: str, source: str) -> dict[str, bytes]:
        def fill(folder: Path) -> None:
            subprocess.run(line(program, source, folder / "ds", _HERE), check=True, timeout=600)

        return shard_bytes(shared_folder(f"{program}-{source}", fill) / "ds")

    return write


def check(output: Path, expected: dict[str, bytes], count: int) -> None:
    assert shard_bytes(output) == expected != {}
    counts = json.loads((output / "_meta/manifest.json").read_bytes())["counts"]
    assert counts["documents_read"] == counts["documents_written"] == count // _KEPT
    assert not (output / "_tmp").exists()


def test_two_workers(line: Line, written: Callable[..., dict[str, bytes]], tmp_path: Path) -> None:
    flags = [_HERE, "--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    command = line("filter_parquet", f"{_SMALL}.parquet", tmp_path / "ds", *flags)
    subprocess.run(command, check=True, timeout=300)
    check(tmp_path / "ds", written("filter_parquet", f"{_SMALL}.parquet"), _SMALL)


@pytest.mark.prism
@pytest.mark.parametrize("program", ["filter_parquet", "function_between"])
def test_prism(
    prism: Path, line: Line, written: Callable[..., dict[str, bytes]], tmp_path: Path, program: str
) -> None:
    source = f"{_SMALL}.parquet" if program == "filter_parquet" else "corpus.txt"
    flags = ["--runner=PrismRunner", f"--prism_location={prism}"]
    subprocess.run(line(program, source, tmp_path / "ds", *flags), check=True, timeout=300)
    assert shard_bytes(tmp_path / "ds") == written(program, source) != {}


@pytest.mark.flink
def test_a_function_between_ours_on_flink(
    cluster: Flink, line: Line, written: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    command = line("function_between", "corpus.txt", tmp_path / "ds", *program_flags(cluster))
    subprocess.run(command, check=True, timeout=600)
    assert shard_bytes(tmp_path / "ds") == written("function_between", "corpus.txt") != {}


@pytest.mark.flink
def test_flink_with_a_killed_task_manager(
    cluster: Flink, line: Line, written: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    source = f"{_BIG}.parquet"
    expected = written("filter_parquet", source)
    command = line("filter_parquet", source, tmp_path / "ds", *program_flags(cluster))
    run_with_a_kill(cluster, command, tmp_path / "ds/_tmp/runs-0")
    check(tmp_path / "ds", expected, _BIG)
