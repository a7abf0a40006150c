"""`_meta/run.json` and `--report`: what a run leaves beside a dataset of the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines import run_facts
from recordmill.pipelines.command_line import main
from recordmill.pipelines.commands import report
from recordmill.records.errors import RunError
from recordmill.transforms.dataset import commit

from ..conftest import SharedFolder
from .conftest import Written
from .jobs import manifest, shard_bytes


@pytest.fixture(scope="module", params=["text", "images"])
def small(request: pytest.FixtureRequest, written: Callable[[str, str], Written]) -> Written:
    return written(request.param, "small")


@pytest.fixture(scope="module")
def reported(small: Written, shared_folder: SharedFolder) -> Path:
    """The dataset that two runs with --report make: one fails before its commit, one goes on."""

    def fill(folder: Path) -> None:
        output = folder / "ds"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(commit, "_publish", lambda *_: 1 / 0)
            assert small.case.run(small.source, output, *small.flags, "--report") == 1
        assert not (output / "_meta").exists()
        assert small.case.run(small.source, output, *small.flags, "--report") == 0

    return shared_folder(f"reported-{small.case.command}", fill) / "ds"


def facts(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "_meta/run.json").read_bytes())
    return content


def test_bytes_are_the_same(small: Written, reported: Path) -> None:
    assert shard_bytes(reported) == small.shards
    for name in ("_meta/manifest.json", "_SUCCESS", "_meta/statistics.json", "features.json"):
        assert (reported / name).read_bytes() == (small.dataset / name).read_bytes()
    assert not (small.dataset / "_meta/report.html").exists()
    assert main(["verify", str(reported)]) == 0
    assert not (reported / "_tmp").exists()


def test_facts(small: Written, reported: Path) -> None:
    resumed, run = facts(reported), facts(small.dataset)
    examples = manifest(small.dataset)["counts"]["examples"]
    total = examples if isinstance(examples, int) else sum(examples.values())
    for content in (run, resumed):
        assert (content["command"], content["engine"]) == (small.case.command, "direct")
        assert content["workers"] == 1
        assert content["examples"] == total
        assert content["peak_memory_bytes"] > 50e6
        assert content["retried_work_items"] == 0
        assert content["phases"][0]["name"] == "plan"
        assert sum(phase["seconds"] for phase in content["phases"]) <= content["seconds"] + 0.1
        assert content["versions"] == manifest(small.dataset)["versions"]
    assert (run["resumed"], resumed["resumed"]) == (False, True)


def test_write_has_all_its_bytes(small: Written) -> None:
    """Whenever it was looked at, and where it was too short to be seen it has no time either."""
    run = facts(small.dataset)
    written = [phase["bytes"] for phase in run["phases"] if phase["name"] == "write"]
    assert written in ([], [run["output_bytes"]])


def test_counters_are_those_of_beam(small: Written, reported: Path) -> None:
    run, counts = facts(reported), manifest(reported)["counts"]
    counters = run["counters"]
    assert counters["examples_written"] == run["examples"]
    assert counters["bytes_written"] == run["output_bytes"] == sum(map(len, small.shards.values()))
    assert counters["work_items_started"] == counters["work_items_finished"] > 0
    if small.case.command == "text":
        assert counters["documents_read"] == counts["documents_read"]
        assert counters["documents_written"] == counts["documents_written"]
    else:
        assert counters["examples_prepared"] == run["examples"]


def test_the_page_has_the_run(reported: Path) -> None:
    page = (reported / "_meta/report.html").read_text()
    assert "Durations of phases" in page
    assert "finished an earlier one" in page


def test_overwrite_removes_the_page(small: Written, reported: Path, tmp_path: Path) -> None:
    output = tmp_path / "ds"
    small.copy_dataset(output)
    (output / "_meta/report.html").write_text("old")
    before = facts(output)
    assert small.case.run(small.source, output, *small.case.fewer, "--overwrite") == 0
    assert not (output / "_meta/report.html").exists()
    assert facts(output) != before


def test_a_complete_dataset_gets_a_page_that_it_lacks(
    small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "ds"
    small.copy_dataset(output)
    assert small.case.run(small.source, output, *small.flags, "--report") == 0
    page = output / "_meta/report.html"
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {page}"
    written = page.stat().st_mtime_ns
    assert small.case.run(small.source, output, *small.flags, "--report") == 0
    assert page.stat().st_mtime_ns == written
    assert not (output / "_tmp").exists()


def test_what_fails_is_a_warning(
    small: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "ds"
    monkeypatch.setattr(report, "make_report", lambda *_, **__: {}["plot"])
    with monkeypatch.context() as patched:
        patched.setattr(run_facts, "_write", _no_space)
        assert small.case.run(small.source, output, *small.flags) == 0
    assert small.case.run(small.source, output, *small.flags, "--report") == 0
    assert shard_bytes(output) == small.shards
    captured = capsys.readouterr()
    warnings = [line for line in captured.err.splitlines() if "could not be written" in line]
    assert warnings == [
        "recordmill: warning: _meta/run.json could not be written: no space left; the dataset is "
        "complete",
        "recordmill: warning: _meta/report.html could not be written: 'plot'; the dataset is "
        "complete",
    ]
    assert "report:" not in captured.out
    assert main(["verify", str(output)]) == 0


def _no_space(*_: object) -> None:
    raise RunError("no space left")


def test_files_of_others_are_not_replaced(
    small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "ds/_meta/report.html"
    page.parent.mkdir(parents=True)
    page.write_text("mine")
    assert small.case.run(small.source, tmp_path / "ds", *small.flags) == 2
    assert "already holds" in capsys.readouterr().err
    assert page.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["text", "--runner=dataflow", "--no_wait", "--report"], "--report is written by the"),
        (["vocab", "--input=x", "--output=y", "--report"], "--report has no meaning for vocab"),
        (["vocab", "--input=x", "--output=y", "--progress=log"], "--progress has no meaning"),
        (["text", "--progress=jsn"], "did you mean 'json'"),
    ],
)
def test_flags_without_effect_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_rejects_are_counted_by_reason(
    tmp_path: Path, vocab_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ['{"text": "some words and more of them"}'] * 9 + ["no json", '{"other": "words"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    status = main(
        [
            "text", f"--input={tmp_path}/a.jsonl", f"--output={tmp_path}/ds", "--task=mlm",
            f"--vocab_file={vocab_file}", "--max_rejected=0.5", "--num_shards=1",
            "--direct_num_workers=1", "--max_seq_length=32", "--max_predictions_per_seq=5",
        ]
    )  # fmt: skip
    assert status == 0
    rejected = manifest(tmp_path / "ds")["counts"]["rejected"]
    assert sum(rejected.values()) == 2
    counters = facts(tmp_path / "ds")["counters"]
    assert {f"rejected_{reason}": n for reason, n in rejected.items()}.items() <= counters.items()
    told = "rejected: field_missing 1 (such as a.jsonl), not_json 1 (such as a.jsonl)"
    summary = capsys.readouterr().out
    assert (summary.count("rejected"), summary.count(told)) == (1, 1)
