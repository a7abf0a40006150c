"""What an input names lies inside of it; only regular files are input, and nothing blocks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Listing
from recordmill.transforms.images.listing.list_images import SourceSpec, list_images
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.stored_bytes import ImageReader, UnreadableBytesError

from ..image_trees import fill, listed

OUTSIDE = "outside_input"
VOC = (
    "<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax>"
    "<ymax>2</ymax></bndbox></object></annotation>"
)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder beside the input `in`."""
    fill(tmp_path, "secret/s.jpg", "secret/s.txt", "in/a/x.jpg", "in/b/y.jpg")
    return tmp_path / "secret"


class TestLinks:
    def test_of_files_and_folders(self, tmp_path: Path, secret: Path):
        folder = tmp_path / "in"
        (folder / "a/s.jpg").symlink_to(secret / "s.jpg")
        (folder / "a/again.jpg").symlink_to("../b/y.jpg")
        (folder / "c").symlink_to(secret)
        (folder / "d").symlink_to("b")
        (folder / "s.txt").symlink_to(secret / "s.txt")  # no image in any case
        images, rejects = listed(str(folder))
        assert list(images) == ["a/again.jpg", "a/x.jpg", "b/y.jpg", "d/y.jpg"]
        assert rejects == [("a/s.jpg", OUTSIDE), ("c", OUTSIDE)]
        images, rejects = listed(str(folder), allow_outside=(str(secret),))
        assert {"a/s.jpg", "c/s.jpg"} <= images.keys()
        assert not rejects

    def test_the_message_says_what_to_do(self, tmp_path: Path, secret: Path):
        (tmp_path / "in/a/s.jpg").symlink_to(secret / "s.jpg")
        [reject] = [
            item
            for item in list_images(SourceSpec(patterns=(f"{tmp_path}/in",)))
            if isinstance(item, ListedReject)
        ]
        assert reject.detail == (
            f"a link: {secret}/s.jpg is outside of the input; --allow_outside={secret} lets it be "
            "read"
        )

    def test_an_input_that_is_a_link_is_what_it_leads_to(self, tmp_path: Path, secret: Path):
        (tmp_path / "also").symlink_to("in")
        assert list(listed(f"{tmp_path}/also")[0]) == ["a/x.jpg", "b/y.jpg"]

    def test_inputs_may_lead_into_each_other(self, tmp_path: Path, secret: Path):
        (tmp_path / "in/a/s.jpg").symlink_to(secret / "s.jpg")
        images, rejects = listed(f"{tmp_path}/in", str(secret), labels_from="none")
        assert "in/a/s.jpg" in images
        assert not rejects


@pytest.mark.parametrize(
    "path", ["../secret/s.jpg", "{secret}/s.jpg", "/proc/self/environ", "gs://other/s.jpg",
             "a/../../secret/s.jpg", "link/s.jpg", "file:///etc/passwd", "linked.jpg"],
)  # fmt: skip
def test_rows_of_tables(tmp_path: Path, secret: Path, path: str):
    (tmp_path / "in/link").symlink_to(secret)
    (tmp_path / "in/linked.jpg").symlink_to(secret / "s.jpg")
    own = f"{tmp_path}/in/b/y.jpg"  # a whole path, inside
    path = path.format(secret=secret)
    (tmp_path / "in/t.csv").write_text(f"path,label\na/x.jpg,cat\n{own},dog\n{path},cow\n")
    images, rejects = listed(f"{tmp_path}/in/t.csv")
    assert list(images) == ["a/x.jpg", "b/y.jpg"]
    assert rejects == [("t.csv#3", OUTSIDE)]


def test_rows_of_a_table_beside_globs_are_not_even_looked_for(tmp_path: Path, secret: Path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t/t.csv").write_text(
        "path,label\na/x.jpg,cat\nb/y.jpg,dog\n../secret/s.jpg,cow\n../secret/none.jpg,cow\n"
    )
    listing = Listing()
    images, rejects = listed(
        f"{tmp_path}/in/*/*.jpg", annotations=(f"{tmp_path}/t/t.csv",), listing=listing
    )
    assert len(images) == 2
    assert sorted(rejects) == [
        ("t.csv#3", OUTSIDE),
        ("t.csv#4", OUTSIDE),
    ]  # no word of which exists
    assert not listing.filtered


def test_file_names_of_coco(tmp_path: Path, secret: Path):
    names = ["a/x.jpg", "../secret/s.jpg", f"{secret}/none.jpg", "a/gone.jpg"]
    content = {
        "images": [{"id": i, "file_name": name} for i, name in enumerate(names)],
        "annotations": [], "categories": [{"id": 1, "name": "cat"}],
    }  # fmt: skip
    (tmp_path / "in/n.json").write_text(json.dumps(content))
    images, rejects = listed(f"{tmp_path}/in/a", annotations=(f"{tmp_path}/in/n.json",))
    assert not images or list(images) == ["x.jpg"]
    assert {r for r in rejects if r[1] == OUTSIDE} == {(n, OUTSIDE) for n in names[1:3]}


def test_masks_and_labels_of_dagm(tmp_path: Path, secret: Path):
    fill(tmp_path, "d/Class1/Train/1.PNG", "d/Class1/Train/2.PNG", "secret/m.PNG")
    notes = tmp_path / "d/Class1/Train/Label"
    notes.mkdir()
    (notes / "l.PNG").symlink_to(secret / "m.PNG")
    rows = [
        "1\t0\t0\t0\t0", "1\t1\t1.PNG\t0\t../../../../secret/m.PNG", "2\t1\t2.PNG\t0\tl.PNG",
        "3\t1\t../../../secret/s.jpg\t0\t0",
    ]  # fmt: skip
    (notes / "Labels.txt").write_text("\n".join(rows))
    images, rejects = listed(f"{tmp_path}/d")
    assert not images
    assert sorted(rejects) == [
        ("Class1/Train/../../../secret/s.jpg", OUTSIDE), ("Class1/Train/1.PNG", OUTSIDE),
        ("Class1/Train/2.PNG", OUTSIDE), ("Class1/Train/Label/l.PNG", OUTSIDE),
    ]  # fmt: skip
    (notes / "Labels.txt").rename(secret / "Labels.txt")
    (notes / "Labels.txt").symlink_to(secret / "Labels.txt")
    with pytest.raises(UsageError, match=r"must lie in the input.*--allow_outside="):
        listed(f"{tmp_path}/d")


def test_annotations_of_voc(tmp_path: Path, secret: Path):
    fill(tmp_path, "v/JPEGImages/1.jpg", "v/JPEGImages/2.jpg")
    (tmp_path / "v/Annotations").mkdir()
    (tmp_path / "v/Annotations/1.xml").write_text(VOC)
    (secret / "2.xml").write_text(VOC)
    (tmp_path / "v/Annotations/2.xml").symlink_to(secret / "2.xml")
    images, rejects = listed(f"{tmp_path}/v")
    assert (list(images), rejects) == (["1.jpg"], [("2.jpg", OUTSIDE)])
    (tmp_path / "v/ImageSets/Main").mkdir(parents=True)
    (tmp_path / "v/ImageSets/Main/train.txt").symlink_to(secret / "s.txt")
    with pytest.raises(UsageError, match="must lie in the input"):
        listed(f"{tmp_path}/v")


def test_texts_of_yolo(tmp_path: Path, secret: Path):
    fill(tmp_path, "y/images/1.jpg", "y/images/2.jpg")
    (tmp_path / "y/labels").mkdir()
    (tmp_path / "y/labels/1.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    (tmp_path / "y/labels/2.txt").symlink_to(secret / "s.txt")
    images, rejects = listed(f"{tmp_path}/y")
    assert (list(images), rejects) == (["images/1.jpg"], [("images/2.jpg", OUTSIDE)])
    (tmp_path / "y/classes.txt").symlink_to(secret / "s.txt")
    with pytest.raises(UsageError, match="must lie in the input"):
        listed(f"{tmp_path}/y")


class TestOddFiles:
    def test_in_a_folder_are_counted(self, tmp_path: Path):
        fill(tmp_path, "in/a/x.jpg")
        for name in ("a/f.jpg", "a/f.tar", "a/f.zip", "a/notes.txt"):
            os.mkfifo(tmp_path / "in" / name)
        (tmp_path / "in/a/device.jpg").symlink_to("/dev/zero")
        listing = Listing()
        images, rejects = listed(f"{tmp_path}/in", listing=listing, allow_outside=("/dev", "/proc"))
        assert (list(images), rejects) == (["a/x.jpg"], [])
        assert listing.filtered == {"not_regular": 5}

    @pytest.mark.parametrize("name", ["f.jpg", "f.tar", "f.zip", "f.csv", "f.jsonl"])
    def test_one_that_is_the_input_is_refused(self, tmp_path: Path, name: str):
        os.mkfifo(tmp_path / name)
        with pytest.raises(UsageError, match=rf"--input .*{name} is a fifo, and only regular"):
            listed(f"{tmp_path}/{name}")

    @pytest.mark.parametrize("name", ["f.csv", "f.csv.gz", "f.json", "f.jsonl", "f.xml"])
    def test_one_that_is_the_annotations_is_refused(self, tmp_path: Path, name: str):
        fill(tmp_path, "in/x.jpg")
        os.mkfifo(tmp_path / name)
        with pytest.raises(UsageError, match="a fifo, and only regular files are read"):
            listed(f"{tmp_path}/in", annotations=(f"{tmp_path}/{name}",))

    def test_one_that_is_the_file_of_labels_is_refused(self, tmp_path: Path):
        from recordmill.transforms.dataset.labels import read_labels

        os.mkfifo(tmp_path / "labels.txt")
        with pytest.raises(UsageError, match="a fifo, and only regular files are read"):
            read_labels(f"{tmp_path}/labels.txt", kinds="none")

    def test_one_that_a_row_names_is_rejected_when_it_is_read(self, tmp_path: Path):
        os.mkfifo(tmp_path / "f.jpg")
        (tmp_path / "t.csv").write_text("path,label\nf.jpg,cat\n")
        [image] = listed(f"{tmp_path}/t.csv")[0].values()
        with ImageReader() as reader, pytest.raises(UnreadableBytesError, match="a fifo"):
            reader.read(image.image)

    def test_labels_of_idx_are_refused(self, tmp_path: Path):
        (tmp_path / "train-images-idx3-ubyte").write_bytes(
            bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9])
        )
        os.mkfifo(tmp_path / "train-labels-idx1-ubyte")
        with pytest.raises(UsageError, match="a fifo, and only regular files are read"):
            listed(str(tmp_path))

    @pytest.mark.parametrize("layout", ["voc", "yolo", "dagm"])
    def test_among_annotations_they_do_not_block(self, tmp_path: Path, layout: str):
        fill(tmp_path, "in/images/1.jpg", "in/images/2.jpg")
        folder, suffix = {"voc": ("Annotations", "xml"), "yolo": ("labels", "txt")}.get(
            layout, ("", "")
        )
        if layout == "dagm":
            fill(tmp_path, "in/Class1/Train/1.PNG")
            (tmp_path / "in/Class1/Train/Label").mkdir()
            os.mkfifo(tmp_path / "in/Class1/Train/Label/Labels.txt")
            with pytest.raises(UsageError, match="a fifo"):
                listed(f"{tmp_path}/in/Class1/Train")
            return
        (tmp_path / "in" / folder).mkdir()
        text = {"voc": VOC, "yolo": "0 0.5 0.5 0.1 0.1\n"}[layout]
        (tmp_path / f"in/{folder}/1.{suffix}").write_text(text)
        os.mkfifo(tmp_path / f"in/{folder}/2.{suffix}")
        images, _ = listed(f"{tmp_path}/in")
        assert any(name.endswith("1.jpg") for name in images)


def test_a_folder_that_exists_wins_over_a_glob(tmp_path: Path):
    fill(tmp_path, "set[12]/a/x.jpg", "set1/a/y.jpg", "m[ab]/x.png", "ma/y.png")
    assert list(listed(f"{tmp_path}/set[12]")[0]) == ["a/x.jpg"]
    images, rejects = listed(
        f"{tmp_path}/set[12]/a", masks=f"{tmp_path}/m[ab]", layout="pairs", labels_from="none"
    )
    assert (list(images), rejects) == (["x.jpg"], [])
    items = list(list_images(SourceSpec(patterns=(f"{tmp_path}/set[12]/a/x.jpg",))))
    assert [item.name for item in items if isinstance(item, ImageReference)] == ["x.jpg"]
