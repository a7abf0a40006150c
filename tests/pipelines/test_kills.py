"""Jobs that are killed or ended at any moment: nothing half-written, and the next run finishes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from .conftest import Written
from .jobs import LANGUAGE, shard_bytes


def _descendants(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    children = [int(child) for child in found.split()]
    return children + [below for child in children for below in _descendants(child)]


def _kill_at_some_moment(process: subprocess.Popen[str], output: Path, seed: int) -> bool:
    """Kills the driver, or one of its processes; returns whether it was the driver."""
    rng = random.Random(seed)
    kill_driver = seed % 2 == 0
    files_until = rng.randrange(0, 24)
    while process.poll() is None:
        done = sum(
            name.endswith(".json") for _, _, names in os.walk(output / "_tmp") for name in names
        )
        others = _descendants(process.pid)
        if done >= files_until and len(others) > 2:
            time.sleep(rng.random() * 0.3)
            pid = process.pid if kill_driver else rng.choice(_descendants(process.pid) or others)
            subprocess.run(["kill", "-9", str(pid)], capture_output=True)
            break
        time.sleep(0.02)
    return kill_driver


@contextmanager
def _group(line: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command whose processes are all gone at the end, whatever happens."""
    process = subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()


def _killed(big: Written, output: Path, seed: int) -> None:
    line = big.case.line(big.source, output, *big.flags, workers=2)
    with _group(line) as process:
        kill_driver = _kill_at_some_moment(process, output, seed)
        text = process.communicate(timeout=240)[0]
    assert "Traceback" not in text
    if process.returncode == 0:  # it was faster than the kill
        assert shard_bytes(output) == big.shards
        return
    if not kill_driver:
        assert process.returncode == 1
        assert "run the same command again" in text.splitlines()[-1]
    if not (output / "_SUCCESS").exists():
        assert not list(output.glob("train/*")) or len(shard_bytes(output)) == 12
    with _group(line) as again:
        text = again.communicate(timeout=400)[0]
    assert again.returncode == 0, text
    assert shard_bytes(output) == big.shards
    assert not (output / "_tmp").exists()


_SEEDS = {
    "text": range(10),
    "images": range(4),
    "examples": range(4),
    **{case.name: range(2) for case in LANGUAGE},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name, seeds in _SEEDS.items() for seed in seeds]
)
def test_killed_at_any_moment(
    written: Callable[[str, str], Written], tmp_path: Path, name: str, seed: int
) -> None:
    _killed(written(name, "big"), tmp_path / "ds", seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_ended_by_a_signal(
    written: Callable[[str, str], Written],
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    ending: signal.Signals,
    status: int,
) -> None:
    big, output = written("text", "big"), tmp_path / "ds"
    monkeypatch.setenv("TMPDIR", str(temporary))
    line = big.case.line(big.source, output, *big.flags, workers=2)
    with _group(line) as process:
        while process.poll() is None and not (output / "_tmp/plan.json").exists():
            time.sleep(0.02)
        time.sleep(0.3)
        os.killpg(process.pid, ending)  # as a terminal or a scheduler does
        text = process.communicate(timeout=60)[0]
        assert process.returncode == status, text
    assert "run the same command again to go on" in text.splitlines()[-1]
    assert "Traceback" not in text
    assert list(temporary.iterdir()) == []
    with _group(line) as again:
        text = again.communicate(timeout=400)[0]
    assert again.returncode == 0, text
    assert shard_bytes(output) == big.shards
    assert list(temporary.iterdir()) == []
