"""Kills of processes of a cluster: a few of them hold, and what does not hold is reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ..pipelines.clusters import Flink
from . import cluster_kills
from .cases import NotHeldError
from .cluster_kills import VICTIMS, Cluster, TooLateError, main, try_kills
from .workshop import Workshop


def test_what_does_not_hold_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([None, TooLateError(), NotHeldError("other bytes"), OSError("no cluster")])

    def check(*_: Any) -> None:
        if (end := next(ends)) is not None:
            raise end

    monkeypatch.setattr(cluster_kills, "_check", check)
    cluster, workshop = Cluster(Flink(tmp_path / "cluster")), Workshop(tmp_path / "workshop")
    until = time.monotonic() + 60
    results = list(try_kills(workshop, cluster, "launcher", range(4), until))
    assert [(r.outcome, r.why) for r in results] == [
        ("held", ""),
        ("untried", ""),  # the job had ended before
        ("not held", "other bytes"),
        ("not held", "OSError: no cluster"),
    ]
    assert len(list(tmp_path.iterdir())) == 2  # what did not hold is left to be looked at
    assert list(try_kills(workshop, cluster, "launcher", range(4), time.monotonic())) == []


def test_a_process_that_has_the_number_of_a_dead_task_manager_is_none(tmp_path: Path) -> None:
    line = [sys.executable, "-c", "input(1)", str(tmp_path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.read(1)  # while a program is being started, its command line is empty
        pids = {"task-manager-0": process.pid, "task-manager-1": os.getpid(), "other": process.pid}
        (tmp_path / "cluster.json").write_text(json.dumps({"pids": pids, "ports": {}}))
        assert Flink(tmp_path).task_managers() == [process.pid]
    assert Flink(tmp_path).task_managers() == []


def test_why_flink_has_ended_a_task_manager_is_found_in_its_log(tmp_path: Path) -> None:
    end = "ERROR TaskExecutor - Task did not exit gracefully within 180 + seconds."
    (tmp_path / "task-manager-0.log").write_text(f"INFO all is well\n{end}\nINFO started\n")
    (tmp_path / "task-manager-1.log").write_text("INFO all is well\n")
    assert Flink(tmp_path).own_ends() == [end]


@pytest.mark.flink
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_kills_hold(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--kills=1", "--seed=3"]) == 0
    shown = capfd.readouterr().out
    for what in VICTIMS:
        tried, held = re.findall(rf"^{what}: (\d) tried, (\d) held$", shown, re.MULTILINE)[0]
        assert tried == held
