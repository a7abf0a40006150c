"""`recordmill images --map`: functions of users' own in a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..pictures import jpeg, png
from .jobs import shard_bytes, unpublished
from .test_image_job import read, run

ROOT = Path(__file__).parents[2]
FUNCTIONS = """
import io
from dataclasses import replace

import numpy as np
import PIL.Image

def keep(image):
    return replace(image)

def cats_twice(image):
    if image.label == "dog":
        return None
    return [image, image]

def raises(image):
    if image.key.endswith("03.jpg"):
        raise ValueError("no third")
    return image

def moved(image):
    return replace(image, split="test") if image.key.endswith("03.jpg") else image

def pixels(image):
    decoded = PIL.Image.open(io.BytesIO(image.data)).convert("L")
    return replace(image, data=np.asarray(decoded), label="grey")

def numbered(image):
    return replace(image, label=1) if image.key.endswith("03.jpg") else image

def drop(image):
    return None

def renamed(image):
    return replace(image, key=f"new/{image.key}")

def boxes_of(image):
    moved = tuple(replace(box, xmax=box.xmax - 1) for box in image.boxes[1:])
    return replace(image, boxes=(image.boxes[0], *moved))

def with_mask(image):
    mask = np.zeros((20, 24), np.uint8)
    mask[:5] = 1
    return replace(image, mask=mask)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 photos of two kinds, and the functions."""
    folder = tmp_path_factory.mktemp("image-map")
    for i in range(12):
        path = folder / "photos" / ("cat", "dog")[i % 2] / f"{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(36 + i, 30, seed=i))
    (folder / "functions.py").write_text(FUNCTIONS)
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path) -> Path:
    assert run(folder / "photos", folder / "plain", "--num_shards=2") == 0
    return folder / "plain"


def counts(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "_meta/manifest.json").read_bytes())["counts"])


def mapped(folder: Path, name: str, function: str, *flags: str, workers: int = 1) -> Path:
    source = folder / "photos"
    given = (f"--map={folder}/functions.py:{function}", *flags)
    assert run(source, folder / name, *given, workers=workers) == 0
    return folder / name


def test_a_function_that_changes_nothing_gives_the_same_shards(folder: Path, plain: Path) -> None:
    output = mapped(folder, "kept", "keep", "--num_shards=2")
    assert shard_bytes(output) == shard_bytes(plain)
    assert (counts(output)["images_added"], counts(output)["dropped"]) == (0, {"map": 0})
    assert "dropped" not in counts(plain)


def test_images_are_dropped_and_doubled(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = mapped(folder, "twice", "cats_twice")
    found = counts(output)
    assert (found["images_listed"], found["images_written"], found["examples"]) == (12, 12, 12)
    assert (found["images_added"], found["dropped"]) == (6, {"map": 6})
    names = [row["image/filename"][0].decode() for row in read_names(output)]
    assert len(set(names)) == 12
    assert sum(name.endswith("#1") for name in names) == 6
    assert "12 written, 6 added and 6 dropped by --map" in capsys.readouterr().out


def read_names(output: Path) -> list[dict[str, Any]]:
    rows = []
    for row in read(output):
        name = next(key for key in row if "name" in key)
        rows.append({"image/filename": [row[name].ravel()[0]]})
    return rows


class TestErrors:
    def test_an_image_is_a_reject(self, folder: Path) -> None:
        output = mapped(folder, "rejected", "raises", "--max_rejected=0.1")
        assert counts(output)["rejected"] == {"map_error": 1}
        (path,) = (output / "_meta/rejected").iterdir()
        detail = json.loads(path.read_bytes())["detail"]
        assert detail.startswith("functions.py:raises: ValueError: no third (functions.py, line ")

    def test_a_function_cannot_move_an_image_to_another_split(self, folder: Path) -> None:
        output = mapped(folder, "moved", "moved", "--max_rejected=0.1")
        assert counts(output)["rejected"] == {"map_error": 1}
        (path,) = (output / "_meta/rejected").iterdir()
        assert "a function changed group or split of an image" in path.read_text()

    def test_a_label_is_a_name(self, folder: Path) -> None:
        output = mapped(folder, "numbered", "numbered", "--max_rejected=0.1")
        assert counts(output)["rejected"] == {"map_error": 1}
        (path,) = (output / "_meta/rejected").iterdir()
        assert "functions.py:numbered returned: Image.label must be the name of" in path.read_text()

    def test_a_function_that_drops_everything(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = f"--map={folder}/functions.py:drop"
        assert run(folder / "photos", folder / "nothing", given) == 1
        error = capsys.readouterr().err
        assert "train has no image that can be used; 12 left out by --map" in error

    def test_or_the_run_stops(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = (f"--map={folder}/functions.py:raises", "--map_errors=fail")
        assert run(folder / "photos", folder / "stopped", *given) == 1
        error = capsys.readouterr().err
        assert "ValueError: no third" in error
        assert "for the image dog/03.jpg" in error
        assert error.count("\n") == 1


def test_pixels_and_labels_of_a_function(folder: Path) -> None:
    (folder / "grey.txt").write_text("grey\n")
    flags = (f"--labels={folder}/grey.txt", "--format=raw", "--channels=1", "--image_size=8x8")
    output = mapped(folder, "pixels", "pixels", *flags)
    assert counts(output)["examples"] == 12
    assert (output / "labels.txt").read_text() == "grey\n"


def test_a_killed_run_is_finished_with_equal_bytes_on_two_workers(folder: Path) -> None:
    flags = ("--num_shards=2", "--augmentations=flip", "--copies=2", "--statistics=none")
    whole = mapped(folder, "whole", "cats_twice", *flags)
    given = (f"--map={folder}/functions.py:cats_twice", *flags)
    with unpublished():
        assert run(folder / "photos", folder / "killed", *given) == 1
    again = mapped(folder, "killed", "cats_twice", *flags, workers=2)
    assert shard_bytes(again) == shard_bytes(whole)
    assert counts(again) == counts(whole)
    assert counts(again)["dropped"] == {"map": 6}


def test_another_key_is_another_name_and_other_draws(folder: Path) -> None:
    flags = ("--augmentations=rotate(20)", "--image_size=16x16")
    one, other = mapped(folder, "k1", "keep", *flags), mapped(folder, "k2", "renamed", *flags)
    assert shard_bytes(one) != shard_bytes(other)
    assert all(row["image/filename"][0].startswith(b"new/") for row in read_names(other))


def coco(folder: Path) -> tuple[str, ...]:
    (folder / "coco").mkdir(exist_ok=True)
    images, notes = [], []
    for i in range(3):
        (folder / f"coco/{i}.jpg").write_bytes(jpeg(24, 20, seed=i))
        images.append({"id": i, "file_name": f"{i}.jpg"})
        for x in (2, 6):
            notes.append({
                "image_id": i, "category_id": 1, "bbox": [x, 3, 12, 9], "iscrowd": 0,
                "segmentation": [[x, 3, x + 12, 3, x + 12, 12, x, 12]],
            })  # fmt: skip
    content = {"images": images, "annotations": notes, "categories": [{"id": 1, "name": "cat"}]}
    (folder / "coco.json").write_text(json.dumps(content))
    return (f"--annotations={folder}/coco.json", "--task=detection", "--include_masks")


def test_boxes_keep_their_pixels(folder: Path) -> None:
    flags = coco(folder)
    source = folder / "coco"
    assert run(source, folder / "c0", *flags) == 0
    given = f"--map={folder}/functions.py:"
    assert run(source, folder / "c1", *flags, f"{given}keep") == 0
    assert shard_bytes(folder / "c0") == shard_bytes(folder / "c1")
    assert run(source, folder / "c2", *flags, f"{given}boxes_of") == 0
    row = read(folder / "c2")[0]
    sides = row["image/object/bbox/xmax"].ravel() * 24
    assert np.allclose(sides, [14, 17])


def test_masks_that_the_input_does_not_have(folder: Path) -> None:
    (folder / "bare").mkdir()
    for i in range(3):
        (folder / f"bare/{i}.png").write_bytes(png(24, 20, seed=i))
    (folder / "classes.txt").write_text("scratch\n")
    flags = ("--task=segmentation", "--format=raw", f"--labels={folder}/classes.txt")
    given = f"--map={folder}/functions.py:with_mask"
    assert run(folder / "bare", folder / "masks", *flags, given) == 0
    for row in read(folder / "masks"):
        mask = np.frombuffer(row["mask"][0], np.uint8).reshape(20, 24)
        assert mask[:5].all()
        assert not mask[5:].any()


def test_the_example_reads_boxes_of_a_format_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards = tmp_path / "PCBData/group00041"
    for inner in ("00041", "00041_not"):
        (boards / inner).mkdir(parents=True)
    for i in range(3):
        for kind in ("test", "temp"):
            (boards / f"00041/0004100{i}_{kind}.jpg").write_bytes(jpeg(64, 64, seed=i))
        (boards / f"00041_not/0004100{i}.txt").write_text(f"8 8 {20 + i} 24 {i + 1}\n")
    names = "open short mousebite spur copper pin-hole".split()
    (tmp_path / "defects.txt").write_text("\n".join(names) + "\n")
    monkeypatch.setenv("DEEP_PCB", str(tmp_path / "PCBData"))
    flags = (
        "--task=detection", "--layout=flat", f"--labels={tmp_path}/defects.txt",
        f"--map={ROOT}/examples/deep_pcb.py:add_boxes",
    )  # fmt: skip
    assert run(tmp_path / "PCBData", tmp_path / "ds", *flags) == 0
    assert counts(tmp_path / "ds")["dropped"] == {"map": 3}
    rows = read(tmp_path / "ds")
    found = sorted(round(float(row["image/object/bbox/xmax"].ravel()[0]) * 64) for row in rows)
    assert found == [20, 21, 22]


@pytest.mark.slow
def test_statistics_are_those_of_the_mapped_images(folder: Path) -> None:
    flags = ("--image_size=16x16", "--statistics=full")
    output = mapped(folder, "statistics", "cats_twice", *flags)
    statistics = json.loads((output / "_meta/statistics.json").read_bytes())["train"]
    assert statistics["channel_images"] == 12
