"""Jobs on a real Flink cluster: what happens when they fail, and when the cluster does."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from recordmill.pipelines.command_line import main
from recordmill.pipelines.engines import choose_engine, parse_arguments
from recordmill.pipelines.flink_cluster import read_cluster
from recordmill.records.arguments import Parser
from recordmill.records.errors import UsageError

pytestmark = [pytest.mark.flink, pytest.mark.slow, pytest.mark.timeout(1200)]

LENGTHS = ("--max_seq_length=64", "--max_predictions_per_seq=10")


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as response:
        return json.load(response)


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"nothing happened in {seconds:.0f} s")


@contextmanager
def running(*flags: str) -> Iterator[subprocess.Popen[str]]:
    """A text job in a process of its own, which is gone at the end whatever happens."""
    command = [sys.executable, "-m", "recordmill.pipelines.text", *LENGTHS, *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            yield process
        finally:
            process.kill()


def test_cluster_tells_what_it_is(flink: Any) -> None:
    cluster = read_cluster(flink.url)
    assert (cluster.version, cluster.slots_per_task_manager) == ("1.19", 2)
    assert cluster.restart_strategy == "fixed-delay"
    assert cluster.is_here
    assert not cluster.elastic


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--parallelism=9"], "--parallelism must be at most 4"),
        (["--flink_version=2.0"], "--flink_version must be 1.19"),
        (["--flink_job_server_jar=/none.jar"], "--flink_job_server_jar must be a file or a URL"),
    ],
)
def test_mistakes_are_found_before_submission(flink: Any, flags: list[str], message: str) -> None:
    arguments = ["--runner=flink", f"--flink_master={flink.url}", *flags]
    with pytest.raises(UsageError, match=message):
        choose_engine(*parse_arguments(Parser(), arguments))


def test_rejects_over_the_budget_end_the_job_there_too(
    flink: Any, vocab_file: str, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "the words of one"}\nnot JSON\n')
    flags = [f"--input={tmp_path}/in.jsonl", f"--output={tmp_path}/ds", *flink.flags]
    with running(f"--vocab_file={vocab_file}", *flags) as process:
        error = process.communicate(timeout=300)[1]
    assert process.returncode == 1
    assert error.splitlines()[-1].startswith("recordmill: 1 of 2 inputs rejected (not_json 1)")
    job = error.partition("/#/job/running/")[2].split()[0]
    wait_for(lambda: get(f"{flink.url}/jobs/{job}")["state"] == "CANCELED")
    assert not (tmp_path / "ds/_SUCCESS").exists()


def test_a_killed_task_manager_changes_nothing(flink: Any, vocab_file: str, tmp_path: Path) -> None:
    rng = random.Random(3)
    words = Path(vocab_file).read_text().split()[60:]
    lines = [" ".join(rng.choices(words, k=12)) for _ in range(10_000)]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    flags = [
        f"--input={tmp_path}/in.txt", "--documents=line", "--task=mlm", "--dupe_factor=10",
        "--num_shards=12", f"--vocab_file={vocab_file}",
    ]  # fmt: skip
    assert main(["text", *LENGTHS, *flags, f"--output={tmp_path}/here"]) == 0
    done = tmp_path / "there/_tmp/done"
    with running(*flags, f"--output={tmp_path}/there", *flink.flags) as process:
        wait_for(lambda: done.is_dir() and any(done.iterdir()))
        killed = next(
            pid
            for name, pid in flink.pids.items()
            if name.startswith("task-manager") and psutil.Process(pid).children()
        )
        os.kill(killed, signal.SIGKILL)
        error = process.communicate(timeout=300)[1]
    assert process.returncode == 0, error
    job = error.partition("/#/job/running/")[2].split()[0]
    failures = get(f"{flink.url}/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    assert failures, "the job had ended before its task manager did"
    shards = {path.name: path.read_bytes() for path in tmp_path.glob("there/train/*")}
    assert shards == {path.name: path.read_bytes() for path in tmp_path.glob("here/train/*")}
    assert len(shards) == 12
