"""Planning inputs that nobody has here: listings of millions of files, in a process of its own.

Memory is what that process says of itself: its own peak, before and after planning.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HARNESS = Path(__file__).with_name("scale_planning.py")
MOST_BYTES = 600_000_000  # of sorting, twice, and of what Python keeps
WorkPlan = Callable[[str, int, int], dict[str, Any]]

huge = pytest.mark.skipif(
    not os.environ.get("RECORDMILL_SCALE_TESTS"),
    reason="takes minutes; set RECORDMILL_SCALE_TESTS=1",
)


@pytest.fixture
def plan(tmp_path: Path) -> WorkPlan:
    def run(kind: str, files: int, size_bytes: int) -> dict[str, Any]:
        folder = tmp_path / f"{kind}-{files}"
        folder.mkdir()
        line = [sys.executable, str(HARNESS), kind, str(files), str(size_bytes), str(folder)]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        found: dict[str, Any] = json.loads(done.stdout)
        print(kind, files, size_bytes, found["seconds"], found["grown_bytes"])
        assert found["grown_bytes"] < MOST_BYTES
        return found

    return run


def test_a_thousand_files_of_a_gigabyte(plan: WorkPlan) -> None:
    found = plan("text", 1000, 10**9)
    assert found["sources"]["bytes"] == 10**12
    assert found["work_items"] == 4000  # of 250 MB: a file is cut into equal parts


@pytest.mark.slow
def test_a_forecast_of_a_terabyte(plan: WorkPlan) -> None:
    found = plan("estimate", 1000, 10**9)
    assert found["work_items"]["read"] == 4000
    assert found["lines"]["input"] == "1,000 files, 1.0 TB"
    assert found["lines"]["regroups"] == "1"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_does_not_grow_with_the_number_of_files(plan: WorkPlan) -> None:
    small, large = plan("text", 100_000, 100_000), plan("text", 600_000, 100_000)
    assert large["sources"]["bytes"] == 60_000_000_000
    assert large["grown_bytes"] - small["grown_bytes"] < 200_000_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_memory_does_not_grow_with_the_number_of_images(plan: WorkPlan) -> None:
    small, large = plan("images", 50_000, 100_000), plan("images", 300_000, 100_000)
    assert large["sources"]["bytes"] == 30_000_000_000
    assert large["grown_bytes"] - small["grown_bytes"] < 250_000_000


@huge
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("kind", "files", "size_bytes"),
    [
        ("text", 10_000_000, 100_000),  # a terabyte
        ("text", 1_000_000, 10**9),  # a petabyte
        ("estimate", 10_000_000, 100_000),
        ("estimate", 1_000_000, 10**9),
        ("images", 1_000_000, 100_000),
        ("images", 10_000_000, 100_000),
    ],
)
def test_the_largest(plan: WorkPlan, kind: str, files: int, size_bytes: int) -> None:
    plan(kind, files, size_bytes)
