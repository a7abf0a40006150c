"""The examples of users' own pipelines give the shards of one worker here on any engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.engines.flink import flink_engine

from ...conftest import SharedFolder, bert_text, make_documents
from ...pipelines.clusters import ROOT, Flink, flink_cluster, prism
from ...pipelines.engines.test_flink import get, running, wait_for

__all__ = ["prism"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_SMALL, _BIG = 600, 24_000
_KEPT = 2  # of so many documents one is of the language
Line = Callable[..., list[str]]
_HERE = "--runner=FnApiRunner"


def shards(output: Path) -> dict[str, bytes]:
    found = sorted(output.glob("*/*.tfrecords"))
    return {str(path.relative_to(output)): path.read_bytes() for path in found}


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

        return shards(shared_folder(f"{program}-{source}", fill) / "ds")

    return write


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """A cluster of its own: each test kills one of the task managers."""
    folder = tmp_path_factory.mktemp("flink-text") / "cluster"
    with flink_cluster(folder, "--task_managers=3", "--slots=1") as found:
        yield found


def flags_of(cluster: Flink) -> list[str]:
    engine = flink_engine(cluster.flags[1:], wait=True)  # which asks the cluster for the rest
    return [f"--runner={engine.runner}", *engine.flags]


def check(output: Path, expected: dict[str, bytes], count: int) -> None:
    assert shards(output) == expected != {}
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
    assert shards(tmp_path / "ds") == written(program, source) != {}


@pytest.mark.flink
def test_a_function_between_ours_on_flink(
    cluster: Flink, line: Line, written: Callable[..., dict[str, bytes]], tmp_path: Path
) -> None:
    command = line("function_between", "corpus.txt", tmp_path / "ds", *flags_of(cluster))
    subprocess.run(command, check=True, timeout=600)
    assert shards(tmp_path / "ds") == written("function_between", "corpus.txt") != {}


@pytest.mark.flink
@pytest.mark.parametrize("during", ["runs-0", "done"])
def test_flink_with_a_killed_task_manager(
    cluster: Flink,
    line: Line,
    written: Callable[..., dict[str, bytes]],
    tmp_path: Path,
    during: str,
) -> None:
    source = f"{_BIG}.parquet"
    expected = written("filter_parquet", source)
    folder = tmp_path / "ds/_tmp" / during
    command = line("filter_parquet", source, tmp_path / "ds", *flags_of(cluster))
    with running(command) as process:
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
