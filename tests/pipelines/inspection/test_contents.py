"""Contents that are there twice: what is read, what is compared, and how much is kept of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from recordmill.pipelines.inspection.contents import SplitContents, find_leaks, read_contents
from recordmill.pipelines.inspection.found_files import open_records

from ...reader.small_datasets import write_numbers


def test_a_small_dataset_is_read_whole(tmp_path: Path) -> None:
    records = open_records(str(write_numbers(tmp_path, [5, 0, 7], validation=[3])))
    found = read_contents(records, 10_000_000, 1000)
    assert {name: (c.records, c.whole, c.copies) for name, c in found.items()} == {
        "train": (12, True, 0),
        "validation": (3, True, 0),
    }
    assert find_leaks(found) == []
    assert [first for _, first in found["train"].files] == [0, 5, 5]


def test_a_large_one_is_read_in_parts_of_some_files(tmp_path: Path) -> None:
    records = open_records(str(write_numbers(tmp_path, [50] * 40, validation=[30])))
    found = read_contents(records, 1_000_000_000, 200)
    assert (found["validation"].records, found["validation"].whole) == (30, True)
    train = found["train"]
    assert len(train.files) == 14  # every third of 40
    assert 150 <= train.records <= 170
    assert not train.whole
    assert train.files[1] == (records.split("train")[3].path, 150)
    few = read_contents(records, 5000, 10_000)
    assert sum(c.records for c in few.values()) < 120
    assert not few["train"].whole


def test_what_is_kept_is_bounded_and_the_same_in_all_splits() -> None:
    digests = [
        bytes(row) for row in np.random.default_rng(0).integers(0, 256, (5000, 16), np.uint8)
    ]
    train, test = SplitContents(kept=100), SplitContents(kept=100)
    for split, some in ((train, digests[:4000]), (test, digests[3600:4400])):
        split.files.append(("file", 0))
        for position, digest in enumerate(some):
            split.add(digest, position, None)
    assert len(train.counts) <= 200
    assert len(train.first) == len(train.counts)
    (leak,) = find_leaks({"train": train, "test": test})
    assert (leak.split, leak.other) == ("test", "train")
    assert leak.compared < 60
    assert 0.3 < leak.records / leak.compared < 0.7  # half of the 800 records of test
    here, there = (int(name) for name in leak.first)
    assert digests[3600 + here] == digests[there]
