"""YOLO's text files to records of the Object Detection API, and to class masks."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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


SQUARE = "0.25 0.25 0.75 0.25 0.75 0.75 0.25 0.75"


def polygons(folder: Path, *more: str) -> Path:
    """Three images of 40 x 20: a dog's polygon, one without object, one without text."""
    for inner in ("images", "labels"):
        (folder / inner).mkdir(parents=True)
    for name in ("a", "b", "c"):
        (folder / f"images/{name}.jpg").write_bytes(jpeg(40, 20, seed=1))
    (folder / "labels/a.txt").write_text("\n".join((f"1 {SQUARE}", *more)))
    (folder / "labels/b.txt").write_text("")
    (folder / "data.yaml").write_text("names: [cat, dog]\n")
    return folder


def masks_of(dataset: Path) -> list[np.ndarray]:
    """The masks, those with the most pixels of classes last."""
    masks = [np.frombuffer(row["mask"][0], np.uint8).reshape(20, 40) for row in read(dataset)]
    return sorted(masks, key=np.count_nonzero)


def test_polygons_become_class_masks_and_images_without_object_background(tmp_path: Path) -> None:
    source = polygons(tmp_path / "in", "0 0 0 0.1 0 0.1 1 0 1")
    flags = ("--task=segmentation", "--format=raw", "--num_shards=1")
    assert run(source, tmp_path / "ds", *flags) == 0
    *empty, mask = masks_of(tmp_path / "ds")
    expected = np.zeros((20, 40), np.uint8)
    expected[5:15, 10:30] = 2
    expected[:, :4] = 1
    np.testing.assert_array_equal(mask, expected)
    assert [mask.any() for mask in empty] == [False, False]
    assert (tmp_path / "ds/labels.txt").read_text() == "background\ncat\ndog\n"


def test_texts_are_not_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(polygons(tmp_path / "in"), tmp_path / "ds", "--task=segmentation") == 0
    printed = capsys.readouterr().out
    assert "passed over: .yaml 1 (such as data.yaml)\n" in printed


def test_one_class_of_polygons_and_any_class(tmp_path: Path) -> None:
    source = polygons(tmp_path / "in", "0 0 0 0.1 0 0.1 1 0 1")
    for flag, pixels in (("--mask_class=cat", 80), ("--binary_masks", 280)):
        place = tmp_path / flag
        assert run(source, place, "--task=segmentation", "--format=raw", flag) == 0
        assert masks_of(place)[-1].sum() == pixels
        assert masks_of(place)[-1].max() == 1


def test_polygons_become_boxes_and_masks_of_objects(tmp_path: Path) -> None:
    source = polygons(tmp_path / "in")
    flags = ("--task=detection", "--include_masks", "--num_shards=1")
    assert run(source, tmp_path / "ds", *flags) == 0
    row = next(row for row in read(tmp_path / "ds") if len(row["image/object/class/label"].ravel()))
    sides = [row[f"image/object/bbox/{side}"].ravel() for side in ("xmin", "ymin", "xmax", "ymax")]
    np.testing.assert_allclose(np.ravel(sides), [0.25, 0.25, 0.75, 0.75])
    assert row["image/object/area"].ravel().tolist() == [200]
    mask = Image.open(io.BytesIO(np.ravel(row["image/object/mask"])[0]))
    assert np.asarray(mask).sum() == 200


def test_boxes_alone_are_no_masks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also beside images without any object, which would all be background."""
    source = polygons(tmp_path / "in")
    (source / "labels/a.txt").write_text("1 0.5 0.5 0.5 0.5")
    assert run(source, tmp_path / "ds", "--task=segmentation") == 2
    error = capsys.readouterr().err
    assert "--task=segmentation needs masks, and this input of --layout=yolo has none" in error
    assert not (tmp_path / "ds").exists()
