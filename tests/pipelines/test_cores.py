"""Cores: what the affinity allows, or fewer where a control group limits them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recordmill.pipelines.cores import cgroup_quota, usable_cores


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_no_more_than_the_affinity() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("limits", "quota"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "250000 100000\n"}, 2.5),
        ({"jobs/cpu.max": "400000 100000\n", "jobs/7/cpu.max": "max 100000\n"}, 4.0),
        ({"jobs/cpu.max": "400000 100000\n", "jobs/7/cpu.max": "50000 100000\n"}, 0.5),
        ({"other/cpu.max": "50000 100000\n"}, None),
        ({"cpu/jobs/7/cpu.cfs_quota_us": "-1\n", "cpu/jobs/7/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
    ],
)
@pytest.mark.parametrize("own", ["0::/jobs/7\n", "5:memory:/x\n4:cpu,cpuacct:/jobs/7\n"])
def test_quota(tmp_path: Path, own: str, limits: dict[str, str], quota: float | None) -> None:
    write(tmp_path / "own", own)
    for name, text in limits.items():
        write(tmp_path / "groups" / name, text)
    assert cgroup_quota(tmp_path / "groups", tmp_path / "own") == quota


def test_no_control_groups(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path / "none", tmp_path / "nothing") is None


def test_a_part_of_a_core_is_one(tmp_path: Path) -> None:
    write(tmp_path / "cpu.max", "50000 100000\n")
    assert usable_cores(tmp_path) == 1
