"""`ReadDocuments | … | WriteText` with every source gives equal shards on any engine."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.manifest import Manifest

from ...bigquery import serve_bigquery
from ...conftest import make_documents
from ...databases import postgresql_server, sqlite_database
from ...pipelines.clusters import Flink, flink_cluster, prism
from ...pipelines.flink_runs import program_flags, run_with_a_kill
from ...pipelines.jobs import shard_bytes

__all__ = ["prism"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
_PROGRAM = str(Path(__file__).with_name("sources_program.py"))
_DOCUMENTS, _ENGLISH = 100, 4  # of each source; one of so many is in English
Line = Callable[..., list[str]]
_COMPRESSED = "c.jsonl.zst"


def _texts(source: str) -> list[str]:
    """The documents of a source: no other has the same."""
    texts = []
    for number, lines in enumerate(make_documents(_DOCUMENTS, seed=len(source))):
        language = "German" if number % _ENGLISH else "English"
        texts.append(f"{language} {source} {number}. {' '.join(lines)}")
    return texts


def _write_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Writes a file or folder of each format; returns the arguments of `ReadDocuments`."""
    folder.mkdir()
    (folder / "a.txt").write_text("\n\n".join(_texts("txt")))
    lines = [json.dumps({"text": text}) + "\n" for text in _texts("jsonl")]
    (folder / "b.jsonl").write_text("".join(lines))
    lines = [json.dumps({"text": text}) + "\n" for text in _texts("jsonl.zst")]
    with pa.CompressedOutputStream(str(folder / _COMPRESSED), "zstd") as out:
        out.write("".join(lines).encode())
    pyarrow.csv.write_csv(pa.table({"text": _texts("csv")}), folder / "d.csv")
    pq.write_table(pa.table({"text": _texts("parquet")}), folder / "e.parquet", row_group_size=30)
    table = pa.table({"text": _texts("arrow")})
    with pa.ipc.new_stream(folder / "f.arrow", table.schema) as writer:
        writer.write_table(table, 30)
    pyarrow.feather.write_feather(pa.table({"text": _texts("feather")}), folder / "g.feather")
    schema = {"type": "record", "name": "row", "fields": [{"name": "text", "type": "string"}]}
    with (folder / "h.avro").open("wb") as out:
        fastavro.writer(out, schema, [{"text": text} for text in _texts("avro")])
    with tarfile.open(folder / "i.tar", "w") as archive:
        for number, text in enumerate(_texts("tar")):
            member = tarfile.TarInfo(f"{number:04d}.txt")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    saved = folder / "saved"
    saved.mkdir()
    table = pa.table({"text": _texts("dataset folder")})
    with pa.ipc.new_stream(saved / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table, 30)
    (saved / "dataset_info.json").write_text(json.dumps({"features": {}}))
    files = [{"filename": "data-00000-of-00001.arrow"}]
    (saved / "state.json").write_text(json.dumps({"_data_files": files}))
    return {path.name: {"input": str(path)} for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, vocab_file: str) -> Iterator[Line]:
    """The program with files, databases and a table; their servers run meanwhile."""
    folder = tmp_path_factory.mktemp("sources")
    sources = _write_files(folder / "files")
    with ExitStack() as servers:
        served = {
            "sqlite": sqlite_database(folder / "a.db"),
            "postgresql": servers.enter_context(postgresql_server(folder)),
        }
        for name, database in served.items():
            database.execute("CREATE TABLE docs (id BIGINT PRIMARY KEY, text TEXT)")
            database.execute("INSERT INTO docs VALUES (?, ?)", list(enumerate(_texts(name))))
            query = "SELECT id, text FROM docs"
            sources[name] = {"input": database.url, "query": query, "partition_column": "id"}
        table = servers.enter_context(serve_bigquery())
        table.put("mill.corpus.docs", pa.table({"text": _texts("bigquery")}))
        sources["bigquery"] = {"input": "bigquery://mill.corpus.docs"}
        listed = folder / "sources.json"
        listed.write_text(json.dumps(sources))

        def make(output: Path, *flags: str) -> list[str]:
            return [sys.executable, _PROGRAM, str(listed), str(output), vocab_file, *flags]

        yield make


@pytest.fixture(scope="module")
def written(line: Line, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one worker of this machine writes."""
    output = tmp_path_factory.mktemp("sources-here") / "ds"
    subprocess.run(line(output, "--runner=FnApiRunner"), check=True, timeout=600)
    check(output, shard_bytes(output))
    return shard_bytes(output)


def check(output: Path, expected: dict[str, bytes]) -> None:
    assert shard_bytes(output) == expected != {}
    counts = Manifest.from_bytes((output / "_meta/manifest.json").read_bytes()).counts
    kept = 13 * (_DOCUMENTS - _DOCUMENTS // _ENGLISH)
    assert (counts["documents_read"], counts["documents_written"]) == (kept, kept)
    assert not (output / "_tmp").exists()
    assert main(["verify", str(output)]) == 0


def test_two_workers(line: Line, written: dict[str, bytes], tmp_path: Path) -> None:
    flags = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    command = line(tmp_path / "ds", "--runner=FnApiRunner", *flags)
    subprocess.run(command, check=True, timeout=600)
    check(tmp_path / "ds", written)


@pytest.mark.prism
def test_prism(prism: Path, line: Line, written: dict[str, bytes], tmp_path: Path) -> None:
    flags = ["--runner=PrismRunner", f"--prism_location={prism}"]
    subprocess.run(line(tmp_path / "ds", *flags), check=True, timeout=600, cwd=tmp_path)
    check(tmp_path / "ds", written)


@pytest.fixture(scope="module")
def cluster(line: Line, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flink]:
    """Its task managers know where the tables are."""
    folder = tmp_path_factory.mktemp("flink-sources") / "cluster"
    with flink_cluster(folder, "--task_managers=3", "--slots=1") as found:
        yield found


@pytest.mark.flink
def test_flink_with_a_killed_task_manager(
    cluster: Flink, line: Line, written: dict[str, bytes], tmp_path: Path
) -> None:
    command = line(tmp_path / "ds", "--slow", *program_flags(cluster))
    run_with_a_kill(cluster, command, tmp_path / "ds/_tmp/runs-0")
    check(tmp_path / "ds", written)
