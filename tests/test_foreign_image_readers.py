"""The readers of images that people already have, on what the pipeline wrote.

Boxes and masks agree with the source within a pixel; counts agree with the manifest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageDraw

from recordmill.pipelines.command_line import main

from .pictures import drawn, encoded

# tensorflow_datasets asks protobuf for the label of a field, which protobuf 6 deprecates.
TFDS_WARNING = r"ignore:label\(\) is deprecated:DeprecationWarning"
SIZE = (60, 80)  # height, width
BOXES = [(10, 8, 34, 30), (40, 20, 75, 55)]  # xmin, ymin, xmax, ymax
COUNT = 9


@pytest.fixture(scope="module")
def coco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with two objects each, by COCO's JSON: a box and a polygon of it."""
    folder = tmp_path_factory.mktemp("coco")
    images, notes = [], []
    for i in range(COUNT):
        name = f"{i:03d}.jpg"
        (folder / "images").mkdir(exist_ok=True)
        image = drawn(SIZE[1], SIZE[0], seed=i)
        (folder / "images" / name).write_bytes(encoded(image, "JPEG", quality=95))
        images.append({"id": i, "file_name": name, "width": SIZE[1], "height": SIZE[0]})
        for number, (x0, y0, x1, y1) in enumerate(BOXES):
            notes.append(
                {
                    "id": 2 * i + number + 1, "image_id": i, "category_id": (7, 3)[number],
                    "bbox": [x0, y0, x1 - x0, y1 - y0], "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0, "segmentation": [[x0, y0, x1, y0, x1, y1, x0, y1]],
                }
            )  # fmt: skip
    categories = [{"id": 3, "name": "disc"}, {"id": 7, "name": "square"}]
    content = {"images": images, "annotations": notes, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images and masks of the same names; the mask is a box of class 1 and one of class 2."""
    folder = tmp_path_factory.mktemp("pairs")
    for kind in ("images", "masks"):
        (folder / kind).mkdir()
    for i in range(COUNT):
        image = drawn(SIZE[1], SIZE[0], seed=i)
        (folder / f"images/{i:03d}.png").write_bytes(encoded(image, "PNG"))
        (folder / f"masks/{i:03d}.png").write_bytes(encoded(true_mask(), "PNG"))
    (folder / "labels.txt").write_text("square\ndisc\n")
    return folder


def true_mask() -> Image.Image:
    mask = Image.new("L", SIZE[::-1])
    for number, (x0, y0, x1, y1) in enumerate(BOXES, 1):
        ImageDraw.Draw(mask).rectangle((x0, y0, x1 - 1, y1 - 1), fill=number)
    return mask


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory, coco: Path, pairs: Path) -> Callable[..., Path]:
    def write(task: str, name: str, *flags: str) -> Path:
        output = tmp_path_factory.mktemp("written") / "ds"
        source = {
            "detection": (f"--input={coco}/images", f"--annotations={coco}/instances.json"),
            "segmentation": (f"--input={pairs}", f"--labels={pairs}/labels.txt"),
            "classification": (f"--input={pairs}", "--layout=folders"),
        }[task]
        place = (f"--output={output}", "--num_shards=2", "--direct_num_workers=1")
        assert main(["images", *source, *place, f"--task={task}", f"--format={name}", *flags]) == 0
        return output

    return write


def records(dataset: Path) -> list[bytes]:
    paths = sorted(str(path) for path in (dataset / "train").iterdir())
    return list(tf.data.TFRecordDataset(paths).as_numpy_iterator())


@pytest.fixture(scope="module")
def garden() -> Iterator[Any]:
    """Model Garden's decoders, without the rest of its vision package and what that needs."""
    spec = find_spec("official")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    vision = types.ModuleType("official.vision")
    vision.__path__ = [f"{spec.submodule_search_locations[0]}/vision"]
    before = sys.modules.get("official.vision")
    sys.modules["official.vision"] = vision
    from official.vision.dataloaders import (
        classification_input,
        segmentation_input,
        tf_example_decoder,
    )
    from official.vision.evaluation import coco_evaluator

    yield types.SimpleNamespace(
        detection=tf_example_decoder,
        classification=classification_input,
        segmentation=segmentation_input,
        evaluator=coco_evaluator,
    )
    if before is None:
        del sys.modules["official.vision"]
    else:
        sys.modules["official.vision"] = before


class TestModelGarden:
    @pytest.mark.parametrize("name", ["object_detection", "model_garden"])
    def test_detection(self, write: Callable[..., Path], garden: Any, name: str) -> None:
        dataset = write("detection", name, "--include_masks")
        decoder = garden.detection.TfExampleDecoder(include_mask=True)
        found = [decoder.decode(tf.constant(record)) for record in records(dataset)]
        assert len(found) == COUNT
        for example in found:
            boxes = example["groundtruth_boxes"].numpy() * [*SIZE, *SIZE]
            wanted = [(y0, x0, y1, x1) for x0, y0, x1, y1 in BOXES]
            assert np.abs(np.array(sorted(boxes.tolist())) - wanted).max() <= 1
            assert sorted(example["groundtruth_classes"].numpy()) == [3, 7]
            assert example["image"].shape == (*SIZE, 3)
            for mask, box in zip(example["groundtruth_instance_masks"].numpy(), boxes, strict=True):
                rows, columns = np.nonzero(mask)
                inside = (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1)
                assert np.abs(np.array(inside) - box).max() <= 1

    @pytest.mark.parametrize("name", ["object_detection", "model_garden"])
    def test_the_ground_truth_as_its_own_prediction(
        self, write: Callable[..., Path], coco: Path, garden: Any, name: str
    ) -> None:
        dataset = write("detection", name)
        evaluator = garden.evaluator.COCOEvaluator(
            annotation_file=str(coco / "instances.json"), include_mask=False,
            need_rescale_bboxes=False,
        )  # fmt: skip
        decoder = garden.detection.TfExampleDecoder()
        for record in records(dataset):
            found = decoder.decode(record)
            scale = tf.cast([found["height"], found["width"]] * 2, tf.float32)
            classes = found["groundtruth_classes"]
            evaluator.update_state(
                None,
                {
                    "source_id": tf.strings.to_number(found["source_id"], tf.int64)[None],
                    "detection_boxes": (found["groundtruth_boxes"] * scale)[None],
                    "detection_classes": classes[None],
                    "detection_scores": tf.ones([1, len(classes)]),
                    "num_detections": tf.constant([len(classes)]),
                },
            )
        assert evaluator.result()["AP"] == pytest.approx(1.0)

    def test_label_map(self, write: Callable[..., Path]) -> None:
        wanted = 'item {\n  id: 3\n  name: "disc"\n}\nitem {\n  id: 7\n  name: "square"\n}\n'
        assert (write("detection", "model_garden") / "label_map.pbtxt").read_text() == wanted
        dataset = write("detection", "tfds")
        assert not (dataset / "label_map.pbtxt").exists()
        assert (dataset / "labels.txt").read_text() == "disc\nsquare\n"

    def test_detection_after_augmentation(self, write: Callable[..., Path], garden: Any) -> None:
        flags = ("--include_masks", "--image_size=90x120", "--augmentations=flip,rotate(10)")
        dataset = write("detection", "object_detection", *flags, "--copies=3")
        decoder = garden.detection.TfExampleDecoder(include_mask=True)
        found = [decoder.decode(tf.constant(record)) for record in records(dataset)]
        assert len(found) == 3 * COUNT
        for example in found:
            boxes = example["groundtruth_boxes"].numpy() * [90, 120, 90, 120]
            for mask, box in zip(example["groundtruth_instance_masks"].numpy(), boxes, strict=True):
                rows, columns = np.nonzero(mask)
                inside = (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1)
                assert np.abs(np.array(inside) - box).max() <= 1.5

    @pytest.mark.parametrize("name", ["model_garden", "imagenet"])
    def test_classification(self, write: Callable[..., Path], garden: Any, name: str) -> None:
        dataset = write("classification", name)
        decoder = garden.classification.Decoder()
        found = [decoder.decode(tf.constant(record)) for record in records(dataset)]
        labels = sorted(int(example["image/class/label"]) for example in found)
        first = 1 if name == "imagenet" else 0
        assert labels == [first] * COUNT + [first + 1] * COUNT
        for example in found:
            assert tf.io.decode_image(example["image/encoded"]).shape[:2] == SIZE

    def test_segmentation(self, write: Callable[..., Path], garden: Any) -> None:
        dataset = write("segmentation", "model_garden")
        decoder = garden.segmentation.Decoder()
        for record in records(dataset):
            example = decoder.decode(tf.constant(record))
            mask = tf.io.decode_png(example["image/segmentation/class/encoded"]).numpy()[..., 0]
            np.testing.assert_array_equal(mask, np.asarray(true_mask()))
            assert (int(example["image/height"]), int(example["image/width"])) == SIZE


@pytest.mark.filterwarnings(TFDS_WARNING)
class TestTfds:
    def read(self, dataset: Path) -> tuple[Any, list[dict[str, Any]]]:
        import tensorflow_datasets as tfds

        builder = tfds.builder_from_directory(str(dataset))
        rows = list(builder.as_dataset(split="train", shuffle_files=False).as_numpy_iterator())
        return builder.info, rows

    def test_classification(self, write: Callable[..., Path], pairs: Path) -> None:
        info, rows = self.read(write("classification", "tfds"))
        assert info.features["label"].names == ["images", "masks"]
        assert info.splits["train"].num_examples == len(rows) == 2 * COUNT
        stored = {
            np.asarray(Image.open(path).convert("RGB")).tobytes() for path in pairs.rglob("*.png")
        }
        assert {row["image"].tobytes() for row in rows} == stored

    def test_detection(self, write: Callable[..., Path]) -> None:
        info, rows = self.read(write("detection", "tfds", "--include_masks"))
        assert info.features["objects"]["label"].names == ["disc", "square"]
        for row in rows:
            boxes = row["objects"]["bbox"] * [*SIZE, *SIZE]
            wanted = [(y0, x0, y1, x1) for x0, y0, x1, y1 in BOXES]
            assert np.abs(np.array(sorted(boxes.tolist())) - wanted).max() <= 1
            assert sorted(row["objects"]["label"]) == [0, 1]

    def test_segmentation(self, write: Callable[..., Path]) -> None:
        _, rows = self.read(write("segmentation", "tfds"))
        assert len(rows) == COUNT
        for row in rows:
            np.testing.assert_array_equal(row["segmentation_mask"][..., 0], true_mask())


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_cerebras_unet(write: Callable[..., Path], channels: int | None) -> None:
    """Cerebras Model Zoo R_1.6.1, unet: DAGM2007TFRecordsDataset's parse.

    Image and mask are parsed with one `image_shape`, which the reader's parameters give.
    """
    flags = ("--image_size=60x80", "--float_range=zero_centered")
    dataset = write("segmentation", "unet", *flags, *([f"--channels={channels}"] * bool(channels)))
    image_shape = (*SIZE, channels or 1)
    feature = tf.io.FixedLenSequenceFeature(image_shape, tf.float32, allow_missing=True)
    found = records(dataset)
    assert len(found) == COUNT
    for record in found:
        example = tf.io.parse_single_example(record, {"image": feature, "mask": feature})
        assert example["image"].shape == example["mask"].shape == (1, *image_shape)
        image, mask = (tf.squeeze(example[name], 0).numpy() for name in ("image", "mask"))
        assert -1 <= image.min() < 0 < image.max() <= 1
        for channel in range(image_shape[2]):
            expected = np.asarray(true_mask(), np.float32)
            np.testing.assert_array_equal(mask[..., channel], expected)


TFRECORD_READER = """
import json, sys
from tfrecord.reader import tfrecord_loader
kinds = {"image": "byte", "height": "int", "width": "int", "channel": "int", "label": "int"}
rows = tfrecord_loader(sys.argv[1], sys.argv[2], kinds)
for row in rows:
    size = len(bytes(row.pop("image")))
    print(json.dumps([size, {name: int(value[0]) for name, value in row.items()}]))
"""


def test_tfrecord_package(write: Callable[..., Path]) -> None:
    """In a process of its own: its protobuf definitions clash with TensorFlow's."""
    dataset = write("classification", "raw", "--image_size=20x30")
    rows = []
    for shard in sorted((dataset / "train").iterdir()):
        index = dataset / f"_meta/index/train/{shard.stem}.idx"
        line = [sys.executable, "-c", TFRECORD_READER, str(shard), str(index)]
        shown = subprocess.run(line, capture_output=True, check=True, text=True).stdout
        rows += [json.loads(line) for line in shown.splitlines()]
    assert len(rows) == 2 * COUNT
    for size, row in rows:
        assert size == 20 * 30 * 3
        assert (row["height"], row["width"], row["channel"]) == (20, 30, 3)
    assert sorted(row["label"] for _, row in rows) == [0] * COUNT + [1] * COUNT
