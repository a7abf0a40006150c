"""The layouts of known datasets, each as a small tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Listing
from recordmill.transforms.images.listing.list_images import SourceSpec, label_names
from recordmill.transforms.images.listing.voc import parse_voc
from recordmill.transforms.images.references import ImageObject, Region, StoredBytes

from ..image_trees import Shelf, fill, listed


def reason_of(source: str, rejects) -> str:
    return dict(rejects)[source]


class TestDagm:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        """Class1 with an image without and one with a defect in Train, Class2 with one in Test."""
        fill(
            tmp_path, "Class1/Train/0001.PNG", "Class1/Train/0002.PNG",
            "Class1/Train/Label/0002_label.PNG", "Class2/Test/0001.PNG",
            "Class2/Test/Label/0001_label.PNG",
        )  # fmt: skip
        (tmp_path / "Class1/Train/Label/Labels.txt").write_text(
            "1\r\n1\t0\t0001.PNG\t0\t0\r\n2\t1\t0002.PNG\t0\t0002_label.PNG\r\n"
        )
        (tmp_path / "Class2/Test/Label/Labels.txt").write_text(
            "1\t1\t0001.PNG\t0\t0001_label.PNG\n"
        )
        return tmp_path

    @pytest.mark.parametrize("pattern", ["", "/Class*/*/*.PNG", "/*/*/**"])
    def test_labels_splits_and_masks(self, tree: Path, pattern: str):
        listing = Listing()
        images, rejects = listed(f"{tree}{pattern}", listing=listing)
        assert not rejects
        assert {n: (i.labels, i.split, i.has_mask) for n, i in images.items()} == {
            "Class1/Train/0001.PNG": (("Class1",), "train", True),
            "Class1/Train/0002.PNG": (("Class1",), "train", True),
            "Class2/Test/0001.PNG": (("Class2",), "test", True),
        }
        assert images["Class1/Train/0001.PNG"].mask is None
        mask = StoredBytes(f"{tree}/Class1/Train/Label/0002_label.PNG")
        assert images["Class1/Train/0002.PNG"].mask == mask
        assert listing.filtered["mask"] == (2 if "PNG" not in pattern else 0)

    def test_flags(self, tree: Path):
        images, _ = listed(str(tree), labels_from="field", split_from="none")
        assert [(i.labels, i.split) for i in images.values()] == [
            (("0",), ""), (("1",), ""), (("1",), ""),
        ]  # fmt: skip
        images, _ = listed(str(tree), labels_from="none")
        assert {i.labels for i in images.values()} == {()}

    def test_files_and_rows_that_do_not_fit(self, tree: Path):
        fill(tree, "Class1/Train/0009.PNG", "Class1/x.PNG")
        with open(tree / "Class1/Train/Label/Labels.txt", "a") as labels:
            labels.write("7\t0\t0007.PNG\t0\t0\n1\t1\t0001.PNG\t0\t0\nnonsense\n")
        images, rejects = listed(str(tree))
        assert len(images) == 3
        assert sorted(rejects) == [
            ("Class1/Train/0007.PNG", "no_image"),
            ("Class1/Train/0009.PNG", "no_label"),
            ("Class1/Train/Label/Labels.txt", "bad_row"),
            ("Class1/Train/Label/Labels.txt", "bad_row"),
            ("Class1/x.PNG", "no_label"),
        ]

    def test_images_that_a_glob_leaves_out_are_not_missed(self, tree: Path):
        images, rejects = listed(f"{tree}/Class*/*/*2.PNG")
        assert list(images) == ["Class1/Train/0002.PNG"]
        assert not rejects

    def test_no_labels(self, tree: Path):
        (tree / "Class2/Test/Label/Labels.txt").unlink()
        with pytest.raises(
            UsageError, match=r"--layout=dagm needs .*Labels\.txt, which .* No such"
        ):
            listed(str(tree))


class TestSeverstal:
    def write(self, folder: Path, *rows: str, header="ImageId,ClassId,EncodedPixels") -> Path:
        fill(folder, *(f"train_images/{name}.jpg" for name in "abc"))
        (folder / "train.csv").write_text("\n".join([header, *rows]) + "\n")
        return folder

    def test_rows_of_an_image_are_gathered(self, tmp_path: Path):
        self.write(tmp_path, "b.jpg,3,1 5 10 2", "a.jpg,1,", "b.jpg,1,7 1")
        images, rejects = listed(str(tmp_path))
        assert not rejects
        first, second = Region("runs", runs=(1, 5, 10, 2)), Region("runs", runs=(7, 1))
        assert {n: (i.labels, i.regions) for n, i in images.items()} == {
            "a.jpg": ((), ()),
            "b.jpg": (("1", "3"), (("3", first), ("1", second))),
            "c.jpg": ((), ()),
        }  # fmt: skip
        assert all(image.has_mask for image in images.values())

    def test_the_first_form_of_the_table(self, tmp_path: Path):
        rows = ["a.jpg_1,", "a.jpg_2,4 2", "b.jpg_1,"]
        self.write(tmp_path, *rows, header="ImageId_ClassId,EncodedPixels")
        images, _ = listed(str(tmp_path))
        assert images["a.jpg"].regions == (("2", Region("runs", runs=(4, 2))),)
        assert images["b.jpg"].regions == ()

    @pytest.mark.parametrize("runs", ["1 2 3", "0 2", "1 x", "1 -2"])
    def test_an_image_with_bad_runs_is_rejected_whole(self, tmp_path: Path, runs: str):
        self.write(tmp_path, "a.jpg,1,1 1", f"a.jpg,2,{runs}")
        images, rejects = listed(str(tmp_path))
        assert list(images) == ["b.jpg", "c.jpg"]
        assert rejects == [("a.jpg", "bad_row")]

    def test_rows_that_do_not_fit(self, tmp_path: Path):
        self.write(tmp_path, "z.jpg,1,1 1", "a.jpg,1", ",1,1 1", "a.jpg,,1 1")
        images, rejects = listed(
            f"{tmp_path}/train_images/*", annotations=(f"{tmp_path}/train.csv",)
        )
        assert list(images) == ["b.jpg", "c.jpg"]
        assert sorted(rejects) == [
            ("a.jpg", "bad_row"), ("train.csv#1", "no_image"), ("train.csv#2", "bad_row"),
            ("train.csv#3", "bad_row"),
        ]  # fmt: skip

    def test_what_a_glob_leaves_out_is_counted(self, tmp_path: Path):
        self.write(tmp_path, "a.jpg,1,1 1", "b.jpg,1,1 1", "z.jpg,1,1 1")
        listing = Listing()
        images, rejects = listed(
            f"{tmp_path}/train_images/a*", annotations=(f"{tmp_path}/train.csv",), listing=listing
        )
        assert list(images) == ["a.jpg"]
        assert rejects == [("train.csv#3", "no_image")]
        assert listing.filtered == {"not_in_input": 1}

    def test_another_table(self, tmp_path: Path):
        self.write(tmp_path, header="a,b")
        with pytest.raises(UsageError, match=r"must have the columns ImageId, .* got a, b$"):
            listed(str(tmp_path), layout="severstal", annotations=(f"{tmp_path}/train.csv",))


def voc_xml(*objects: tuple[str, tuple[object, ...]]) -> str:
    sides = ("xmin", "ymin", "xmax", "ymax")
    parts = [
        f"<object><name>{name}</name><difficult>1</difficult><bndbox>"
        + "".join(f"<{side}>{value}</{side}>" for side, value in zip(sides, box, strict=True))
        + "</bndbox></object>"
        for name, box in objects
    ]
    return f"<annotation><filename>other.jpg</filename>{''.join(parts)}</annotation>"


class TestVoc:
    def write(self, folder: Path, **xml: str) -> Path:
        for name, text in xml.items():
            fill(folder, f"Annotations/{name}.xml")
            (folder / f"Annotations/{name}.xml").write_text(text, encoding="utf-8")
        return fill(folder, *(f"JPEGImages/{name}.jpg" for name in "abc"))

    def test_objects_are_those_of_the_file_of_the_same_name(self, tmp_path: Path):
        self.write(
            tmp_path, a=voc_xml(("dog", (1, 2, 30, 40.5)), ("cat", (5, 6, 7, 8))), b=voc_xml(),
            c=voc_xml(("cow", (0, 0, 1, 1))),
        )  # fmt: skip
        images, rejects = listed(str(tmp_path))
        assert not rejects
        assert images["a.jpg"].labels == ("cat", "dog")
        assert images["a.jpg"].objects == (
            ImageObject("dog", (1, 2, 30, 40.5), difficult=True),
            ImageObject("cat", (5, 6, 7, 8), difficult=True),
        )
        assert images["b.jpg"].objects == ()
        images, rejects = listed(str(tmp_path), labels=("cat", "dog"))
        assert list(images) == ["a.jpg", "b.jpg"]
        assert rejects == [("c.jpg", "unknown_label")]

    def test_image_sets_are_splits(self, tmp_path: Path):
        self.write(tmp_path, a=voc_xml(), b=voc_xml())
        fill(tmp_path, "ImageSets/Main/trainval.txt", "ImageSets/Main/dog_train.txt")
        (tmp_path / "ImageSets/Main/train.txt").write_text("a\n")
        (tmp_path / "ImageSets/Main/val.txt").write_text("b\n")
        listing = Listing()
        images, rejects = listed(str(tmp_path), listing=listing)
        assert {n: i.split for n, i in images.items()} == {"a.jpg": "train", "b.jpg": "validation"}
        assert listing.filtered == {"in_no_set": 1}
        assert not rejects
        images, rejects = listed(str(tmp_path), split_from="none")
        assert {n: i.split for n, i in images.items()} == {"a.jpg": "", "b.jpg": ""}
        assert rejects == [("c.jpg", "no_label")]
        (tmp_path / "ImageSets/Main/test.txt").write_text("b\n")
        with pytest.raises(UsageError, match=r"must name other images than val\.txt; .* b$"):
            listed(str(tmp_path))

    def test_what_a_glob_leaves_out_is_counted(self, tmp_path: Path):
        self.write(tmp_path, a=voc_xml(), b=voc_xml(), z=voc_xml())
        listing = Listing()
        images, rejects = listed(
            f"{tmp_path}/JPEGImages/a*", annotations=(f"{tmp_path}/Annotations",), listing=listing
        )
        assert list(images) == ["a.jpg"]
        assert rejects == [("z.xml", "no_image")]
        assert listing.filtered == {"not_in_input": 1}

    def test_files_of_an_object_store(self, monkeypatch):
        names = [f"{i:03}" for i in range(100)]
        xml = {f"shelf://v/xml/{n}.xml": voc_xml(("dog", (0, 0, 1, n))).encode() for n in names}
        monkeypatch.setattr(Shelf, "objects", xml | {f"shelf://v/in/{n}.jpg": b"" for n in names})
        images, rejects = listed("shelf://v/in/*", annotations=("shelf://v/xml",))
        assert not rejects
        boxes = {name: image.objects[0].box for name, image in images.items()}
        assert boxes == {f"{n}.jpg": (0, 0, 1, int(n)) for n in names}

    def test_files_that_cannot_be_read(self, tmp_path: Path):
        self.write(tmp_path, a=voc_xml(), b=voc_xml(), c=voc_xml())
        (tmp_path / "Annotations/b.xml").unlink()
        (tmp_path / "Annotations/b.xml").symlink_to(tmp_path / "nowhere.xml")
        images, rejects = listed(str(tmp_path))
        assert list(images) == ["a.jpg", "c.jpg"]
        assert rejects == [("b.jpg", "bad_row")]

    def test_files_that_do_not_fit(self, tmp_path: Path):
        self.write(tmp_path, a="<annotation>", b=voc_xml(("dog", (1, 2, "x", 4))), z=voc_xml())
        fill(tmp_path, "JPEGImages/b.png")
        images, rejects = listed(str(tmp_path))
        assert not images
        assert rejects == [
            ("a.jpg", "bad_row"), ("b.jpg", "bad_row"), ("b.png", "duplicate"),
            ("c.jpg", "no_label"), ("z.xml", "no_image"),
        ]  # fmt: skip
        with pytest.raises(UsageError, match="must hold XML files, and has none"):
            listed(f"{tmp_path}/JPEGImages", annotations=(f"{tmp_path}/JPEGImages",))

    @pytest.mark.parametrize(
        ("xml", "message"),
        [
            ("<a>", "no XML: no element found"),
            ("<a/>", "the first element must be <annotation>, got <a>"),
            ("<annotation><object/></annotation>", "an <object> has no <name>"),
            ("<annotation><object><name>x</name></object></annotation>", "x has no <bndbox>"),
            (voc_xml(("x", ("", 1, 2, 3))), "the box of x is , 1, 2, 3"),
            (voc_xml(("x", (0, 0, 1, "inf"))), "the box of x is 0, 0, 1, inf"),
            (
                '<!DOCTYPE a [<!ENTITY b "bb">]><annotation>&b;</annotation>',
                "XML that defines entities is not read",
            ),
            (
                '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><annotation>&b;</annotation>',
                "XML that defines entities is not read",
            ),
        ],
    )
    def test_xml_that_is_not_read(self, xml: str, message: str):
        with pytest.raises(ValueError, match=message):
            parse_voc(xml.encode())
        if "ENTITY" in xml:
            with pytest.raises(ValueError, match=message):
                parse_voc(xml.encode("utf-16"))


class TestCoco:
    SQUARE = [1, 1, 4, 1, 4, 4, 1, 4]  # noqa: RUF012

    def write(self, folder: Path, **changes) -> str:
        content = {
            "images": [{"id": 7, "file_name": "a.jpg"}, {"id": 3, "file_name": "x/b.jpg"}],
            "categories": [{"id": 18, "name": "dog"}, {"id": 2, "name": "zebra"}],
            "annotations": [
                {"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "area": 9,
                 "iscrowd": 0, "segmentation": [self.SQUARE]},
                {"image_id": 7, "category_id": 2, "bbox": [0, 0, 5, 5], "area": 4.5,
                 "iscrowd": 1, "segmentation": {"size": [4, 6], "counts": [1, 2, 21]}},
                {"image_id": 7, "category_id": 2, "bbox": [0, 0, 1, 1],
                 "segmentation": {"size": [4, 6], "counts": "04Q1"}},
            ],
        }  # fmt: skip
        fill(folder, "in/a.jpg", "in/x/b.jpg")
        path = folder / "instances.json"
        path.write_text(json.dumps(content | changes))
        return str(path)

    def test_objects_and_categories(self, tmp_path: Path):
        path = self.write(tmp_path)
        images, rejects = listed(f"{tmp_path}/in", annotations=(path,))
        assert not rejects
        square = Region("polygons", polygons=(tuple(map(float, self.SQUARE)),))
        crowd = Region("coco", runs=(1, 2, 21), size=(4, 6))
        assert images["a.jpg"].objects == (
            ImageObject("dog", (1, 2, 4, 6), square, area=9),
            ImageObject("zebra", (0, 0, 5, 5), crowd, is_crowd=True, area=4.5),
            ImageObject("zebra", (0, 0, 1, 1), Region("coco", runs="04Q1", size=(4, 6))),
        )
        assert images["a.jpg"].labels == ("dog", "zebra")
        assert images["x/b.jpg"].objects == ()
        spec = SourceSpec((f"{tmp_path}/in",), annotations=(path,))
        assert label_names(spec, {"dog"}) == ["zebra", "dog"]

    def test_what_does_not_fit(self, tmp_path: Path):
        images = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "no.jpg"}]
        notes = [
            {"image_id": 9, "category_id": 2, "bbox": [0, 0, 1, 1]},
            {"image_id": 1, "category_id": 9, "bbox": [0, 0, 1, 1]},
            {"image_id": 1, "category_id": 2, "bbox": [0, 0, 1]},
        ]
        path = self.write(tmp_path, images=images, annotations=notes)
        found, rejects = listed(f"{tmp_path}/in", annotations=(path,))
        assert not found
        assert sorted(rejects) == [
            ("a.jpg", "bad_row"), ("instances.json#0", "bad_row"), ("instances.json#1", "bad_row"),
            ("no.jpg", "no_image"), ("x/b.jpg", "no_label"),
        ]  # fmt: skip

    def test_what_a_glob_leaves_out_is_counted(self, tmp_path: Path):
        path = self.write(tmp_path)
        listing = Listing()
        images, rejects = listed(f"{tmp_path}/in/*", annotations=(path,), listing=listing)
        assert list(images) == ["a.jpg"]
        assert not rejects
        assert listing.filtered == {"not_in_input": 1}

    @pytest.mark.parametrize(
        "segmentation",
        [[[1, 2, 3]], [[1, 2, 3, 4, 5, 6, 7]], {"size": [1, 2]}, {"size": 3, "counts": 1}],
    )
    def test_bad_regions(self, tmp_path: Path, segmentation):
        note = {"image_id": 7, "category_id": 2, "segmentation": segmentation}
        path = self.write(tmp_path, annotations=[note])
        _, rejects = listed(f"{tmp_path}/in", annotations=(path,))
        assert rejects == [("a.jpg", "bad_row")]

    def test_files_that_cannot_be_used(self, tmp_path: Path):
        for changes, message in (
            ({"images": None}, "must be COCO's instances JSON"),
            ({"categories": [{"id": 1}]}, r"categories\[0\].name is missing"),
            ({"categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]}, "one is twice"),
            ({"images": [{"id": 1}]}, r"images\[0\].file_name is missing"),
            ({"images": [{"id": 1, "file_name": "a.jpg"}] * 2}, "must name image 1 once"),
        ):
            path = self.write(tmp_path, **changes)
            with pytest.raises(UsageError, match=message):
                listed(f"{tmp_path}/in", annotations=(path,))
        Path(path).write_text("{")
        with pytest.raises(UsageError, match="must be JSON; "):
            listed(f"{tmp_path}/in", annotations=(path,))


class TestMasks:
    def test_are_paired_by_name_below_their_roots(self, tmp_path: Path):
        fill(tmp_path, "images/a.jpg", "images/x/b.jpg", "masks/a.png", "masks/x/b.png")
        images, rejects = listed(str(tmp_path))
        assert not rejects
        assert {n: i.mask.path for n, i in images.items()} == {
            "a.jpg": f"{tmp_path}/masks/a.png", "x/b.jpg": f"{tmp_path}/masks/x/b.png",
        }  # fmt: skip
        assert {i.labels for i in images.values()} == {()}
        globs = (f"{tmp_path}/images/*.jpg", f"{tmp_path}/images/*/*.jpg")
        assert listed(*globs, masks=f"{tmp_path}/masks/**") == (images, [])

    def test_may_have_suffixes_and_lie_among_the_images(self, tmp_path: Path):
        fill(tmp_path, "x/a.png", "x/a_mask.png", "y/b.png", "y/b_mask.png", "y/c.txt")
        listing = Listing()
        images, rejects = listed(
            str(tmp_path), masks=f"{tmp_path}/*/*_mask.png", mask_suffix="_mask", listing=listing,
            labels_from="folder",
        )  # fmt: skip
        assert not rejects
        found = {n: (i.labels, i.mask.path.rpartition("/")[2]) for n, i in images.items()}
        assert found == {"x/a.png": (("x",), "a_mask.png"), "y/b.png": (("y",), "b_mask.png")}
        assert listing.filtered == {"mask": 2, "no_image_extension": 1}
        listed(f"{tmp_path}/x/a.png", masks=str(tmp_path), mask_suffix="_mask", listing=listing)
        assert listing.filtered["no_mask_suffix"] == 2

    def test_below_the_images(self, tmp_path: Path):
        fill(tmp_path, "x/a.jpg", "x/a.png", "y/b.jpg")
        images, rejects = listed(f"{tmp_path}/*/*.jpg", masks=f"{tmp_path}/x/*.png")
        assert list(images) == ["x/a.jpg"]
        assert rejects == [("y/b.jpg", "no_mask")]

    def test_none_is_said_of_masks(self, tmp_path: Path):
        fill(tmp_path, "a.jpg")
        with pytest.raises(UsageError, match=r"^--masks .*/no matches no file$"):
            listed(f"{tmp_path}/a.jpg", masks=f"{tmp_path}/no")

    def test_that_are_no_images_are_said_to_be_none(self, tmp_path: Path):
        fill(tmp_path, "images/001.jpg", "images/notes.txt", "masks/001.mat", "masks/.DS_Store")
        message = r"^--masks must be images, and .*/masks holds none, but \.mat; write the"
        with pytest.raises(UsageError, match=message):
            listed(f"{tmp_path}/images", masks=f"{tmp_path}/masks")

    def test_what_has_no_partner(self, tmp_path: Path):
        fill(tmp_path, "images/a.jpg", "images/b.jpg", "images/b.png", "masks/b.png", "masks/b.gif")
        fill(tmp_path, "masks/c.png")
        images, rejects = listed(str(tmp_path))
        assert {n: i.mask.path for n, i in images.items()} == {"b.jpg": f"{tmp_path}/masks/b.gif"}
        assert rejects == [
            ("a.jpg", "no_mask"), ("b.png", "duplicate"), ("b.png", "duplicate"),
            ("c.png", "no_image"),
        ]  # fmt: skip
