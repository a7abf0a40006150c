"""`recordmill report` names planted faults at the top of the page, with a number and what to do."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.schema import Feature, Schema

from ...reader.small_datasets import write_dataset
from . import report_faults


def faults(folder: Path, dataset: Path, *flags: str) -> list[tuple[str, str]]:
    """Returns what looks wrong, and the section that each links to."""
    out = folder / "report.html"
    assert main(["report", str(dataset), f"--html={out}", *flags]) == 0
    content = out.read_text(encoding="utf-8")
    box = re.search(r'<div class="warnings.*?</div>', content, re.DOTALL)
    assert box
    found = re.findall(r'<li>(.*?)(?: <a href="#(\w+)">.*?</a>)?</li>', box[0], re.DOTALL)
    for _, section in found:
        assert f'<section id="{section}"' in content
    return [(html.unescape(text), section) for text, section in found]


@pytest.mark.parametrize("kind", ["right_text", "right_images"])
def test_nothing_is_said_of_right_datasets(tmp_path: Path, kind: str) -> None:
    dataset = getattr(report_faults, kind)(tmp_path / "ds")
    assert faults(tmp_path, dataset) == []
    content = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Nothing looks wrong" in content
    looked_at = re.search(r"Looked at: (.*?)\.</p>", content)
    assert looked_at
    checks = looked_at[1].split(", ")
    assert {"copies of records", "contents in two splits", "rejects"} <= {*checks}
    text, images = ("padding", "positions of masks"), ("labels against looks",)
    assert ({*text} <= {*checks}, {*images} <= {*checks}) == (
        kind == "right_text",
        kind == "right_images",
    )
    assert not {"boxes", "unknown tokens", "masks without an object"} & {*checks}


def test_copies_are_named(tmp_path: Path) -> None:
    dataset = report_faults.twin_shards(tmp_path / "ds")
    named = [text for text, where in faults(tmp_path, dataset) if where == "contents"]
    assert any("(train:0 = train:300, train:1 = train:301," in text for text in named)
    assert not any("--copies" in text for text in named)


def test_notes_of_the_run_are_named(tmp_path: Path) -> None:
    dataset = report_faults.right_images(tmp_path / "ds")
    (dataset / "_meta/run.json").write_text(json.dumps({"notes": ["150 images have the name"]}))
    assert faults(tmp_path, dataset) == [("The run said: 150 images have the name", "run")]


def test_numbers_that_are_none_are_named(tmp_path: Path) -> None:
    schema = Schema((Feature("score", "float32", (2,), ""),))
    scores = np.array([[1, np.nan], [2, np.inf], [3, 4]], np.float32)
    write_dataset(tmp_path / "ds", {"train": [{"score": scores}]}, schema)
    ((text, section),) = faults(tmp_path, tmp_path / "ds")
    assert section == "values"
    assert text.startswith(
        "score of 3 sampled records of train has 1 NaN and 1 infinite ones among its numbers"
    )


def test_all_rejects_are_named(tmp_path: Path) -> None:
    dataset = report_faults.right_text(tmp_path / "ds")
    manifest = json.loads((dataset / "_meta/manifest.json").read_bytes())
    manifest["counts"]["rejected"] = {"broken_image": 1, "zero_size": 4}
    (dataset / "_meta/manifest.json").write_text(json.dumps(manifest))
    assert any(
        text.startswith("5 inputs were rejected") and "zero_size 4, broken_image 1" in text
        for text, _ in faults(tmp_path, dataset)
    )


@pytest.mark.parametrize(
    ("plant", "section", "said"),
    [
        (report_faults.shifted_masks, "masks", r"masks of train are shifted by \+1: .* and 80"),
        (report_faults.empty_rows, "lengths", r"^(4[5-9]|5\d)\.\d% of the rows of train are nearly "
         r"all padding"),
        (report_faults.twin_shards, "shards", r"train-00000-of-00002.* and .*train-00001-of-00002"),
        (report_faults.leak, "contents", r"^2 of 200 compared records of validation \(1\.0%\) are "
         r"also in train \(validation:50 is train:307\).*--split_by"),
        (report_faults.swapped_labels, "classes", r"^(1\d|2[0-4]) of 200 sampled images .* look "
         r"like another class"),
        (report_faults.two_labels, "contents", r"^4 records of train have the content of another "
         r"record and another label \(train:0 and train:150"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("ours", [True, False])
def test_a_planted_fault_is_named(
    tmp_path: Path, plant: Callable[[Path], Path], section: str, said: str, *, ours: bool
) -> None:
    dataset = plant(tmp_path / "ds")
    if not ours:  # the same files as those of another tool
        for path in dataset.iterdir():
            if path.name.startswith("_"):
                path.rename(tmp_path / path.name)
    named = [text for text, where in faults(tmp_path, dataset) if where == section]
    assert any(re.search(said, text) for text in named), named
