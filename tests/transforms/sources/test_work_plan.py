from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from recordmill.transforms.shuffle.merge_tree import MergeTree, choose_merge_tree
from recordmill.transforms.sources.work_item_files import read_work_item, write_work_items
from recordmill.transforms.sources.work_items import SourceRange

ALL = (1 << 64) - 1
PROBES = [0, 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, 0xDEADBEEF << 32, ALL - 1, ALL]


def scattered(tree: MergeTree, level: int, number: int, hashed: int) -> list[int]:
    """The runs of level 0 from which a run has the records of a hash."""
    first, last = tree.hash_range(level, number)
    if not first <= hashed <= last:
        return []
    if level == 0:
        return [number]
    below = tree.inputs(level, number)
    return [run for b in below for run in scattered(tree, level - 1, b, hashed)]


@pytest.mark.parametrize("fan_in", [2, 4, 8])
@pytest.mark.parametrize("max_fan_in", [1, 3, 5])
@pytest.mark.parametrize("work_items", [1, 2, 3, 5, 8, 9, 17, 31, 64])
def test_every_run_is_read_once_for_every_hash(work_items, max_fan_in, fan_in):
    tree = MergeTree(work_items, max_fan_in, fan_in)
    level = tree.levels
    for low in PROBES:
        for high in (low, min(low + 5, ALL), ALL):
            runs = tree.runs_to_build_from(low, high)
            assert len(set(runs)) == len(runs)
            assert all(0 <= run < tree.run_count(level) for run in runs)
            for hashed in {low, (low + high) // 2, high}:
                found = Counter(run for r in runs for run in scattered(tree, level, r, hashed))
                assert found == Counter(range(work_items))
    assert len(tree.runs_to_build_from(0, 0)) <= max_fan_in


@pytest.mark.parametrize("work_items", [1, 5, 64, 65, 1000])
def test_a_level_covers_the_hashes_of_the_one_below(work_items):
    tree = MergeTree(work_items, max_fan_in=4, fan_in=4)
    for level in range(1, tree.levels + 1):
        read: Counter[int] = Counter()
        for number in range(tree.run_count(level)):
            first, last = tree.hash_range(level, number)
            for below in tree.inputs(level, number):
                begin, end = tree.hash_range(level - 1, below)
                assert begin <= first <= last <= end
                read[below] += last - first + 1
        assert read == {
            run: tree.hash_range(level - 1, run)[1] - tree.hash_range(level - 1, run)[0] + 1
            for run in range(tree.run_count(level - 1))
        }


@pytest.mark.parametrize(
    ("work_items", "levels"), [(1, 0), (512, 0), (513, 1), (32_768, 1), (32_769, 2)]
)
def test_levels(work_items, levels):
    assert MergeTree(work_items).levels == levels


def test_tasks_round_trip(tmp_path: Path):
    work_items = [
        [SourceRange(f"/in/é {i}", f"é {i}", "text", "", 10, i, -1)] * (i % 3) for i in range(600)
    ]
    assert write_work_items(str(tmp_path), iter(work_items)) == 600
    assert [read_work_item(str(tmp_path), number) for number in range(600)] == work_items
    assert len(list((tmp_path / "work-items").glob("*.jsonl"))) == 3


@pytest.mark.parametrize(
    ("work_items", "build_reads", "run_bytes", "levels"),
    [
        (16, 5, 250e6, 0),  # 500 MB
        (150, 50, 2.5e9, 0),  # 5 GB
        (150, 1_250, 2.5e9, 1),  # five copies of it: each shard reads five ranges
        (3_726, 2_000, 0.5e12, 1),  # 1 TB
        (3_726, 50_000, 0.5e12, 2),
        (372_530, 5_000_000, 50e12, 3),  # 100 TB
    ],
)
def test_choose_tree(work_items: int, build_reads: float, run_bytes: float, levels: int) -> None:
    assert choose_merge_tree(work_items, build_reads, run_bytes).levels == levels


def test_a_terabyte_needs_less_than_a_million_reads() -> None:
    tree = choose_merge_tree(3_726, 50_000, 0.5e12)
    gathered = tree.levels * tree.run_count(tree.levels) * tree.fan_in
    assert gathered + 50_000 * tree.group_count(tree.levels) < 1_000_000


def test_fan_in_must_be_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="fan_in must be a power of two, got 48"):
        MergeTree(10, 4, 48)
