"""YOLO's text files, in the trees in which its datasets come."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Listing
from recordmill.transforms.images.listing.list_images import SourceSpec, detect_layout, label_names
from recordmill.transforms.images.listing.yolo import parse_yolo
from recordmill.transforms.images.references import ImageObject

from ..image_trees import fill, listed


def text(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        ("images/{}/{}.jpg", "labels/{}/{}.txt"),
        ("{}/images/{}.jpg", "{}/labels/{}.txt"),
        ("data/images/{}/{}.jpg", "data/labels/{}/{}.txt"),
    ],
)
def test_trees_with_splits(tmp_path: Path, images: str, labels: str):
    for split, name in (("train", "a"), ("val", "b")):
        fill(tmp_path, images.format(split, name))
        text(tmp_path / labels.format(split, name), "1 0.5 0.5 0.2 0.4")
    fill(tmp_path, images.format("train", "empty"))
    base = tmp_path / images.partition("/")[0] if images.startswith("data") else tmp_path
    text(base / "data.yaml", "train: ../x", "nc: 2", "names: ['cat', 'dog']")
    listing = Listing()
    found, rejects = listed(str(tmp_path), listing=listing)
    assert not rejects
    by_stem = {name.rpartition("/")[2]: image for name, image in found.items()}
    dog = ImageObject("dog", pytest.approx((0.4, 0.3, 0.6, 0.7)), is_fraction=True)
    assert {n: (i.split, i.objects) for n, i in by_stem.items()} == {
        "a.jpg": ("train", (dog,)), "b.jpg": ("validation", (dog,)), "empty.jpg": ("train", ()),
    }  # fmt: skip
    assert listing.filtered["no_image_extension"] == 1  # data.yaml
    assert label_names(SourceSpec((str(tmp_path),)), {"dog"}) == ["cat", "dog"]


def test_masks_with_a_text_are_no_yolo(tmp_path: Path):
    fill(tmp_path, "images/a.jpg", "labels/a.png", "labels/README.txt")
    assert detect_layout(SourceSpec((str(tmp_path),))).layout == "pairs"


def test_without_splits_and_names(tmp_path: Path):
    fill(tmp_path, "images/a.jpg")
    text(tmp_path / "labels/a.txt", "7 0.5 0.5 1 1", "")
    assert detect_layout(SourceSpec((str(tmp_path),))).layout == "yolo"
    [image] = listed(str(tmp_path))[0].values()
    assert (image.split, image.labels) == ("", ("7",))


@pytest.mark.parametrize(
    "content",
    [
        "names: [cat, dog]", 'names: ["cat", "dog"]', "names:\n- cat\n- dog\nnc: 2",
        "names:\n  0: cat  # the first\n  1: 'dog'\nroboflow:\n  x: 1", "names: ['cat',\n  'dog']",
    ],
)  # fmt: skip
def test_names_in_yaml(tmp_path: Path, content: str):
    fill(tmp_path, "images/a.jpg")
    text(tmp_path / "labels/a.txt", "1 0.5 0.5 1 1")
    text(tmp_path / "data.yaml", content)
    assert label_names(SourceSpec((str(tmp_path),)), {"dog"}) == ["cat", "dog"]


def test_names_that_cannot_be_read(tmp_path: Path):
    fill(tmp_path, "images/a.jpg")
    text(tmp_path / "labels/a.txt", "1 0.5 0.5 1 1")
    for content in ("nc: 2", "names: {0: cat}", "names:\n  1: cat", "names: [a, a]"):
        text(tmp_path / "data.yaml", content)
        with pytest.raises(UsageError, match=r"data\.yaml must have `names:` as a list"):
            listed(str(tmp_path))


def test_lines():
    assert parse_yolo("0 0.5 0.5 0.5 0.25\n", ["cat"])[0].box == (0.25, 0.375, 0.75, 0.625)
    assert parse_yolo("0 0.1 0.2 0.5 0.2 0.3 0.9", [])[0].box == (0.1, 0.2, 0.5, 0.9)
    for line, message in (
        ("1 0.5 0.5 1 1", "the class is 1, of 1 classes"),
        ("cat 0.5 0.5 1 1", "the class is cat"),
        ("0 0.5 0.5 1 1 0.9", "a line has 6 fields; class cx cy w h are 5"),
        ("0 x 0.5 1 1", "could not convert"),
        ("0 nan 0.5 1 1", "not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_yolo(line, ["cat"])


def test_what_does_not_fit(tmp_path: Path):
    fill(tmp_path, "images/a.jpg", "images/b.jpg")
    text(tmp_path / "labels/a.txt", "0 1")
    text(tmp_path / "labels/z.txt", "0 0.5 0.5 1 1")
    text(tmp_path / "labels/classes.txt", "cat")
    images, rejects = listed(str(tmp_path))
    assert list(images) == ["images/b.jpg"]
    assert rejects == [("images/a.jpg", "bad_row"), ("labels/z.txt", "no_image")]
    fill(tmp_path / "none", "images/a.jpg")
    with pytest.raises(UsageError, match="--layout=yolo needs folders called labels"):
        listed(f"{tmp_path}/none", layout="yolo")


def test_an_image_of_too_many_objects_is_a_reject(tmp_path: Path) -> None:
    for number, count in enumerate((3, 4)):
        for folder in ("images", "labels"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / f"images/{number}.png").write_bytes(b"x")
        (tmp_path / f"labels/{number}.txt").write_text("0 0.5 0.5 0.2 0.2\n" * count)
    found, rejects = listed(str(tmp_path), layout="yolo", max_objects=3)
    assert list(found) == ["images/0.png"]
    assert rejects == [("images/1.png", "too_many_objects")]
    with pytest.raises(UsageError, match="max_objects must be at least 1, got 0"):
        SourceSpec((str(tmp_path),), max_objects=0)
