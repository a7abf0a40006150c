"""Jobs on a real Flink cluster: what happens when they fail, and when the cluster does."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder

from recordmill.pipelines.engines import remote
from recordmill.pipelines.engines.flink_cluster import read_cluster
from recordmill.pipelines.engines.local import JobSize
from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.workspace import read_manifest

from .. import clusters
from ..clusters import ROOT
from ..conftest import Written
from ..flink_runs import program_flags, run_with_a_kill, running, wait_for, waits_in_beam
from ..jobs import shard_bytes
from .engine_flags import engine_of

pytestmark = [pytest.mark.flink, pytest.mark.slow, pytest.mark.timeout(1200)]


def job_id(printed: str) -> str:
    return printed.partition("/#/job/running/")[2].split()[0]


def test_cluster_reports_release_and_slots(flink: Any) -> None:
    cluster = read_cluster(flink.url)
    assert (cluster.version, cluster.slots_per_task_manager) == ("1.19", 2)
    assert cluster.restart_strategy == "fixed-delay"
    assert cluster.is_here
    assert not cluster.elastic


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--parallelism=9"], "--parallelism must be at most 4"),
        (["--parallelism=0"], "--parallelism must be at least 1"),
        (["--flink_version=2.0"], "--flink_version must be 1.19"),
        (["--flink_job_server_jar=/none.jar"], "--flink_job_server_jar must be a file or a URL"),
    ],
)
def test_mistakes_are_found_before_submission(flink: Any, flags: list[str], message: str) -> None:
    arguments = ["--runner=flink", f"--flink_master={flink.url}", *flags]
    with pytest.raises(UsageError, match=message):
        engine_of(arguments)


def test_rejects_over_the_budget_end_the_job_there_too(
    flink: Any, vocab_file: str, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "the words of one"}\nnot JSON\n')
    line = [
        sys.executable, "-m", "recordmill.pipelines.text", f"--input={tmp_path}/in.jsonl",
        f"--output={tmp_path}/ds", f"--vocab_file={vocab_file}", *flink.flags,
    ]  # fmt: skip
    with running(line) as process:
        error = process.communicate(timeout=300)[1]
    assert process.returncode == 1
    assert error.splitlines()[-1].startswith("recordmill: 1 of 2 inputs rejected (not_json 1)")
    job = f"/jobs/{job_id(error)}"
    wait_for(lambda: flink.get(job)["state"] == "CANCELED")
    assert not (tmp_path / "ds/_SUCCESS").exists()


def test_the_console_shows_the_counters_of_a_job(
    flink: Any, written: Callable[[str, str], Written], tmp_path: Path
) -> None:
    job = written("text", "small")
    line = job.case.line(job.source, tmp_path / "ds", *job.flags, *flink.flags, workers=1)
    with running(line) as process:
        error = process.communicate(timeout=300)[1]
    assert process.returncode == 0
    # What the tab "Accumulators" shows: Beam's metrics as JSON, with a sum a step and counter.
    shown = flink.get(f"/jobs/{job_id(error)}/accumulators")["user-task-accumulators"]
    metrics = json.loads(next(a["value"] for a in shown if a["name"] == "__metricscontainers"))
    counters = {
        metric["labels"]["NAME"]: VarIntCoder().decode(base64.b64decode(metric["payload"]))
        for metric in metrics["metrics"]["attempted"]
        if metric["labels"].get("NAMESPACE") == "recordmill" and "sum_int64" in metric["type"]
    }
    manifest = read_manifest(str(tmp_path / "ds"))
    assert manifest
    assert counters["examples_written"] == sum(shard.records for shard in manifest.shards)
    assert counters["bytes_written"] == sum(shard.file_bytes for shard in manifest.shards)
    assert {"documents_read", "documents_written", "work_items_started"} < counters.keys()


def test_an_interrupted_launcher_leaves_the_job_to_itself(
    flink: Any, written: Callable[[str, str], Written], tmp_path: Path
) -> None:
    job = written("text", "small")
    jar = f"--flink_job_server_jar={ROOT}/build/flink/target/flink.jar"
    flags = [*job.flags, *flink.flags_but_server, jar]
    with running(job.case.line(job.source, tmp_path / "ds", *flags, workers=1)) as process:
        assert process.stderr
        where = next(line for line in process.stderr if line.startswith("flink: ")).strip()
        assert where.startswith(f"flink: {flink.url}/#/job/running/")
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert error.splitlines()[-1].endswith(
        f"the job goes on and can be cancelled there: {where[7:]}"
    )
    wait_for((tmp_path / "ds/_SUCCESS").exists)
    assert shard_bytes(tmp_path / "ds") == job.shards


def test_a_killed_task_manager_changes_nothing(
    flink: Any, written: Callable[[str, str], Written], tmp_path: Path
) -> None:
    job = written("text", "big")
    line = job.case.line(job.source, tmp_path / "ds", *job.flags, *flink.flags, workers=1)
    run_with_a_kill(flink, line, tmp_path / "ds/_tmp/done")
    assert shard_bytes(tmp_path / "ds") == job.shards


def test_a_job_whose_end_the_job_server_never_tells(
    flink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam's job server fails at the end of a job without metrics: it stays a running one."""
    monkeypatch.setattr(remote, "UNTOLD_SECONDS", 3)
    engine = engine_of(flink.flags)
    counters = engine.submit(
        lambda pipeline: pipeline | beam.Impulse(),
        folder=str(tmp_path),
        failure_path=str(tmp_path / "failure"),
        size=JobSize(work_items=1, input_bytes=0, processes=1),
    )
    assert counters == {}


def test_a_users_own_program_waits_in_beam_for_an_end_that_nobody_tells(
    flink: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "AFTER_JOB_SECONDS", 5.0)
    program = (
        "import sys, apache_beam as beam\n"
        "from apache_beam.options.pipeline_options import PipelineOptions\n"
        "with beam.Pipeline(options=PipelineOptions(sys.argv[1:])) as pipeline:\n"
        "    pipeline | beam.Impulse()\n"
    )
    line = [sys.executable, "-c", program, *program_flags(flink)]
    with (tmp_path / "shown").open("w+") as shown:
        with running(line, shown) as process, pytest.raises(subprocess.TimeoutExpired):
            flink.await_end(process, 120.0, needed=2)
        assert waits_in_beam(flink, shown)
    assert "NullPointerException" in flink.tell_job_server()
