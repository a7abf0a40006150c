"""Run files of users' pipelines, whose number is known only when all of them are written.

One description lists them. Where there are more than a shard should read, they are regrouped once,
in groups so large that few enough are left; the merge tree that says so is written for the stages
that follow.
"""

from __future__ import annotations

from typing import TypedDict

from recordmill.records.typed_json import Count, convert
from recordmill.transforms.shuffle.job import ShuffleJob
from recordmill.transforms.shuffle.merge_tree import MAX_FAN_IN, ONE_ITEM, MergeTree
from recordmill.transforms.shuffle.regroup import drop_runs, regroup
from recordmill.transforms.storage import files


class _TreeDescription(TypedDict):
    """`tree.json`."""

    runs: Count
    max_fan_in: Count
    fan_in: Count


def _tree_path(job: ShuffleJob) -> str:
    return files.join(job.workspace.work, "tree.json")


def _tree_for(runs: int, most: int) -> MergeTree:
    if runs <= most:
        return ONE_ITEM
    # A regroup reads `runs * fan_in` ranges, and shards `shards * runs / fan_in`.
    fan_in = 1 << (runs.bit_length() // 2)
    while -(-runs // fan_in) > most:
        fan_in *= 2
    return MergeTree(runs, most, fan_in, gathered=True)


def list_gathered_regroups(job: ShuffleJob, runs: int, most: int = MAX_FAN_IN) -> range:
    """Decides how run files are regrouped; returns the numbers of what `regroup_gathered` does.

    Args:
      job: whose run files are listed by description 0 of level 0.
      runs: their number.
      most: a shard is built from so many, or from those of a regroup.
    """
    tree = _tree_for(runs, most)
    content = {"runs": runs, "max_fan_in": most, "fan_in": tree.fan_in}
    job.workspace.write_state(_tree_path(job), content)
    return range(tree.run_count(1) if tree.levels else 0)


def gathered_tree(job: ShuffleJob) -> MergeTree:
    """Returns what `list_gathered_regroups` decided.

    Raises:
      DamagedStateError: it is missing or damaged.
    """
    known = job.workspace.need_state(_tree_path(job), lambda c: convert(c, _TreeDescription))
    if known["runs"] <= known["max_fan_in"]:
        return ONE_ITEM
    return MergeTree(known["runs"], known["max_fan_in"], known["fan_in"], gathered=True)


def regroup_gathered(job: ShuffleJob, number: int) -> None:
    """Writes run file `number` of level 1."""
    regroup(job, gathered_tree(job), 1, number)


def drop_gathered(job: ShuffleJob) -> None:
    """Deletes the run files of bundles, where shards are built from others."""
    tree = gathered_tree(job)
    if tree.levels:
        drop_runs(job, tree.levels - 1)
