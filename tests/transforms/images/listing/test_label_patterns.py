"""Labels in the names of files, and tables that name images by ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.list_images import SourceSpec

from ..image_trees import fill, listed


class TestLabelPattern:
    def test_the_group_is_the_label(self, tmp_path: Path):
        fill(tmp_path, "train/cat.1.jpg", "train/dog.2.jpg", "train/cow.jpg")
        images, rejects = listed(str(tmp_path), label_pattern=r"^(cat|dog)\.")
        assert {n: i.labels for n, i in images.items()} == {
            "train/cat.1.jpg": ("cat",), "train/dog.2.jpg": ("dog",),
        }  # fmt: skip
        assert rejects == [("train/cow.jpg", "no_label")]

    def test_splits_are_still_folders(self, tmp_path: Path):
        fill(tmp_path, "in/train/cat.1.jpg", "in/val/dog.2.jpg")
        images, _ = listed(str(tmp_path), label_pattern="^([a-z]+)", split_from="folder")
        found = [(i.labels, i.split) for i in images.values()]
        assert found == [(("cat",), "train"), (("dog",), "validation")]

    def test_given_labels_reject_others(self, tmp_path: Path):
        fill(tmp_path, "cat.jpg", "cow.jpg")
        _, rejects = listed(str(tmp_path), label_pattern="^([a-z]+)", labels=("cat",))
        assert rejects == [("cow.jpg", "unknown_label")]

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            ({"label_pattern": "("}, r"label_pattern must be a regular expression, got '\('"),
            ({"label_pattern": "a"}, "must have one group, which is the label, got 0 in 'a'"),
            ({"label_pattern": "(a)(b)"}, "got 2"),
            ({"label_pattern": "(a)", "annotations": ("x",)}, "has no effect with annotations"),
            ({"label_pattern": "(a)", "layout": "idx"}, "has no effect with layout='idx'"),
            ({"label_pattern": "(a)", "labels_from": "folder"}, "leave labels_from out"),
            ({"label_pattern": "(a)", "label_folder": 1}, "label_folder has no effect with"),
        ],
    )
    def test_what_is_refused(self, flags, message: str):
        with pytest.raises(UsageError, match=message):
            SourceSpec(("x",), **flags)


class TestIds:
    def table(self, folder: Path, *ids: str) -> str:
        path = folder / "train.csv"
        path.write_text("id,label\n" + "".join(f"{i},l{i}\n" for i in ids))
        return str(path)

    def test_with_a_folder_of_images(self, tmp_path: Path):
        fill(tmp_path, "train/0001.jpg", "train/0002.png", "train/3.v2.jpg")
        table = self.table(tmp_path, "0001", "0002", "3.v2", "0009")
        images, rejects = listed(f"{tmp_path}/train", annotations=(table,))
        assert {n: i.labels for n, i in images.items()} == {
            "0001.jpg": ("l0001",), "0002.png": ("l0002",), "3.v2.jpg": ("l3.v2",),
        }  # fmt: skip
        assert rejects == [("train.csv#4", "no_image")]

    def test_by_the_table_alone(self, tmp_path: Path):
        fill(tmp_path, "0001.jpg", "0002.png", "0002.jpg")
        images, rejects = listed(self.table(tmp_path, "0001", "0002"))
        assert {n: i.labels for n, i in images.items()} == {"0001.jpg": ("l0001",)}
        assert rejects == [("train.csv#2", "no_image")]

    def test_an_id_of_two_images_names_none(self, tmp_path: Path):
        fill(tmp_path, "train/0001.jpg", "train/0001.png", "train/0002.png")
        images, rejects = listed(
            f"{tmp_path}/train", annotations=(self.table(tmp_path, "0001", "0002"),)
        )
        assert list(images) == ["0002.png"]
        assert rejects == [("0001.jpg", "duplicate"), ("0001.png", "duplicate")]
