"""Cerebras Model Zoo's own datasets of UNet, on the parameters of its own YAML files.

Its readers of raw pictures read the same trees, so that the pixels of both can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from recordmill.pipelines.command_line import main

from .conftest import Count, ForeignCalls, ForeignError
from .rows import row_keys

SIDE = 64
TRAIN, TEST = 7, 4
STEEL = (256, 1600)  # height and width of every image of Severstal, which its reader demands
PLAIN = {"mixed_precision": False, "data_format": "channels_last"}
Write = Callable[..., Path]


def draw_dagm(folder: Path, fields: int) -> None:
    """Writes Class1 with Train and Test; every third image has no defect.

    Cerebras' raw reader takes the first line for a header, and needs rows of six fields: an empty
    one behind the mask.
    """
    for split, images in (("Train", TRAIN), ("Test", TEST)):
        place = folder / "Class1" / split
        (place / "Label").mkdir(parents=True)
        rows = ["1\t0\t0\t0\t0"]
        for number in range(1, images + 1):
            rng = np.random.default_rng([len(split), number])
            pixels = rng.integers(0, 256, (SIDE, SIDE), np.uint8)
            Image.fromarray(pixels).save(place / f"{number:04d}.PNG")
            name = "0"
            if number % 3:
                name = f"{number:04d}_label.PNG"
                mask = Image.new("L", (SIDE, SIDE))
                ImageDraw.Draw(mask).ellipse((5 + number, 9, 40, 30 + number), fill=255)
                mask.save(place / "Label" / name)
            row = [str(number), str(int(name != "0")), f"{number:04d}.PNG", "0", name]
            rows.append("\t".join([*row, ""][:fields]))
        (place / "Label/Labels.txt").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def dagm(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same pictures with five and with six fields in Labels.txt."""
    folders = {}
    for fields in (5, 6):
        folders[fields] = tmp_path_factory.mktemp(f"dagm{fields}")
        draw_dagm(folders[fields], fields)
    return folders


def write(source: Path, *flags: str) -> Path:
    output = source.parent / f"{source.name}-{abs(hash(flags))}"
    line = [f"--input={source}", f"--output={output}", "--task=segmentation", "--format=unet"]
    assert main(["images", *line, "--direct_num_workers=1", "--num_shards=2", *flags]) == 0
    return output


def dagm_call(dataset: Path, reader: str, shape: tuple[int, ...], **others: Any) -> dict[str, Any]:
    config = "params_dagm.yaml" if reader == "DAGM2007Dataset" else "params_dagm_tfrecords.yaml"
    train_input = {
        "dataset_path": str(dataset), "image_shape": shape, "only_defective_images": False,
    }  # fmt: skip
    call = {"dataset": reader, "config": config, "train_input": train_input, "model": {}}
    return {**call, **others}


DAGM_FLAGS = (f"--image_size={SIDE}x{SIDE}", "--float_range=zero_centered", "--layout=dagm")
NAME = "DAGM2007TFRecordsDataset"


def raw_and_written(
    foreign: ForeignCalls, checkout: Path, raw: Path, dataset: Path, split: str
) -> tuple[Any, Any]:
    """Returns what Cerebras reads from the pictures and from our records, twice their number."""
    number = {"train": TRAIN, "test": TEST}[split]
    arguments = {
        "augment_data": False, "shuffle": False, "is_training": split == "train",
        "model": PLAIN, "rows": 2 * number,
    }  # fmt: skip
    shape = (SIDE, SIDE, 1)
    return tuple(
        foreign.run(
            "cerebras_unet",
            dagm_call(raw, "DAGM2007Dataset", shape, **arguments),
            dagm_call(dataset, NAME, shape, **arguments),
            checkout=checkout,
        )
    )


class TestDagm:
    @pytest.mark.parametrize("fields", [5, 6])
    def test_the_same_pixels_as_its_raw_reader(
        self,
        cerebras_unet: Path,
        foreign: ForeignCalls,
        dagm: dict[int, Path],
        count: Count,
        fields: int,
    ) -> None:
        dataset = write(dagm[fields], *DAGM_FLAGS, "--channels=1", "--binary_masks")
        for split, number in (("train", TRAIN), ("test", TEST)):
            raw, ours = raw_and_written(foreign, cerebras_unet, dagm[6], dataset, split)
            assert not isinstance(ours, ForeignError), ours
            keys = row_keys(ours, ["image", "mask"])
            # The training reader repeats for ever: its period is the number of its records.
            period = keys.index(keys[0], 1) if split == "train" else len(keys)
            count(f"Cerebras {NAME}", dataset, period, f"DAGM, {fields} fields", split)
            assert sorted(set(keys)) == sorted(set(row_keys(raw, ["image", "mask"])))
            assert len(set(keys)) == number
            assert set(np.unique(ours["mask"])) == {0.0, 1.0}

    def test_its_own_defaults(
        self, cerebras_unet: Path, foreign: ForeignCalls, dagm: dict[int, Path]
    ) -> None:
        """Channels first, float16, shuffled and augmented: all as its YAML file says."""
        dataset = write(dagm[5], *DAGM_FLAGS, "--channels=1", "--binary_masks")
        calls = [
            dagm_call(dataset, NAME, (SIDE, SIDE, 1), is_training=is_training, rows=3 * TRAIN)
            for is_training in (True, False)
        ]
        train, test = foreign.run("cerebras_unet", *calls, checkout=cerebras_unet)
        assert train["image"].shape == (3 * TRAIN, 1, SIDE, SIDE)
        assert train["mask"].shape == (3 * TRAIN, SIDE * SIDE)
        assert (train["image"].dtype, train["mask"].dtype) == (np.float16, np.float16)
        assert len(test["image"]) == TEST
        assert -1 <= train["image"].min() < 0 < train["image"].max() <= 1

    def test_masks_are_0_and_1_without_a_flag(
        self, cerebras_unet: Path, foreign: ForeignCalls, dagm: dict[int, Path]
    ) -> None:
        dataset = write(dagm[5], *DAGM_FLAGS, "--channels=1")
        _, ours = raw_and_written(foreign, cerebras_unet, dagm[6], dataset, "test")
        assert set(np.unique(ours["mask"])) == {0.0, 1.0}

    @pytest.mark.parametrize(
        ("flags", "channels"), [((), 1), (("--channels=1",), 1), (("--channels=3",), 3)]
    )
    def test_one_image_shape_for_image_and_mask(
        self,
        cerebras_unet: Path,
        foreign: ForeignCalls,
        dagm: dict[int, Path],
        flags: tuple[str, ...],
        channels: int,
    ) -> None:
        dataset = write(dagm[5], *DAGM_FLAGS, "--binary_masks", *flags)
        shape = (SIDE, SIDE, channels)
        call = dagm_call(dataset, NAME, shape, model=PLAIN, is_training=False, augment_data=False)
        (found,) = foreign.run("cerebras_unet", call, checkout=cerebras_unet)
        assert not isinstance(found, ForeignError), found
        assert found["image"].shape == (TEST, *shape)
        masks = found["mask"].reshape(TEST, SIDE * SIDE, channels)
        assert (masks == masks[..., :1]).all()


def runs_of(mask: np.ndarray) -> str:
    """Returns Severstal's runs: pixels numbered from 1, column by column."""
    flat = np.concatenate([[0], mask.T.reshape(-1), [0]])
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    return " ".join(f"{a} {b - a}" for a, b in zip(edges[::2], edges[1::2], strict=True))


def steel_mask(number: int, label: int) -> np.ndarray:
    mask = np.zeros(STEEL, np.uint8)
    mask[20 + 10 * label : 90, 50 + 30 * number : 400 + 100 * label] = 1
    return mask


@pytest.fixture(scope="module")
def steel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Severstal's tree: "one" has defects of class 1 alone, "two" of classes 1 and 3."""
    folders = {}
    for name, labels in (("one", [1]), ("two", [1, 3])):
        folder = folders[name] = tmp_path_factory.mktemp(f"steel-{name}")
        (folder / "train_images").mkdir()
        rows = ["ImageId,ClassId,EncodedPixels"]
        for number in range(4):
            image = Image.new("L", STEEL[::-1], 60 + 40 * number)
            ImageDraw.Draw(image).rectangle((100, 20, 900 + 100 * number, 200), fill=200)
            image.save(folder / f"train_images/{number}.jpg", quality=95)
            for label in labels:
                rows.append(f"{number}.jpg,{label},{runs_of(steel_mask(number, label))}")
        (folder / "train.csv").write_text("\n".join(rows) + "\n")
    return folders


def write_steel(folder: Path, *flags: str) -> Path:
    source = folder / "train_images"
    output = folder.parent / f"{folder.name}-{abs(hash(flags))}"
    line = [
        f"--input={source}", f"--annotations={folder}/train.csv", f"--output={output}",
        "--layout=severstal", "--task=segmentation", "--format=unet", "--channels=1",
        "--float_range=zero_centered", "--image_size=256x1600", "--direct_num_workers=1",
    ]  # fmt: skip
    assert main(["images", *line, *flags]) == 0
    return output


def steel_call(path: Path, name: str, **others: Any) -> dict[str, Any]:
    config = "params_severstal.yaml" if name == "SeverstalDataset" else STEEL_CONFIG
    train_input = {
        "dataset_path": str(path), "image_shape": (*STEEL, 1), "train_test_split": 1.0,
        "class_id": 1,
    }  # fmt: skip
    arguments = {"augment_data": False, "shuffle": False, "is_training": True, "rows": 8}
    call = {"dataset": name, "config": config, "train_input": train_input, "model": PLAIN}
    return {**call, **arguments, **others}


STEEL_CONFIG = "params_severstal_tfrecords.yaml"
STEEL_NAME = "SeverstalTFRecordsDataset"


class TestSeverstal:
    def test_the_same_pixels_as_its_raw_reader(
        self, cerebras_unet: Path, foreign: ForeignCalls, steel: dict[str, Path], count: Count
    ) -> None:
        dataset = write_steel(steel["one"])
        raw, ours = foreign.run(
            "cerebras_unet",
            steel_call(steel["one"], "SeverstalDataset"),
            steel_call(dataset, STEEL_NAME),
            checkout=cerebras_unet,
        )
        assert not isinstance(ours, ForeignError), ours
        keys = row_keys(ours, ["mask"])
        count(f"Cerebras {STEEL_NAME}", dataset, keys.index(keys[0], 1), "Severstal, one class")
        masks = row_keys(raw, ["mask"])
        assert sorted(set(keys)) == sorted(set(masks))
        for image, mask in zip(ours["image"], keys, strict=True):
            # TensorFlow's default is libjpeg's less exact transform: some of 255 levels apart at
            # edges. With dct_method="INTEGER_ACCURATE" its pixels are ours.
            apart = np.abs(raw["image"][masks.index(mask)] - image) * 127.5
            assert apart.max() <= 16
            assert apart.mean() < 0.2

    @pytest.mark.parametrize(
        ("flags", "labels"), [("--binary_masks", [1, 3]), ("--mask_class=3", [3])]
    )
    def test_several_classes_become_0_and_1(
        self,
        cerebras_unet: Path,
        foreign: ForeignCalls,
        steel: dict[str, Path],
        flags: str,
        labels: list[int],
    ) -> None:
        dataset = write_steel(steel["two"], flags)
        (ours,) = foreign.run(
            "cerebras_unet", steel_call(dataset, STEEL_NAME), checkout=cerebras_unet
        )
        wanted = [
            np.maximum.reduce([steel_mask(number, label) for label in labels]).reshape(-1)
            for number in range(4)
        ]
        assert sorted(set(row_keys(ours, ["mask"]))) == sorted(
            row_keys({"m": np.array(wanted)}, ["m"])
        )
