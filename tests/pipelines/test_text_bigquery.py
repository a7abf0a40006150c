"""BigQuery as the input of text jobs: equal bytes for streams, workers and resumed runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import apache_beam as beam
import pyarrow as pa
import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.planning import text_planner
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import google_storage

from ..bigquery import FakeBigQuery, serve_bigquery
from .jobs import LENGTHS, manifest, shard_bytes, unpublished

URL = "bigquery://mill.corpus.docs"
QUERY = "SELECT * FROM corpus.docs"
FLAGS = ("--task=mlm", "--dupe_factor=2", *LENGTHS, "--num_shards=2", "--keep_fields=id:int,kind")


def rows(count: int = 600) -> pa.Table:
    """Some rows twice."""
    numbers = [*range(count), 1, 1, 2]
    texts = [f"the people of water {i}. it was {i % 7} of them" for i in numbers]
    return pa.table({"id": numbers, "text": texts, "kind": [f"k{i % 3}" for i in numbers]})


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBigQuery]:
    monkeypatch.setattr(google_storage, "patience", google_storage.Patience(0.01, 0.02, 1.0))
    monkeypatch.setattr(text_planner, "work_item_bytes", lambda *_: 5_000)
    with serve_bigquery() as fake:
        fake.put("mill.corpus.docs", rows())
        fake.put("mill._anonymous.answer", rows())
        fake.answers[QUERY] = "projects/mill/datasets/_anonymous/tables/answer"
        yield fake


def run(output: Path, vocab_file: str, *flags: str, url: str = URL, workers: int = 1) -> int:
    given = [
        f"--input={url}", f"--output={output}", f"--vocab_file={vocab_file}",
        f"--direct_num_workers={workers}", *FLAGS, *flags,
    ]  # fmt: skip
    return main(["text", *given])


def test_the_pipeline_of_the_guide_is_built(
    tmp_path: Path, vocab_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam's own source before `WriteText`: the graph, which would ask Google when it is run."""
    page = (Path(__file__).parents[2] / "docs/guides/text.md").read_text(encoding="utf-8")
    code = page[: page.index("```\n", page.index("ReadFromBigQuery"))].rpartition("```python\n")[2]
    built: list[str] = []

    def run(pipeline: beam.Pipeline, **_: object) -> mock.Mock:
        names = [
            each.unique_name for each in pipeline.to_runner_api().components.transforms.values()
        ]
        built.extend(names)
        return mock.Mock()

    monkeypatch.setattr(beam.Pipeline, "run", run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(Path(vocab_file).read_bytes())
    exec(compile(code, "text.md", "exec"), {})
    assert {"Read", "ToDocument", "Write"} <= set(built)
    assert any(name.startswith("Read/") for name in built)
    assert any(name.startswith("Write/") for name in built)


@pytest.mark.slow
def test_bytes_do_not_depend_on_streams(
    tmp_path: Path, vocab_file: str, served: FakeBigQuery
) -> None:
    assert run(tmp_path / "one", vocab_file) == 0
    served.most_streams = 9
    assert run(tmp_path / "two", vocab_file, workers=2) == 0
    assert len(served.sessions[-1].read_session.read_options.selected_fields) == 3
    assert shard_bytes(tmp_path / "two") == shard_bytes(tmp_path / "one")
    written = manifest(tmp_path / "two")
    assert written["counts"]["documents_written"] == 603
    assert written["sources"]["snapshot_time"].endswith("Z")
    assert written["sources"]["names"].keys() == {"corpus.docs"}


@pytest.mark.slow
def test_a_resumed_run_reads_the_rows_of_its_time(
    tmp_path: Path, vocab_file: str, served: FakeBigQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "one", vocab_file) == 0
    with unpublished():
        assert run(tmp_path / "two", vocab_file) == 1
        assert run(tmp_path / "three", vocab_file, "--overwrite") == 1
    served.put("mill.corpus.docs", rows(700), since=time.time())
    streams = len(served.streams)
    assert run(tmp_path / "two", vocab_file) == 0
    assert run(tmp_path / "three", vocab_file, "--overwrite") == 0
    assert capsys.readouterr().err.count("resuming the run") == 2
    assert len(served.streams) == streams + 2  # one each to list the table, none to read it
    for name in ("two", "three"):
        assert shard_bytes(tmp_path / name) == shard_bytes(tmp_path / "one")
    time.sleep(1.1)  # tables are read as of a second ago, as clocks differ
    assert run(tmp_path / "two", vocab_file) == 2
    assert "another configuration or input" in capsys.readouterr().err
    assert run(tmp_path / "two", vocab_file, "--overwrite") == 0
    assert manifest(tmp_path / "two")["counts"]["documents_written"] == 703


@pytest.mark.slow
def test_a_query_and_the_commands_beside(
    tmp_path: Path, vocab_file: str, served: FakeBigQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    query = (f"--query={QUERY}",)
    assert run(tmp_path / "one", vocab_file, *query, url="bigquery://mill") == 0
    assert manifest(tmp_path / "one")["config"]["query"] == [QUERY]
    assert run(tmp_path / "one", vocab_file, *query, url="bigquery://mill") == 0
    assert "is complete: nothing to do" in capsys.readouterr().out
    planned = ["plan", "text", f"--input={URL}", f"--output={tmp_path}/no", *FLAGS]
    assert main([*planned, f"--vocab_file={vocab_file}"]) == 0
    assert main(["vocab", f"--input={URL}", f"--output={tmp_path}/v.txt", "--vocab_size=90"]) == 0


@pytest.mark.slow
def test_what_cannot_be_used_is_a_reject(
    tmp_path: Path, vocab_file: str, served: FakeBigQuery
) -> None:
    served.put(
        "mill.corpus.odd", pa.table({"text": ["the people", None, "of water"], "kind": 3 * ["a"]})
    )
    flags = ("--keep_fields=kind", "--max_rejected=1")
    assert run(tmp_path / "ds", vocab_file, *flags, url="bigquery://mill.corpus.odd") == 0
    written = manifest(tmp_path / "ds")
    assert written["counts"]["documents_written"] == 2
    assert written["counts"]["rejected"] == {"field_not_text": 1}


@pytest.mark.parametrize(
    ("url", "flags", "message"),
    [
        (URL, ["--text_field=body"],
         f"--text_field must be a column of {URL}: id, text, kind; got 'body'"),
        (URL, ["--text_field=id"],
         f"--text_field must be a column of strings, and 'id' of {URL} is int64"),
        (URL, ["--keep_fields=nothing"], f"--keep_fields must be a column of {URL}: id, text"),
        (URL, [f"--query={QUERY}"], "names a table, and --query asks for others; give the project"),
        ("bigquery://mill", [], "bigquery://mill names no table; give bigquery://PROJECT.DATASET"),
        (URL, ["--partition_column=id"], "--partition_column has no effect on BigQuery"),
        (URL, ["--input_format=parquet"], "--input_format=parquet has no effect on a database"),
        (URL, ["--encoding=latin-1"], "--encoding has no effect on BigQuery"),
        (URL, ["--deduplicate=exact"], "--deduplicate keeps the first of equal documents, and "),
        (f"train={URL}", [], "cannot name a split; give --split_from, a column of the answer"),
        ("bigquery://mill.docs", [], "must be bigquery://PROJECT.DATASET.TABLE"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    tmp_path: Path,
    vocab_file: str,
    served: FakeBigQuery,
    url: str,
    flags: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(tmp_path / "ds", vocab_file, *flags, url=url) == 2
    found = capsys.readouterr().err
    assert message in found
    assert found.count("\n") == 1
    assert not (tmp_path / "ds").exists()


@pytest.mark.slow
def test_a_session_that_expires_ends_the_run_in_one_line(
    tmp_path: Path, vocab_file: str, served: FakeBigQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    served.lifetime = 0.0
    assert run(tmp_path / "ds", vocab_file) == 1
    found = capsys.readouterr().err
    assert "start anew with --overwrite, with --input=bigquery://mill.corpus.docs@" in found
    assert "Traceback" not in found
    served.lifetime = 60.0
    assert run(tmp_path / "ds", vocab_file) == 1
    assert "start anew with --overwrite" in capsys.readouterr().err
    assert run(tmp_path / "ds", vocab_file, "--overwrite") == 0
    address = found.partition("--input=")[2].split()[0]
    assert run(tmp_path / "ds", vocab_file, "--overwrite", url=address) == 0


def test_a_run_whose_options_did_not_fit_leaves_no_time_to_read_at(
    tmp_path: Path, vocab_file: str, served: FakeBigQuery
) -> None:
    output = tmp_path / "ds"
    assert run(output, vocab_file, "--num_shards=100000") == 1
    work = str(output / "_tmp")
    workspace = Workspace(output=str(output), work=work, staging=work)
    assert text_planner._planned_snapshot(workspace, [URL]) == 0
    Path(workspace.unfit_options_path).unlink()
    assert text_planner._planned_snapshot(workspace, [URL]) > 0
