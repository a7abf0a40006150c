"""Segmentation jobs as a user runs them: what masks mean, and masks that mean nothing yet."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import recordmill.reader as reader
from recordmill.pipelines.command_line import main

from ..pictures import drawn, encoded, jpeg, png
from .jobs import manifest, records_by_split, shard_bytes
from .test_image_job import read

SIZE = (24, 32)  # height, width
Run = Any


def run(source: Path | str, output: Path, *flags: str) -> int:
    place = (f"--input={source}", f"--output={output}", "--direct_num_workers=1")
    return main(["images", *place, "--task=segmentation", *flags])


def masks(output: Path, split: str = "train") -> list[np.ndarray]:
    rows = reader.load(output, split, batch_size=1, shuffle=False).as_numpy_iterator()
    return [np.asarray(Image.open(io.BytesIO(row["segmentation_mask"][0]))) for row in rows]


def values(output: Path, split: str = "train") -> set[int]:
    return {int(value) for mask in masks(output, split) for value in np.unique(mask)}


def statistics(output: Path, split: str = "train") -> dict[str, Any]:
    content = json.loads((output / "_meta/statistics.json").read_text())
    return dict(content[split])


def pairs(folder: Path, *levels: int, form: str = "png", count: int = 6) -> Path:
    """Images, and masks of vertical stripes of these values."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True)
    stripes = np.repeat(np.array(levels, np.uint8), -(-SIZE[1] // len(levels)))[: SIZE[1]]
    mask = Image.fromarray(np.tile(stripes, (SIZE[0], 1)))
    for i in range(count):
        (folder / f"images/{i}.png").write_bytes(png(SIZE[1], SIZE[0], seed=i))
        data = encoded(mask, "PNG") if form == "png" else encoded(mask, "JPEG", quality=75)
        (folder / f"masks/{i}.{form}").write_bytes(data)
    return folder


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def check(source: Path | str, *flags: str) -> str:
        capsys.readouterr()  # what an earlier job said
        assert run(source, tmp_path / "refused", *flags) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1, error
        assert not (tmp_path / "refused").exists()
        return error

    return check


class TestValuesThatAreNoClasses:
    @pytest.mark.slow
    def test_black_and_white(self, tmp_path: Path, refused: Run) -> None:
        source = pairs(tmp_path / "in", 0, 255)
        message = refused(source)
        assert "6 masks of a sample hold 0, 255: give --binary_masks" in message
        assert "--mask_values=keep if it is no class" in message
        assert run(source, tmp_path / "kept", "--mask_values=keep") == 0
        assert values(tmp_path / "kept") == {0, 255}
        assert statistics(tmp_path / "kept")["class_pixels"]["no_class"] == 6 * 24 * 16
        for number, flag in enumerate(
            ("--binary_masks", "--mask_threshold=200", "--mask_values=0:0,255:1")
        ):
            assert run(source, tmp_path / f"{number}", flag) == 0
            assert values(tmp_path / f"{number}") == {0, 1}
            assert (tmp_path / f"{number}/labels.txt").read_text() == "background\nforeground\n"

    @pytest.mark.slow
    def test_noise_of_jpeg(self, tmp_path: Path, refused: Run) -> None:
        source = pairs(tmp_path / "in", 0, 255, 0, form="jpg")
        assert "because JPEG changes values: give --binary_masks" in refused(source)
        assert run(source, tmp_path / "low", "--mask_threshold=2") == 0
        assert run(source, tmp_path / "high", "--mask_threshold=252") == 0
        assert values(tmp_path / "low") == values(tmp_path / "high") == {0, 1}
        low, high = (np.mean(masks(tmp_path / name)) for name in ("low", "high"))
        assert low > high

    def test_grey_levels(self, tmp_path: Path, refused: Run) -> None:
        source = pairs(tmp_path / "in", 0, 128, 255)
        assert "look like grey levels" in refused(source)
        assert "--mask_values=0:0,128:1,255:2" in refused(source)
        assert run(source, tmp_path / "ds", "--mask_values=0:0,128:1,255:2") == 0
        assert values(tmp_path / "ds") == {0, 1, 2}
        assert (tmp_path / "ds/labels.txt").read_text() == "background\nclass_1\nclass_2\n"
        message = refused(source, "--mask_values=0:0,128:1")
        assert "--mask_values must name all values of the masks, got none for 255" in message

    def test_smoothed_edges(self, tmp_path: Path, refused: Run) -> None:
        source = pairs(tmp_path / "in", *range(0, 256, 8))
        assert "masks must hold classes" in refused(source)

    def test_a_threshold_that_all_values_are_below(self, tmp_path: Path, refused: Run) -> None:
        source = pairs(tmp_path / "in", 0, 1)
        assert "--binary_masks makes values above 127 class 1" in refused(source, "--binary_masks")
        assert run(source, tmp_path / "ds", "--mask_threshold=0") == 0
        assert values(tmp_path / "ds") == {0, 1}

    def test_more_classes_than_labels(self, tmp_path: Path, refused: Run) -> None:
        source = pairs(tmp_path / "in", 0, 1, 2, 3)
        (tmp_path / "labels.txt").write_text("one\ntwo\n")
        labels = f"--labels={tmp_path}/labels.txt"
        assert "masks must hold classes up to 2, the last of --labels" in refused(source, labels)

    @pytest.mark.parametrize("levels", [(0, 1), (0, 1, 2, 255), (0, 20, 5, 7), tuple(range(32))])
    def test_classes_are_not_refused(self, tmp_path: Path, levels: tuple[int, ...]) -> None:
        assert run(pairs(tmp_path / "in", *levels), tmp_path / "ds") == 0
        assert values(tmp_path / "ds") == set(levels)
        found = statistics(tmp_path / "ds")
        assert sum(found["class_pixels"].values()) == 6 * SIZE[0] * SIZE[1]
        assert found["classes"]["background"] == 6
        last = max(level for level in levels if level != 255)
        assert len((tmp_path / "ds/labels.txt").read_text().splitlines()) == last + 1

    def test_one_odd_mask_is_a_reject(self, tmp_path: Path) -> None:
        source = pairs(tmp_path / "in", 0, 1)
        (tmp_path / "labels.txt").write_text("one\n")
        odd = Image.fromarray(np.full(SIZE, 7, np.uint8))
        (source / "masks/3.png").write_bytes(encoded(odd, "PNG"))
        flags = (f"--labels={tmp_path}/labels.txt", "--max_rejected=0.5")
        assert run(source, tmp_path / "ds", *flags) == 0
        assert manifest(tmp_path / "ds")["counts"]["rejected"] == {"mask_classes": 1}

    def test_masks_without_any_object_are_counted(self, tmp_path: Path) -> None:
        source = pairs(tmp_path / "in", 0, 1)
        empty = Image.fromarray(np.zeros(SIZE, np.uint8))
        (source / "masks/3.png").write_bytes(encoded(empty, "PNG"))
        assert run(source, tmp_path / "ds") == 0
        assert statistics(tmp_path / "ds")["masks_without_object"] == 1
        assert statistics(tmp_path / "ds")["classes"] == {"background": 6, "class_1": 5}

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (("--binary_masks", "--mask_threshold=3"), "give one of --binary_masks and --mask_thr"),
            (("--mask_threshold=255",), "--mask_threshold must be from 0 to 254, got 255"),
            (("--mask_values=0-1",), "--mask_values must be like 0:0,255:1, or keep, got '0-1'"),
            (("--mask_values=0:0,0:1",), "--mask_values must name each value once, got 0 twice"),
            (("--mask_values=0:0,300:1",), "--mask_values must be from 0 to 255, got 300"),
            (("--mask_class=1",), "--mask_class=1 needs regions with classes"),
        ],
    )
    def test_mistakes(
        self, tmp_path: Path, refused: Run, flags: tuple[str, ...], message: str
    ) -> None:
        assert message in refused(pairs(tmp_path / "in", 0, 1), *flags)


def dagm(folder: Path, *, fields: int = 5, form: str = "PNG") -> Path:
    """Class1 with four images in Train and two in Test; every second has a defect."""
    for split, count in (("Train", 4), ("Test", 2)):
        place = folder / "Class1" / split
        (place / "Label").mkdir(parents=True)
        rows = ["1\t0\t0\t0\t0"]
        for number in range(1, count + 1):
            defect = number % 2
            name, mask = f"{number:04d}.PNG", f"{number:04d}_label.{form}" if defect else "0"
            (place / name).write_bytes(encoded(drawn(32, 24, number).convert("L"), "PNG"))
            if defect:
                pixels = np.zeros(SIZE, np.uint8)
                pixels[5:9, 3:14] = 255
                data = encoded(Image.fromarray(pixels), "PNG" if form == "PNG" else "JPEG")
                (place / "Label" / mask).write_bytes(data)
            rows.append(f"{number}\t{defect}\t{name}\t0\t{mask}" + "\t" * (fields - 5))
        (place / "Label/Labels.txt").write_text("\n".join(rows) + "\n")
    return folder


class TestDagm:
    @pytest.mark.parametrize("fields", [5, 6, 7])
    def test_masks_are_of_two_classes(self, tmp_path: Path, fields: int) -> None:
        source = dagm(tmp_path / "in", fields=fields)
        assert run(source, tmp_path / "ds") == 0
        assert records_by_split(tmp_path / "ds") == {"train": 4, "test": 2}
        assert manifest(tmp_path / "ds")["counts"]["rejected"] == {}
        assert values(tmp_path / "ds") == {0, 1}
        assert sum(int(mask.sum()) for mask in masks(tmp_path / "ds")) == 2 * 44
        assert (tmp_path / "ds/labels.txt").read_text() == "background\nforeground\n"
        assert statistics(tmp_path / "ds")["class_pixels"]["foreground"] == 88

    def test_masks_with_noise(self, tmp_path: Path, refused: Run) -> None:
        source = dagm(tmp_path / "in", form="jpg")
        message = refused(source)
        assert "masks of --layout=dagm must hold 0 and 255 (or 1)" in message
        assert "--binary_masks" in message
        assert "--mask_threshold=N" in message
        assert run(source, tmp_path / "ds", "--binary_masks") == 0
        assert sum(int(mask.sum()) for mask in masks(tmp_path / "ds")) == 2 * 44

    def test_only_defective(self, tmp_path: Path, refused: Run) -> None:
        source = dagm(tmp_path / "in")
        assert run(source, tmp_path / "ds", "--only_defective") == 0
        assert records_by_split(tmp_path / "ds") == {"train": 2, "test": 1}
        counts = manifest(tmp_path / "ds")["counts"]
        assert counts["files_passed_over"]["not_defective"] == 3
        assert all(mask.any() for mask in masks(tmp_path / "ds"))
        other = pairs(tmp_path / "pairs", 0, 1)
        message = refused(other, "--only_defective")
        assert "--only_defective has no effect with --layout=pairs" in message

    def test_a_sixth_field_may_have_content(self, tmp_path: Path) -> None:
        assert run(dagm(tmp_path / "five"), tmp_path / "ds") == 0
        source = dagm(tmp_path / "six", fields=6)
        table = source / "Class1/Train/Label/Labels.txt"
        table.write_text(table.read_text().replace("0002.PNG\t0\t0\t", "0002.PNG\t0\t0\tmore"))
        assert run(source, tmp_path / "same") == 0
        assert shard_bytes(tmp_path / "same") == shard_bytes(tmp_path / "ds")


@pytest.fixture
def steel(tmp_path: Path) -> Path:
    """Severstal's layout: an image with two classes, one with one, one without a defect."""
    folder = tmp_path / "steel"
    (folder / "train_images").mkdir(parents=True)
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (folder / "train_images" / name).write_bytes(jpeg(32, 24, seed=ord(name[0])))
    rows = ["ImageId,ClassId,EncodedPixels", "a.jpg,1,1 10", "a.jpg,3,25 20", "b.jpg,3,49 5"]
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    return folder


class TestSeverstal:
    def counts(self, output: Path) -> list[list[int]]:
        return sorted(np.bincount(mask.ravel(), minlength=4).tolist()[1:] for mask in masks(output))

    def test_classes(self, steel: Path, tmp_path: Path) -> None:
        assert run(steel, tmp_path / "ds", "--labels=from_field") == 2
        assert run(steel, tmp_path / "ds") == 0
        assert self.counts(tmp_path / "ds") == [[0, 0, 0], [0, 5, 0], [10, 20, 0]]
        assert (tmp_path / "ds/labels.txt").read_text() == "background\n1\n3\n"

    def test_any_class(self, steel: Path, tmp_path: Path) -> None:
        assert run(steel, tmp_path / "ds", "--binary_masks") == 0
        assert self.counts(tmp_path / "ds") == [[0, 0, 0], [5, 0, 0], [30, 0, 0]]
        assert (tmp_path / "ds/labels.txt").read_text() == "background\nforeground\n"

    def test_one_class_against_the_rest(self, steel: Path, tmp_path: Path, refused: Run) -> None:
        assert run(steel, tmp_path / "three", "--mask_class=3") == 0
        assert self.counts(tmp_path / "three") == [[0, 0, 0], [5, 0, 0], [20, 0, 0]]
        assert (tmp_path / "three/labels.txt").read_text() == "background\n3\n"
        assert run(steel, tmp_path / "one", "--mask_class=1") == 0
        assert self.counts(tmp_path / "one") == [[0, 0, 0], [0, 0, 0], [10, 0, 0]]
        message = refused(steel, "--mask_class=2")
        assert "--mask_class must be one of 1, 3, the classes of the input, got '2'" in message

    @pytest.mark.parametrize(
        "flag", ["--mask_threshold=5", "--mask_values=0:0,1:1", "--mask_values=keep"]
    )
    def test_flags_of_mask_images(self, steel: Path, refused: Run, flag: str) -> None:
        message = refused(steel, flag)
        assert f"{flag.partition('=')[0]} is for mask images" in message


class TestInputsWithoutMasks:
    def test_coco(self, tmp_path: Path, refused: Run) -> None:
        (tmp_path / "images").mkdir()
        (tmp_path / "images/a.jpg").write_bytes(jpeg(32, 24))
        note = {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}
        content = {
            "images": [{"id": 1, "file_name": "a.jpg"}],
            "categories": [{"id": 1, "name": "cat"}], "annotations": [note],
        }  # fmt: skip
        (tmp_path / "notes.json").write_text(json.dumps(content))
        message = refused(f"{tmp_path}/images", f"--annotations={tmp_path}/notes.json")
        assert (
            "--task=segmentation needs masks, and this input of --layout=coco has none" in message
        )
        assert "--masks=GLOB" in message

    def test_voc(self, tmp_path: Path, refused: Run) -> None:
        for folder in ("in/JPEGImages", "in/Annotations"):
            (tmp_path / folder).mkdir(parents=True)
        (tmp_path / "in/JPEGImages/a.jpg").write_bytes(jpeg(32, 24))
        (tmp_path / "in/Annotations/a.xml").write_text("<annotation></annotation>")
        message = refused(tmp_path / "in")
        assert "--task=segmentation needs masks, and this input of --layout=voc has none" in message

    def test_voc_with_boxes_beside_an_image_without_object(
        self, tmp_path: Path, refused: Run
    ) -> None:
        message = refused(draw_voc(tmp_path / "in", {"a": voc_object("cat"), "b": ""}))
        assert "--task=segmentation needs masks, and this input of --layout=voc has none" in message

    def test_a_table(self, tmp_path: Path, refused: Run) -> None:
        (tmp_path / "a.jpg").write_bytes(jpeg(32, 24))
        (tmp_path / "t.csv").write_text("path,label\na.jpg,cat\n")
        message = refused(tmp_path / "t.csv")
        assert "--task=segmentation needs masks, and this input of --layout=table" in message


CORNERS = ((4, 4), (20, 4), (20, 12), (4, 12))


def voc_object(name: str, corners: Sequence[tuple[int, int]] = ()) -> str:
    sides = (("xmin", 4), ("ymin", 4), ("xmax", 20), ("ymax", 12))
    box = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    polygon = "".join(f"<x{i}>{x}</x{i}><y{i}>{y}</y{i}>" for i, (x, y) in enumerate(corners, 1))
    polygon = f"<polygon>{polygon}</polygon>" if corners else ""
    return f"<object><name>{name}</name><bndbox>{box}</bndbox>{polygon}</object>"


def draw_voc(folder: Path, objects: dict[str, str]) -> Path:
    for inner in ("JPEGImages", "Annotations"):
        (folder / inner).mkdir(parents=True)
    for name, inside in objects.items():
        (folder / f"JPEGImages/{name}.jpg").write_bytes(jpeg(32, 24))
        (folder / f"Annotations/{name}.xml").write_text(f"<annotation>{inside}</annotation>")
    return folder


class TestPolygonsOfVoc:
    """An image without object is background; one whose objects have boxes alone is rejected."""

    def test_an_image_without_object_is_background(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        objects = {"a": voc_object("cat", CORNERS), "b": "", "c": voc_object("dog")}
        source = draw_voc(tmp_path / "in", objects)
        flags = ("--format=raw", "--num_shards=1", "--max_rejected=0.5")
        assert run(source, tmp_path / "ds", *flags) == 0
        found = [np.frombuffer(row["mask"][0], np.uint8) for row in read(tmp_path / "ds")]
        empty, mask = sorted(found, key=np.count_nonzero)
        expected = np.zeros((24, 32), np.uint8)
        expected[4:12, 4:20] = 1
        np.testing.assert_array_equal(mask.reshape(24, 32), expected)
        assert not empty.any()
        assert "rejected: no_mask 1" in capsys.readouterr().out
        assert (tmp_path / "ds/labels.txt").read_text() == "background\ncat\n"

    def test_mask_images_of_the_others(self, tmp_path: Path) -> None:
        source = draw_voc(tmp_path / "in", {"a": voc_object("cat"), "b": ""})
        (tmp_path / "masks").mkdir()
        Image.new("L", (32, 24), 1).save(tmp_path / "masks/a.png")
        flags = (f"--masks={tmp_path}/masks/*.png", f"--annotations={source}/Annotations")
        assert run(source / "JPEGImages", tmp_path / "ds", *flags, "--format=raw") == 0
        assert sorted(sum(row["mask"][0]) for row in read(tmp_path / "ds")) == [0, 24 * 32]
