"""YOLO's text files to records of the Object Detection API."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ..pictures import jpeg
from .test_image_job import read, run


def test_boxes_and_names(tmp_path: Path) -> None:
    for folder in ("images/train", "labels/train"):
        (tmp_path / "in" / folder).mkdir(parents=True)
    (tmp_path / "in/images/train/a.jpg").write_bytes(jpeg(40, 20, seed=1))
    lines = ["1 0.5 0.5 0.5 0.5", "0 0.1 0.5 0.6 0.5", "0 1.5 1.5 0.1 0.1", "0 0.5 0.5 -0.2 0.1"]
    (tmp_path / "in/labels/train/a.txt").write_text("\n".join(lines))
    (tmp_path / "in/data.yaml").write_text("names: [cat, dog]\n")
    assert run(tmp_path / "in", tmp_path / "ds", "--task=detection") == 0
    [row] = read(tmp_path / "ds")
    assert row["image/object/class/label"].ravel().tolist() == [2, 1]
    assert np.allclose(row["image/object/bbox/xmin"].ravel(), [0.25, 0])
    assert np.allclose(row["image/object/bbox/xmax"].ravel(), [0.75, 0.4])
    assert (tmp_path / "ds/labels.txt").read_text() == "background\ncat\ndog\n"
    statistics = json.loads((tmp_path / "ds/_meta/statistics.json").read_text())["train"]
    counts = {k: n for k, n in statistics.items() if k.startswith("boxes_") and n}
    assert counts == {
        "boxes_clipped": 1, "boxes_dropped_outside": 1, "boxes_dropped_inverted": 1,
    }  # fmt: skip
