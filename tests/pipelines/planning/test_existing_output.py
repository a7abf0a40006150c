"""How a run says what another one at its output was configured with."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from recordmill.pipelines.planning.existing_output import describe_difference
from recordmill.transforms.dataset.commit import CommitSpec

CONFIG: dict[str, Any] = {
    "pipeline": "text",
    "input": ["a/*.txt"],
    "seed": 1,
    "splits": [{"name": "train", "share": 1.0, "num_shards": None}],
    "objective": {"name": "bert", "dupe_factor": 10, "masked_lm_prob": 0.15},
    "images": {"labels": {"cat": 0}, "seed": 1},
}
OLD = CommitSpec(
    name="ds", description="", fingerprint="0", replaces=False, config=CONFIG,
    versions={"recordmill": "1"}, sources={"files": 3, "bytes": 9, "checksum": "a"},
)  # fmt: skip
SPLITS = [
    {"name": "train", "share": 0.9, "num_shards": 8},
    {"name": "test", "share": 0.1, "num_shards": None},
]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"config": CONFIG | {"seed": 2}}, "--random_seed was 1, is 2"),
        (
            {"config": CONFIG | {"seed": 2, "images": {"labels": {"cat": 0}, "seed": 2}}},
            "--random_seed was 1, is 2",
        ),
        (
            {"config": CONFIG | {"objective": CONFIG["objective"] | {"dupe_factor": 5}}},
            "--dupe_factor was 10, is 5",
        ),
        (
            {"config": CONFIG | {"objective": {"name": "gpt", "dupe_factor": 10, "fim_rate": 0.0}}},
            "--task was bert, is gpt",
        ),
        (
            {"config": CONFIG | {"splits": SPLITS}},
            "--splits was train:1, is train:0.9 in 8 shards,test:0.1",
        ),
        (
            {"config": CONFIG | {"images": {"labels": {"cat": 1}, "seed": 1}}},
            "number of label cat was 0, is 1",
        ),
        ({"config": CONFIG | {"pipeline": "images"}}, "pipeline was text, is images"),
        (
            {"config": CONFIG | {"b": 1, "c": 2, "d": 3, "e": 4}},
            "--b was unset, is 1; --c was unset, is 2; --d was unset, is 3; and 1 more",
        ),
        (
            {"sources": {"files": 4, "bytes": 9, "checksum": "b"}},
            "the input has changed: 3 files before, 4 now",
        ),
        (
            {
                "config": CONFIG | {"seed": 2},
                "sources": {"files": 3, "bytes": 8, "checksum": "b"},
            },
            "--random_seed was 1, is 2; the input has changed: 9 bytes before, 8 now",
        ),
        (
            {"sources": {"files": 3, "bytes": 9, "checksum": "b"}},
            "the input has changed: other names or sizes of files",
        ),
        ({"versions": {"recordmill": "2"}}, "another release wrote it (recordmill was 1, is 2)"),
        ({"config": CONFIG | {"input": ["b/*.txt"]}}, "another release wrote it"),
    ],
)
def test_the_difference_of_two_configurations(changes: dict[str, Any], expected: str) -> None:
    assert describe_difference(OLD, replace(OLD, **changes)) == expected
