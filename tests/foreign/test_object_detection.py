"""The Object Detection API's own decoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Count, ForeignCalls, ForeignError
from .trees import CATEGORIES, COUNT, SIZE, image_id, objects_of

READER = "Object Detection API TfExampleDecoder"
PNG_MASKS = 2  # input_reader.proto, InstanceMaskType; what create_coco_tf_record.py writes
Write = Callable[..., Path]


def shards(dataset: Path) -> list[str]:
    return sorted(str(path) for path in (dataset / "train").iterdir())


@pytest.fixture
def decoded(
    object_detection: Path, foreign: ForeignCalls, write_images: Write
) -> tuple[Path, dict[str, Any]]:
    """Returns the dataset of COCO's tree, and what the decoder gives for it."""
    dataset = write_images("detection", "--format=object_detection", "--include_masks")
    call = {
        "files": shards(dataset), "load_instance_masks": True, "instance_mask_type": PNG_MASKS,
    }  # fmt: skip
    (found,) = foreign.run("detection_api", call, checkout=object_detection)
    assert not isinstance(found, ForeignError), found
    return dataset, found


def numbers(found: dict[str, Any]) -> list[int]:
    """Returns the number of each row's image in the tree, by its file's name."""
    names = [f"{image_id(number):012d}.jpg".encode() for number in range(COUNT)]
    return [names.index(name) for name in found["filename"].tolist()]


def test_every_image_with_its_boxes_and_masks(
    decoded: tuple[Path, dict[str, Any]], count: Count
) -> None:
    dataset, found = decoded
    count(READER, dataset, len(found["image"]), "COCO, object_detection, masks")
    assert sorted(numbers(found)) == list(range(COUNT))
    for row, number in enumerate(numbers(found)):
        assert found["image"][row].shape == (*SIZE, 3)
        boxes = found["groundtruth_boxes"][row] * [*SIZE, *SIZE]
        objects = objects_of(number)
        for i, ((x0, y0, x1, y1), _) in enumerate(objects):
            np.testing.assert_allclose(boxes[i], (y0, x0, y1, x1), atol=1e-3)
            assert found["groundtruth_area"][row, i] == (x1 - x0) * (y1 - y0)
            rows, columns = np.nonzero(found["groundtruth_instance_masks"][row, i])
            inside = (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1)
            assert np.abs(np.subtract(inside, (y0, x0, y1, x1))).max() <= 1
        assert not boxes[len(objects) :].any()
        assert not found["groundtruth_is_crowd"][row].any()


def test_one_number_for_each_category(decoded: tuple[Path, dict[str, Any]]) -> None:
    _, found = decoded
    pairs = {
        (int(found["groundtruth_classes"][row, i]), category)
        for row, number in enumerate(numbers(found))
        for i, (_, category) in enumerate(objects_of(number))
    }
    assert len(pairs) == len(CATEGORIES)
    assert 0 not in {label for label, _ in pairs}  # the background's number


def test_ids_of_coco(decoded: tuple[Path, dict[str, Any]]) -> None:
    _, found = decoded
    for row, number in enumerate(numbers(found)):
        assert found["source_id"][row] == str(image_id(number)).encode()
        categories = [category for _, category in objects_of(number)]
        assert found["groundtruth_classes"][row, : len(categories)].tolist() == categories


def test_label_map_by_name(
    decoded: tuple[Path, dict[str, Any]], object_detection: Path, foreign: ForeignCalls
) -> None:
    """The decoder reads our label map and finds the same numbers by the categories' names."""
    dataset, plain = decoded
    (label_map,) = dataset.rglob("*.pbtxt")
    call = {"files": shards(dataset), "label_map_proto_file": str(label_map)}
    (found,) = foreign.run("detection_api", call, checkout=object_detection)
    assert not isinstance(found, ForeignError), found
    assert (found["groundtruth_classes"] == plain["groundtruth_classes"]).all()
