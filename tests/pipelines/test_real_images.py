"""The image job on real pictures, held against their own files.

The data lies beside the checkout and is no part of the project; without it these tests skip.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipelines.command_line import main

from ..transforms.images.test_decoding import AWKWARD
from .jobs import manifest

pytestmark = pytest.mark.real

Box = tuple[float, float, float, float, str]
Mask = npt.NDArray[np.uint8]


@pytest.fixture(scope="session")
def images(real_data: Path) -> Path:
    return real_data / "images"


def run(source: str, output: Path, *flags: str) -> None:
    status = main(
        ["images", f"--input={source}", f"--output={output}", "--direct_num_workers=1", *flags]
    )
    assert status == 0
    assert main(["verify", str(output)]) == 0


def examples(*paths: Path) -> Iterator[dict[str, Any]]:
    """Yields the features of each record."""
    for record in tf.data.TFRecordDataset([str(path) for path in paths]).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        yield {
            n: getattr(f, f.WhichOneof("kind") or "int64_list").value for n, f in features.items()
        }


def written(output: Path) -> list[dict[str, Any]]:
    return list(examples(*sorted(output.glob("*/*.tfrecords"))))


def name_of(example: dict[str, Any]) -> str:
    return str(example["image/filename"][0].decode().rpartition("/")[2])


def boxes(example: dict[str, Any]) -> list[Box]:
    """Boxes in pixels, with their classes."""
    height, width = example["image/height"][0], example["image/width"][0]
    sides = [
        np.array(example[f"image/object/bbox/{side}"]) * size
        for side, size in (("xmin", width), ("ymin", height), ("xmax", width), ("ymax", height))
    ]
    texts = [text.decode() for text in example["image/object/class/text"]]
    return sorted(zip(*(values.tolist() for values in sides), texts, strict=True))


def test_raccoons_are_those_of_the_object_detection_api(images: Path, tmp_path: Path) -> None:
    folder = images / "raccoon"
    flags = ("--task=detection", f"--annotations={folder}/annotations", "--num_shards=2")
    run(f"{folder}/images", tmp_path / "ds", *flags)
    found = {name_of(example): example for example in written(tmp_path / "ds")}
    assert len(found) == 200
    assert sum(len(boxes(example)) for example in found.values()) == 217
    theirs = list(examples(folder / "data/test.record"))
    assert len(theirs) == 40
    for example in theirs:
        ours = found[name_of(example)]
        assert ours["image/encoded"] == example["image/encoded"]
        assert ours["image/object/class/label"] == example["image/object/class/label"]
        for box, other in zip(boxes(ours), boxes(example), strict=True):
            assert box[4] == other[4]
            assert np.abs(np.subtract(box[:4], other[:4])).max() <= 1.001


def test_tiles_by_the_folder_of_their_class(images: Path, tmp_path: Path) -> None:
    pattern = f"{images}/magnetic_tile/*/Imgs/*.jpg"
    run(pattern, tmp_path / "ds", "--channels=1", "--num_shards=4")
    classes = (tmp_path / "ds/labels.txt").read_text().split()
    wanted = {
        path.read_bytes(): path.parts[-3] for path in images.glob("magnetic_tile/*/Imgs/*.jpg")
    }
    found = {e["image"][0]: classes[e["label"][0]] for e in written(tmp_path / "ds")}
    assert len(found) == 150
    assert found == wanted


def test_tiles_with_masks_paired_by_name(images: Path, tmp_path: Path) -> None:
    place = f"{images}/magnetic_tile/*/Imgs"
    flags = ("--task=segmentation", f"--masks={place}/*.png", "--binary_masks")
    run(f"{place}/*.jpg", tmp_path / "ds", *flags)
    found = {name_of(e): e["segmentation_mask"][0] for e in written(tmp_path / "ds")}
    sources = {path.stem: path for path in images.glob("magnetic_tile/*/Imgs/*.png")}
    assert {Path(name).stem for name in found} == sources.keys()
    for name, mask in found.items():
        wanted = np.asarray(Image.open(sources[Path(name).stem])) > 127
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(mask))), wanted)


def test_masks_that_are_no_classes_are_refused(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The masks of these tiles have smoothed edges: all values from 0 to 255."""
    place = f"{images}/magnetic_tile/*/Imgs"
    flags = ("--task=segmentation", f"--masks={place}/*.png", f"--output={tmp_path}/ds")
    assert main(["images", f"--input={place}/*.jpg", *flags]) == 2
    error = capsys.readouterr().err
    assert "(256 values): give --binary_masks" in error
    assert not (tmp_path / "ds").exists()


def severstal_masks(folder: Path) -> dict[str, Mask]:
    """Masks of 256 x 1600 by image, from the runs of the table."""
    masks = {path.name: np.zeros(256 * 1600, np.uint8) for path in folder.glob("*/*.jpg")}
    with (folder / "train.csv").open(newline="") as table:
        for row in csv.DictReader(table):
            runs = list(map(int, row["EncodedPixels"].split()))
            for start, length in zip(runs[::2], runs[1::2], strict=True):
                masks[row["ImageId"]][start - 1 : start - 1 + length] = int(row["ClassId"])
    return {name: mask.reshape(256, 1600, order="F") for name, mask in masks.items()}


def test_steel_with_masks_of_its_run_lengths(images: Path, tmp_path: Path) -> None:
    folder = images / "derived_severstal_layout"
    run(str(folder), tmp_path / "ds", "--task=segmentation")
    wanted = severstal_masks(folder)
    found = {name_of(e): e["segmentation_mask"][0] for e in written(tmp_path / "ds")}
    assert found.keys() == wanted.keys()
    for name, mask in found.items():
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(mask))), wanted[name])


@pytest.mark.parametrize(("flag", "label"), [("--mask_class=2", 2), ("--binary_masks", None)])
def test_steel_of_two_classes(images: Path, tmp_path: Path, flag: str, label: int | None) -> None:
    folder = images / "derived_severstal_layout"
    run(str(folder), tmp_path / "ds", "--task=segmentation", flag)
    wanted = severstal_masks(folder)
    found = {name_of(e): e["segmentation_mask"][0] for e in written(tmp_path / "ds")}
    for name, mask in found.items():
        chosen = wanted[name] == label if label else wanted[name] > 0
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(mask))), chosen)


def test_steel_as_unet_reads_it(images: Path, tmp_path: Path) -> None:
    folder = images / "derived_severstal_layout"
    flags = ("--task=segmentation", "--format=unet", "--image_size=256x1600", "--channels=1")
    run(str(folder), tmp_path / "ds", *flags)
    wanted = Counter(mask.tobytes() for mask in severstal_masks(folder).values())
    found: Counter[bytes] = Counter()
    for example in written(tmp_path / "ds"):
        image = np.array(example["image"], np.float32)
        assert image.size == 256 * 1600
        assert 0 <= image.min() < image.max() <= 1
        found[np.array(example["mask"], np.uint8).tobytes()] += 1
    assert found == wanted


@pytest.mark.parametrize("flags", [(), ("--image_size=32x32", "--encoding=PNG")])
def test_trouble_has_its_outcome(images: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    shutil.copytree(images / "awkward", tmp_path / "in/trouble")
    run(f"{tmp_path}/in", tmp_path / "ds", "--max_rejected=1", *flags)
    found: dict[str, str] = {name_of(example): "" for example in written(tmp_path / "ds")}
    for path in (tmp_path / "ds/_meta/rejected").glob("*.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            found[line["source"].rpartition("/")[2]] = line["reason"]
    assert found == {n: o if isinstance(o, str) else "" for n, o in AWKWARD.items()}
    assert manifest(tmp_path / "ds")["counts"]["rejected"] == Counter(filter(None, found.values()))
