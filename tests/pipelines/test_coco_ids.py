"""The numbers of COCO's images and categories in datasets, by format and by flag."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recordmill.pipelines.command_line import main
from recordmill.records.errors import UsageError
from recordmill.transforms.images.image_spec import LabelNumbering

from ..pictures import jpeg
from .test_image_job import read, run

IDS = {"zebra": 2, "dog": 18}


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with two splits; each image has one dog."""
    base = tmp_path_factory.mktemp("coco")
    (base / "annotations").mkdir()
    for split, numbers in (("train", (901, 902)), ("val", (903,))):
        (base / f"{split}2017").mkdir()
        content = {
            "images": [{"id": i, "file_name": f"{i}.jpg"} for i in numbers],
            "categories": [{"id": i, "name": name} for name, i in IDS.items()],
            "annotations": [
                {"image_id": i, "category_id": 18, "bbox": [2, 3, 10, 12]} for i in numbers
            ],
        }
        (base / f"annotations/instances_{split}2017.json").write_text(json.dumps(content))
        for i in numbers:
            (base / f"{split}2017/{i}.jpg").write_bytes(jpeg(40, 30, seed=i))
    return base


@pytest.mark.parametrize("name", ["object_detection", "model_garden"])
def test_detection_formats_keep_them(coco: Path, tmp_path: Path, name: str) -> None:
    assert run(coco, tmp_path / "ds", "--task=detection", f"--format={name}") == 0
    rows = read(tmp_path / "ds")
    assert {row["image/source_id"][0] for row in rows} == {b"901", b"902"}
    assert {int(label) for row in rows for label in row["image/object/class/label"].ravel()} == {18}
    [row] = read(tmp_path / "ds", "validation")
    assert row["image/source_id"][0] == b"903"
    assert (tmp_path / "ds/label_map.pbtxt").read_text() == (
        'item {\n  id: 2\n  name: "zebra"\n}\nitem {\n  id: 18\n  name: "dog"\n}\n'
    )
    assert main(["verify", str(tmp_path / "ds")]) == 0


def test_several_annotations_and_contiguous_ids(coco: Path, tmp_path: Path) -> None:
    notes = [f"--annotations={coco}/annotations/instances_{s}2017.json" for s in ("train", "val")]
    flags = ("--task=detection", "--category_ids=contiguous", *notes)
    assert run(coco, tmp_path / "ds", *flags) == 0
    labels = [
        int(n) for row in read(tmp_path / "ds") for n in row["image/object/class/label"].ravel()
    ]
    assert set(labels) == {2}
    assert (tmp_path / "ds/label_map.pbtxt").read_text().count("item") == 2
    assert len(read(tmp_path / "ds", "validation")) == 1


def test_numbers_by_task_format_and_flags() -> None:
    def number(task: str, name: str, ids=IDS, **flags) -> dict[str, int]:
        return LabelNumbering(**flags).number(list(IDS), ids, task, name)

    ranks = {"zebra": 1, "dog": 2}
    assert number("detection", "object_detection") == IDS
    assert number("detection", "tfds") == {"zebra": 0, "dog": 1}
    assert number("detection", "tfds", category_ids="original") == IDS
    assert number("detection", "object_detection", first_label=1) == ranks
    assert number("segmentation", "model_garden") == ranks
    assert number("detection", "object_detection", ids={}) == ranks
    assert number("detection", "object_detection", ids={"zebra": 0, "dog": 1}) == ranks


def test_what_is_refused() -> None:
    with pytest.raises(UsageError, match=r"first_label has no effect with category_ids=.original"):
        LabelNumbering(1, "original")
    with pytest.raises(UsageError, match="--category_ids=contiguous must go with COCO's JSON"):
        LabelNumbering(None, "contiguous").number(["a"], {}, "detection", "tfds")
    for bad in (0, "7", 10**9):
        with pytest.raises(UsageError, match="=original must have ids from 1 to 100000"):
            LabelNumbering(None, "original").number(["a"], {"a": bad}, "detection", "tfds")


def test_polygons_become_a_class_mask(coco: Path, tmp_path: Path) -> None:
    content = json.loads((coco / "annotations/instances_val2017.json").read_text())
    content["annotations"][0]["segmentation"] = [[2, 3, 12, 3, 12, 15, 2, 15]]
    notes = tmp_path / "notes.json"
    notes.write_text(json.dumps(content))
    flags = (f"--annotations={notes}", "--task=segmentation", "--format=raw")
    assert run(coco / "val2017", tmp_path / "ds", *flags) == 0
    [row] = read(tmp_path / "ds")
    mask = np.frombuffer(row["mask"][0], np.uint8).reshape(30, 40)
    assert (mask[3:15, 2:12] == 2).all()
    assert np.count_nonzero(mask) == 120
    assert (tmp_path / "ds/labels.txt").read_text() == "background\nzebra\ndog\n"


def test_boxes_alone_are_no_background(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An image whose objects have no pixels, beside one whose objects have, has no mask."""
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / f"in/{name}.jpg").write_bytes(jpeg(40, 30))
    square = [[2, 3, 12, 3, 12, 15, 2, 15]]
    notes = [
        {"image_id": 0, "category_id": 1, "bbox": [2, 3, 10, 12], "segmentation": square},
        {"image_id": 1, "category_id": 1, "bbox": [2, 3, 10, 12]},
    ]
    images = [{"id": i, "file_name": f"{name}.jpg"} for i, name in enumerate("abc")]
    content = {"images": images, "annotations": notes, "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "notes.json").write_text(json.dumps(content))
    flags = (f"--annotations={tmp_path}/notes.json", "--task=segmentation", "--format=raw")
    assert run(tmp_path / "in", tmp_path / "ds", *flags, "--max_rejected=0.5") == 0
    rows = read(tmp_path / "ds")
    assert sorted(sum(row["mask"][0]) for row in rows) == [0, 120]
    assert "rejected: no_mask 1" in capsys.readouterr().out
