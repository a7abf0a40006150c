"""Foreign readers over real photos; without the data beside the checkout these tests skip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.pipelines.command_line import main

from .conftest import Count, ForeignCalls, ForeignError
from .rows import row_keys
from .test_cerebras_unet import (
    NAME,
    PLAIN,
    STEEL,
    STEEL_NAME,
    dagm_call,
    steel_call,
    write_steel,
)
from .test_model_garden import vision
from .test_object_detection import READER as DETECTION
from .test_object_detection import shards
from .test_tfds import READER as TFDS

pytestmark = pytest.mark.real

SIDE = 128
RACCOONS, TILES, STEEL_IMAGES = 200, 150, 32
Write = Callable[..., Path]


@pytest.fixture(scope="session")
def images(real_data: Path) -> Path:
    return real_data / "images"


@pytest.fixture(scope="session")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    folder = tmp_path_factory.mktemp("real")

    def run(name: str, source: Path | str, *flags: str) -> Path:
        place = (f"--input={source}", f"--output={folder / name}", "--direct_num_workers=1")
        if not (folder / name).exists():
            assert main(["images", *place, "--num_shards=2", *flags]) == 0
        return folder / name

    return run


def one(answers: list[Any]) -> dict[str, Any]:
    (found,) = answers
    assert not isinstance(found, ForeignError), found
    return dict(found)


def test_raccoons_by_the_object_detection_api(
    object_detection: Path, foreign: ForeignCalls, images: Path, write: Write, count: Count
) -> None:
    flags = ("--task=detection", f"--image_size={SIDE}")
    dataset = write("raccoons", images / "raccoon", *flags)
    call = {"files": shards(dataset)}
    found = one(foreign.run("detection_api", call, checkout=object_detection))
    count(DETECTION, dataset, len(found["image"]), "raccoons (VOC)")
    assert len(found["image"]) == RACCOONS
    boxes = found["groundtruth_boxes"].reshape(-1, 4)
    assert np.count_nonzero(boxes.any(axis=1)) == 217


def test_raccoons_by_model_garden(
    foreign: ForeignCalls, images: Path, write: Write, count: Count
) -> None:
    flags = ("--task=detection", f"--image_size={SIDE}", "--format=model_garden")
    dataset = write("garden", images / "raccoon", *flags)
    call = vision(dataset, "retinanet_input", parser={"output_size": (SIDE, SIDE)})
    found = one(foreign.run("model_garden", call))
    count("Model Garden RetinaNet parser", dataset, len(found["0"]), "raccoons (VOC)")
    assert found["1/groundtruths/num_detections"].sum() == 217


def test_raccoons_and_tiles_by_tfds(
    foreign: ForeignCalls, images: Path, write: Write, count: Count
) -> None:
    tiles, size = f"{images}/magnetic_tile/*/Imgs", f"--image_size={SIDE}"
    masks = (f"--masks={tiles}/*.png", "--binary_masks")
    datasets = {
        "raccoons (VOC)": write(
            "tfds", images / "raccoon", "--task=detection", "--format=tfds", size
        ),
        "tiles, classes": write("tiles", f"{tiles}/*.jpg", "--task=classification", size),
        "tiles, masks": write("masks", f"{tiles}/*.jpg", "--task=segmentation", *masks, size),
    }
    calls = [{"folder": str(dataset), "split": "train"} for dataset in datasets.values()]
    found = dict(zip(datasets, foreign.run("tfds_reader", *calls), strict=True))
    for label, rows in found.items():
        assert not isinstance(rows, ForeignError), rows
        count(TFDS, datasets[label], len(rows["image"]), label)
    assert [len(rows["image"]) for rows in found.values()] == [RACCOONS, TILES, TILES]
    assert np.bincount(found["tiles, classes"]["label"]).tolist() == [25] * 6
    assert set(np.unique(found["tiles, masks"]["segmentation_mask"])) == {0, 1}


def draw_dagm(tiles: Path, folder: Path) -> None:
    """Writes tiles as Class1 of DAGM 2007, with six fields in Labels.txt: 8 in each split."""
    bad, good = (sorted((tiles / name / "Imgs").glob("*.jpg")) for name in ("MT_Break", "MT_Free"))
    for split, part in (("Train", slice(0, 4)), ("Test", slice(4, 8))):
        paths = bad[part] + good[part]
        place = folder / "Class1" / split
        (place / "Label").mkdir(parents=True)
        rows = ["1\t0\t0\t0\t0"]
        for number, path in enumerate(paths, 1):
            Image.open(path).convert("L").resize((SIDE, SIDE)).save(place / f"{number:04d}.PNG")
            name = "0"
            if number <= 4:
                name = f"{number:04d}_label.PNG"
                mask = Image.open(path.with_suffix(".png")).convert("L").resize((SIDE, SIDE))
                mask.point([0] * 128 + [255] * 128).save(place / "Label" / name)
            rows.append(f"{number}\t{int(number <= 4)}\t{number:04d}.PNG\t0\t{name}\t")
        (place / "Label/Labels.txt").write_text("\n".join(rows) + "\n")


def test_tiles_in_the_layout_of_dagm_by_cerebras(
    cerebras_unet: Path, foreign: ForeignCalls, images: Path, tmp_path: Path, count: Count,
    write: Write,
) -> None:  # fmt: skip
    draw_dagm(images / "magnetic_tile", tmp_path / "dagm")
    flags = ("--task=segmentation", "--format=unet", f"--image_size={SIDE}")
    dataset = write("dagm", tmp_path / "dagm", *flags, "--float_range=zero_centered")
    arguments: dict[str, Any] = {
        "augment_data": False, "shuffle": False, "model": PLAIN, "rows": 16,
    }  # fmt: skip
    for split in ("train", "test"):
        how = {**arguments, "is_training": split == "train"}
        raw, ours = foreign.run(
            "cerebras_unet",
            dagm_call(tmp_path / "dagm", "DAGM2007Dataset", (SIDE, SIDE, 1), **how),
            dagm_call(dataset, NAME, (SIDE, SIDE, 1), **how),
            checkout=cerebras_unet,
        )
        assert not isinstance(ours, ForeignError), ours
        keys = row_keys(ours, ["image", "mask"])
        period = keys.index(keys[0], 1) if split == "train" else len(keys)
        count(f"Cerebras {NAME}", dataset, period, "tiles as DAGM, 6 fields", split)
        assert set(keys) == set(row_keys(raw, ["image", "mask"]))


@pytest.mark.parametrize("flag", ["--mask_class=3", "--binary_masks"])
def test_steel_by_cerebras(
    cerebras_unet: Path, foreign: ForeignCalls, images: Path, tmp_path: Path, count: Count,
    flag: str,
) -> None:  # fmt: skip
    (tmp_path / "steel").symlink_to(images / "derived_severstal_layout")
    dataset = write_steel(tmp_path / "steel", flag)
    call = steel_call(dataset, STEEL_NAME, rows=STEEL_IMAGES + 1)
    ours = one(foreign.run("cerebras_unet", call, checkout=cerebras_unet))
    keys = row_keys(ours, ["image"])
    count(f"Cerebras {STEEL_NAME}", dataset, keys.index(keys[0], 1), f"steel, {flag}")
    marked = ours["mask"][:STEEL_IMAGES].any(axis=1).sum()
    assert marked == {"--mask_class=3": 8, "--binary_masks": 32}[flag]
    assert ours["image"].shape[1:3] == STEEL
