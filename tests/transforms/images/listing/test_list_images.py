from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import split_name
from recordmill.transforms.images.listing.list_images import (
    SourceSpec,
    detect_layout,
    label_names,
    list_images,
)

from ..image_trees import fill, listed


def labels_of(images):
    return {name: image.labels for name, image in images.items()}


class TestFolders:
    def test_the_first_folder_below_the_root_is_the_label(self, tmp_path: Path):
        fill(tmp_path, "cat/a.jpg", "dog/b.png", "dog/deep/c.jpg", "d.jpg")
        images, rejects = listed(str(tmp_path))
        assert labels_of(images) == {
            "cat/a.jpg": ("cat",), "dog/b.png": ("dog",), "dog/deep/c.jpg": ("dog",),
        }  # fmt: skip
        assert rejects == [("d.jpg", "no_label")]

    def test_another_folder_can_be_it(self, tmp_path: Path):
        fill(tmp_path, "x/cat/a.jpg", "x/deep/dog/b.jpg", "c.jpg")
        images, rejects = listed(str(tmp_path), label_folder=-1)
        assert labels_of(images) == {"x/cat/a.jpg": ("cat",), "x/deep/dog/b.jpg": ("dog",)}
        assert rejects == [("c.jpg", "no_label")]
        images, _ = listed(str(tmp_path), label_folder=2)
        assert labels_of(images) == {"x/cat/a.jpg": ("cat",), "x/deep/dog/b.jpg": ("deep",)}

    def test_splits_and_groups_by_folder(self, tmp_path: Path):
        fill(tmp_path, "Train/cat/a.jpg", "val/cat/b.jpg", "val/c.jpg", "d.jpg")
        images, rejects = listed(str(tmp_path), split_from="folder", split_by="folder")
        found = {n: (i.labels, i.split, i.group) for n, i in images.items()}
        assert found == {
            "Train/cat/a.jpg": (("cat",), "train", "Train/cat"),
            "val/cat/b.jpg": (("cat",), "validation", "val/cat"),
        }
        assert rejects == [("d.jpg", "no_label"), ("val/c.jpg", "no_label")]
        _, rejects = listed(f"{tmp_path}/*.jpg", split_from="folder", labels_from="none")
        assert rejects == [("d.jpg", "no_split")]

    def test_images_without_labels(self, tmp_path: Path):
        fill(tmp_path, "a.jpg", "x/b.jpg")
        images, rejects = listed(str(tmp_path), labels_from="none")
        assert labels_of(images) == {"a.jpg": (), "x/b.jpg": ()}
        assert not rejects

    def test_given_labels_reject_others(self, tmp_path: Path):
        fill(tmp_path, "cat/a.jpg", "cow/b.jpg")
        images, rejects = listed(str(tmp_path), labels=("dog", "cat"))
        assert list(images) == ["cat/a.jpg"]
        assert rejects == [("cow/b.jpg", "unknown_label")]

    def test_given_labels_are_the_same_whole_numbers(self, tmp_path: Path):
        fill(tmp_path, "2.0/a.jpg", "10/b.jpg")
        images, rejects = listed(str(tmp_path), labels=("0", "2", "10.0"))
        assert labels_of(images) == {"2.0/a.jpg": ("2",), "10/b.jpg": ("10.0",)}
        assert not rejects

    def test_size_and_place_of_the_bytes(self, tmp_path: Path):
        fill(tmp_path, "cat/a.jpg")
        [image] = listed(str(tmp_path))[0].values()
        assert (image.image.path, image.image.size) == (f"{tmp_path}/cat/a.jpg", 9)


def test_the_order_in_which_folders_are_read_changes_nothing(tmp_path: Path, monkeypatch):
    fill(
        tmp_path,
        *(f"{i % 3}/{i}.jpg" for i in range(40)),
        *(f"m/{i % 3}/{i}.png" for i in range(30)),
    )
    spec = SourceSpec((f"{tmp_path}/[0-9]/*",), masks=f"{tmp_path}/m", labels_from="folder")
    expected = list(list_images(spec))
    scandir = os.scandir

    class Shuffled:
        def __init__(self, path):
            with scandir(path) as entries:
                self.entries = list(entries)
            random.shuffle(self.entries)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(os, "scandir", Shuffled)
    assert [list(list_images(spec)) == expected for _ in range(5)] == [True] * 5


class TestLabelNames:
    def names(self, *seen: str, **options) -> list[str]:
        return label_names(SourceSpec(("/nowhere/*",), layout="folders", **options), set(seen))

    def test_seen_ones_are_sorted_as_numbers_where_all_are(self):
        assert self.names("b", "a", "C") == ["C", "a", "b"]
        assert self.names("10", "9", "0") == ["0", "9", "10"]
        assert self.names("10", "9", "x") == ["10", "9", "x"]

    def test_given_ones_stay_in_order(self):
        assert self.names("a", labels=("b", "a", "c")) == ["b", "a", "c"]


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"patterns": ("",)}, "patterns must be a glob or folder"),
            ({"layout": "folder"}, "layout must be one of .*did you mean 'folders'"),
            ({"label_folder": 0}, "label_folder must be 1 or more, or -1 or less, got 0"),
            ({"label_folder": 1, "layout": "dagm"}, "label_folder has no effect with layout="),
            ({"label_folder": 1, "layout": "table"}, "label_folder=1 has no effect on a table's"),
            ({"labels": ("a", "b", "a")}, "labels_from must name each label once, got 'a' twice"),
            ({"layout": "coco"}, "layout='coco' needs annotations"),
            ({"layout": "flat", "annotations": ("x",)}, "annotations has no effect with"),
            ({"layout": "flat", "labels_from": "folder"}, "labels_from='folder' has no effect"),
            ({"layout": "folders", "labels_from": "field"}, "labels_from='field' has no effect"),
            ({"layout": "pairs"}, "layout='pairs' needs masks"),
            ({"mask_suffix": "_m"}, "mask_suffix has no effect without masks"),
            ({"layout": "dagm", "masks": "x"}, "masks has no effect with layout='dagm'"),
            ({"layout": "folders", "label_field": "x"}, "label_field has no effect with"),
            ({"layout": "flat", "split_from": "none"}, "split_from='none' has no effect with"),
            ({"layout": "voc", "annotations": ("x",), "split_from": "c"}, "split_from='c' needs"),
            ({"record_shape": "3x4x5"}, "record_shape='3x4x5' needs layout='fixed'"),
            ({"record_bytes": 9}, "record_bytes has no effect without record_shape"),
        ],
    )
    def test_of_flags(self, options, message):
        with pytest.raises(UsageError, match=f"^{message}"):
            SourceSpec(**{"patterns": ("x/*",), **options})

    def test_of_input_without_images(self, tmp_path: Path):
        fill(tmp_path, "a.txt", "b.txt", ".c.jpg")
        message = r"holds no image: 3 files were passed over \(hidden 1, no_image_extension 2\)$"
        with pytest.raises(UsageError, match=message):
            listed(str(tmp_path))
        with pytest.raises(UsageError, match="matches no file"):
            listed(f"{tmp_path}/*.jpg")


class TestDetection:
    def layout(self, *patterns, **options) -> str:
        return detect_layout(SourceSpec(tuple(map(str, patterns)), **options)).layout

    def test_by_what_is_there(self, tmp_path: Path):
        fill(
            tmp_path,
            "tree/cat/a.jpg",
            "flat/a.jpg",
            "idx/t10k-images.idx3-ubyte",
            "t.csv",
            "c.json",
        )
        fill(
            tmp_path, "dagm/Class1/Train/0001.PNG", "voc/JPEGImages/a.jpg", "voc/Annotations/a.xml"
        )
        fill(tmp_path, "pairs/images/a.jpg", "pairs/masks/a.png", "steel/train_images/a.jpg")
        fill(tmp_path, "voc/Annotations/a.xml", "c.json")
        annotations = {"coco": "c.json", "voc": "voc/Annotations", "severstal": "steel/train.csv"}
        (tmp_path / "steel/train.csv").write_text("ImageId,ClassId,EncodedPixels\n")
        assert self.layout(tmp_path / "tree") == "folders"
        assert self.layout(tmp_path / "tree/*/*.jpg") == "folders"
        assert self.layout(tmp_path / "tree", labels_from="none") == "flat"
        assert self.layout(tmp_path / "flat") == "flat"
        assert self.layout(tmp_path / "idx") == "idx"
        assert self.layout(tmp_path / "dagm") == "dagm"
        assert self.layout(tmp_path / "dagm/Class1/*/*.PNG") == "dagm"
        assert self.layout(tmp_path / "voc") == "voc"
        assert self.layout(tmp_path / "pairs") == "pairs"
        assert self.layout(tmp_path / "steel") == "severstal"
        assert self.layout(tmp_path / "t.csv") == "table"
        for layout, path in annotations.items():
            assert self.layout(tmp_path / "flat", annotations=(f"{tmp_path}/{path}",)) == layout
        assert self.layout(tmp_path / "tree", masks=f"{tmp_path}/flat") == "pairs"

    def test_folders_of_splits_are_no_labels(self, tmp_path: Path):
        fill(tmp_path, "train/cat/a.jpg", "valid/cat/a.jpg")
        message = r"--split_from=folder is needed where folders are named train, valid; or --layout"
        with pytest.raises(UsageError, match=message):
            self.layout(tmp_path)
        assert self.layout(tmp_path, split_from="folder") == "folders"
        assert self.layout(tmp_path, split_from="none") == "folders"

    def test_annotations_that_lie_there_are_not_passed_over(self, tmp_path: Path):
        fill(tmp_path, "pictures/a.jpg", "annotations/instances_val.json")
        message = (
            r"--annotations must name the file that labels the images of .*/instances_val\.json; or"
        )
        with pytest.raises(UsageError, match=message):
            self.layout(tmp_path)
        assert self.layout(tmp_path, labels_from="none") == "flat"

    def test_a_folder_of_images_is_no_label(self, tmp_path: Path):
        fill(tmp_path, "images/a.jpg", "labels/a.txt")
        assert self.layout(tmp_path / "**") == "flat"

    def test_labels_from_folders_are_taken_at_their_word(self, tmp_path: Path):
        fill(tmp_path, "images/a.jpg", "masks/a.png", "t.csv")
        assert self.layout(tmp_path, labels_from="folder") == "folders"

    def test_unknown_annotations(self):
        with pytest.raises(UsageError, match=r"--annotations must be a table .* got x\.yaml"):
            self.layout("y", annotations=("x.yaml",))


def test_split_names():
    assert [split_name(s) for s in ("Train", "VAL", "dev", "Testing", "mine")] == [
        "train", "validation", "validation", "test", "mine",
    ]  # fmt: skip


@pytest.mark.real
class TestRealData:
    def test_raccoon_boxes_are_those_of_its_table(self, real_data: Path):
        folder = real_data / "images" / "raccoon"
        images, rejects = listed(str(folder))
        table, _ = listed(
            f"{folder}/images/*.jpg", annotations=(f"{folder}/data/raccoon_labels.csv",)
        )
        assert len(images) == 200
        assert not rejects
        assert sum(len(image.objects) for image in images.values()) == 217
        boxes = {name: {o.box for o in image.objects} for name, image in images.items()}
        assert boxes == {name: {o.box for o in image.objects} for name, image in table.items()}
        assert {label for image in images.values() for label in image.labels} == {"raccoon"}

    def test_magnetic_tile_has_classes_and_masks(self, real_data: Path):
        folder = real_data / "images" / "magnetic_tile"
        images, rejects = listed(
            f"{folder}/*/Imgs/*.jpg", masks=f"{folder}/*/Imgs/*.png", labels_from="folder"
        )
        assert len(images) == 150
        assert not rejects
        assert len({image.labels for image in images.values()}) == 6
        for image in images.values():
            assert image.mask is not None
            assert image.mask.path == image.image.path.replace(".jpg", ".png")

    def test_the_severstal_layout(self, real_data: Path):
        images, rejects = listed(str(real_data / "images" / "derived_severstal_layout"))
        assert len(images) == 32
        assert not rejects
        assert all(image.has_mask and len(image.regions) == 1 for image in images.values())
        assert {image.labels for image in images.values()} == {("1",), ("2",), ("3",), ("4",)}
