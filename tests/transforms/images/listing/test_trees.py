"""Trees of COCO and Pascal VOC as archives unpack: one level below, with all of their splits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.list_images import (
    SourceSpec,
    category_ids,
    detect_layout,
    label_names,
)
from recordmill.transforms.images.listing.voc import parse_voc
from recordmill.transforms.images.references import Region

from ..image_trees import fill, listed

CATEGORIES = ({"id": 18, "name": "dog"}, {"id": 2, "name": "zebra"})


def instances(path: Path, ids: dict[str, int], categories=CATEGORIES) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "images": [{"id": number, "file_name": name} for name, number in ids.items()],
        "categories": list(categories),
        "annotations": [
            {"image_id": number, "category_id": 18, "bbox": [1, 2, 3, 4]} for number in ids.values()
        ],
    }
    path.write_text(json.dumps(content))
    return str(path)


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """COCO as its archives unpack; the images of test2017 are not there."""
    base = tmp_path / "data/coco"
    fill(base, "train2017/1.jpg", "train2017/2.jpg", "val2017/3.jpg")
    instances(base / "annotations/instances_train2017.json", {"1.jpg": 101, "2.jpg": 102})
    instances(base / "annotations/instances_val2017.json", {"3.jpg": 103})
    instances(base / "annotations/instances_test2017.json", {"9.jpg": 109})
    (base / "annotations/captions_train2017.json").write_text("{}")
    return base


def splits(images):
    return {name: (image.split, image.source_id) for name, image in images.items()}


class TestCoco:
    WANTED = {  # noqa: RUF012
        "train2017/1.jpg": ("train", "101"), "train2017/2.jpg": ("train", "102"),
        "val2017/3.jpg": ("validation", "103"),
    }  # fmt: skip

    @pytest.mark.parametrize("above", [False, True])
    def test_all_splits_of_a_tree(self, coco: Path, above: bool):
        images, rejects = listed(str(coco.parent if above else coco))
        assert not rejects
        assert splits(images) == self.WANTED
        assert {i.objects[0].label for i in images.values()} == {"dog"}

    def test_images_in_a_folder_images(self, tmp_path: Path):
        fill(tmp_path, "images/train2017/1.jpg", "images/val/2.jpg")
        for split, name, number in (("train2017", "1.jpg", 1), ("val2017", "2.jpg", 2)):
            instances(tmp_path / f"annotations/instances_{split}.json", {name: number})
        images, rejects = listed(str(tmp_path))
        assert not rejects
        assert list(splits(images).values()) == [("train", "1"), ("validation", "2")]

    def test_annotations_given_several_times(self, coco: Path):
        notes = [f"{coco}/annotations/instances_{split}2017.json" for split in ("train", "val")]
        flags = {"annotations": tuple(notes)}
        images, rejects = listed(f"{coco}/train2017", f"{coco}/val2017", **flags)
        assert not rejects
        assert splits(images) == self.WANTED
        assert splits(listed(str(coco), **flags)[0]) == self.WANTED
        images, _ = listed(str(coco), **flags, split_from="none")
        assert {image.split for image in images.values()} == {""}
        spec = SourceSpec((str(coco),), **flags)
        assert label_names(spec, {"dog"}) == ["zebra", "dog"]
        assert category_ids(spec) == {"zebra": 2, "dog": 18}
        assert category_ids(SourceSpec((str(coco),), **flags, labels=("dog",))) == {}

    def test_one_file_of_annotations_names_no_split(self, coco: Path):
        path = f"{coco}/annotations/instances_val2017.json"
        assert splits(listed(f"{coco}/val2017", annotations=(path,))[0]) == {"3.jpg": ("", "103")}

    def test_files_that_do_not_go_together(self, coco: Path):
        first = f"{coco}/annotations/instances_train2017.json"
        other = instances(coco / "annotations/val.json", {"3.jpg": 3}, [{"id": 18, "name": "cat"}])
        with pytest.raises(UsageError, match=r"agree on the categories; .* has 'cat' with id 18"):
            listed(str(coco), annotations=(first, other))
        unnamed = instances(coco / "annotations/more.json", {"3.jpg": 3})
        with pytest.raises(UsageError, match="must say the split of each file by its name"):
            listed(str(coco), annotations=(first, unnamed))
        twice = instances(coco / "annotations/val.json", {"1.jpg": 3, "3.jpg": 4})
        _, rejects = listed(str(coco), annotations=(first, twice))
        assert ("1.jpg", "no_image") in rejects  # 1.jpg is not in val2017, nor below the root

    def test_tables_take_one_file(self, tmp_path: Path):
        table = tmp_path / "t.csv"
        table.write_text("path,label\n1.jpg,cat\n")
        with pytest.raises(UsageError, match="for COCO's JSON, one file for each split; lay"):
            listed(str(tmp_path), annotations=(str(table), str(table)))


def voc(base: Path, name: str = "a") -> None:
    fill(base, f"JPEGImages/{name}.jpg")
    (base / "Annotations").mkdir()
    (base / f"Annotations/{name}.xml").write_text(
        "<annotation><object><name>RBC</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax>"
        "<ymax>40</ymax></bndbox></object></annotation>"
    )
    (base / "ImageSets/Main").mkdir(parents=True)
    (base / "ImageSets/Main/val.txt").write_text(f"{name}\n")


def test_bccd_has_its_voc_one_folder_below(tmp_path: Path):
    voc(tmp_path / "BCCD")
    fill(tmp_path, "scripts/split.py", "example.jpg", "dataset/mxnet/x.rec")
    images, rejects = listed(str(tmp_path))
    assert not rejects
    assert {n: (i.labels, i.split) for n, i in images.items()} == {
        "a.jpg": (("RBC",), "validation")
    }
    assert detect_layout(SourceSpec((str(tmp_path),))).patterns == (f"{tmp_path}/BCCD/JPEGImages",)


def test_polygons_in_voc():
    def xml(polygon: str) -> bytes:
        box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>"
        inner = f"<name>cat</name>{box}<polygon>{polygon}</polygon>"
        return f"<annotation><object>{inner}</object></annotation>".encode()

    corners = "<x1>1</x1><y1>2</y1><x2>30</x2><y2>2</y2><x3>30</x3><y3>40.5</y3>"
    (found,) = parse_voc(xml(corners))
    assert found.region == Region("polygons", polygons=((1, 2, 30, 2, 30, 40.5),))
    for bad in ("", "<x1>1</x1><y1>2</y1>", corners.replace("y3", "y4"), corners + "<x4>1</x4>"):
        with pytest.raises(ValueError, match="must be x1, y1, x2, …, of 3 corners or more"):
            parse_voc(xml(bad))


def test_several_trees_are_a_choice(tmp_path: Path):
    voc(tmp_path / "VOC2007")
    voc(tmp_path / "VOC2012")
    with pytest.raises(UsageError, match=r"must be one of the datasets .*VOC2007, .*VOC2012"):
        listed(str(tmp_path))
