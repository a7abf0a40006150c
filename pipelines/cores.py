"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def usable_cores(cgroups: Path = _CGROUPS) -> int:
    """Returns the number of cores that this process may use, at least 1.

    These are the cores of its affinity, or fewer where a container or a batch system limits the
    processor time of its control group.

    Args:
      cgroups: where control groups are mounted.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = cgroup_quota(cgroups, _OWN_GROUPS)
    return cores if quota is None else max(1, min(cores, int(quota)))


def cgroup_quota(root: Path, own_groups: Path) -> float | None:
    """Returns the cores that control groups grant this process; None where they set no limit.

    Args:
      root: where control groups are mounted.
      own_groups: the file that names the groups of this process.
    """
    quotas = []
    for group in _groups(own_groups):
        # A group's limit holds for all groups in it.
        for folder in (group, *group.parents):
            quotas += [_quota_v2(root / folder), _quota_v1(root / "cpu" / folder)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _groups(own_groups: Path) -> list[Path]:
    """Returns the groups that limit processor time, relative to the mount; always the root."""
    groups = [Path()]
    try:
        for line in own_groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "cpu" in controllers.split(","):
                groups.append(Path(path.lstrip("/")))
    except (OSError, ValueError):
        pass
    return groups


def _quota_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such group, or "max"
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None
