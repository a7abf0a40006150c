"""A disk on which not one byte is left, while workers write there: the run ends and says so."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Written
from .full_disk import fill, small_disk
from .jobs import shard_bytes
from .test_kills import _group

_LIMIT_SECONDS = 30


def _fill_in_mid_run(big: Written, disk: Path, output: Path, *, workers: int) -> str:
    """Returns what the run printed, whose disk is full as soon as it has a plan."""
    with _group(big.case.line(big.source, output, *big.flags, workers=workers)) as process:
        while process.poll() is None and not (output / "_tmp/plan.json").exists():
            time.sleep(0.01)
        until = time.monotonic() + _LIMIT_SECONDS
        while process.poll() is None and time.monotonic() < until:
            fill(disk)  # what the run gives back is taken, too
            time.sleep(0.05)
        assert process.poll() is not None, "the run hangs on a full disk"
        text = process.communicate()[0]
    assert process.returncode == 1, text
    return text


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["text", "images", "gpt"])
def test_a_disk_without_one_byte_ends_the_run_in_one_line(
    written: Callable[[str, str], Written], monkeypatch: pytest.MonkeyPatch, name: str, workers: int
) -> None:
    big = written(name, "big")
    with small_disk("300m") as disk:
        if disk is None:
            pytest.skip("a file system in memory cannot be mounted here")
        # Temporary files lie on the same disk.
        (disk / "t").mkdir()
        monkeypatch.setenv("TMPDIR", str(disk / "t"))
        text = _fill_in_mid_run(big, disk, disk / "ds", workers=workers)
        assert "no space left" in text.splitlines()[-1]
        assert "Traceback" not in text
        os.remove(disk / "filler")
        line = big.case.line(big.source, disk / "ds", *big.flags, workers=2)
        again = subprocess.run(line, capture_output=True, text=True, timeout=300)
        assert again.returncode == 0, again.stderr
        assert shard_bytes(disk / "ds") == big.shards
        assert os.listdir(disk / "t") == []
