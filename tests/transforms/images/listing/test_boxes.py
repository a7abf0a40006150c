"""Boxes in other forms and units than corners in pixels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.boxes import UnitsCheck, to_corners
from recordmill.transforms.images.source_spec import SourceSpec

from ..image_trees import fill, listed


def table(folder: Path, header: str, *rows: str) -> str:
    fill(folder, "a.jpg")
    path = folder / "t.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("values", "box_format", "corners"),
    [
        ([1, 2, 3, 5], "xyxy", (1, 2, 3, 5)),
        (["1", "2", "3", "5"], "xywh", (1, 2, 4, 7)),
        ([5, 6, 4, 2], "cxcywh", (3, 5, 7, 7)),
        (["[1, 2, 3.5, 5]"], "xywh", (1, 2, 4.5, 7)),
        ([[1, 2, 3, 5]], "xyxy", (1, 2, 3, 5)),
        (["1 2 3 5"], "xyxy", (1, 2, 3, 5)),
    ],
)
def test_all_forms_become_corners(values, box_format: str, corners):
    assert to_corners(values, box_format) == corners


class TestTables:
    @pytest.mark.parametrize(
        ("box_format", "header", "row"),
        [
            ("xyxy", "x1,y1,x2,y2", "10,20,30,60"),
            ("xywh", "x,y,width,height", "10,20,20,40"),
            ("cxcywh", "x_center,y_center,w,h", "20,40,20,40"),
            ("xywh", "bbox", '"[10, 20, 20, 40]"'),
        ],
    )
    def test_box_format(self, tmp_path: Path, box_format: str, header: str, row: str):
        path = table(tmp_path, f"filename,class,{header}", f"a.jpg,cat,{row}")
        images, rejects = listed(path, box_format=box_format)
        assert not rejects
        assert images["a.jpg"].objects[0].box == (10, 20, 30, 60)

    def test_a_format_that_the_table_lacks(self, tmp_path: Path):
        path = table(tmp_path, "filename,class,x,y", "a.jpg,cat,1,2")
        with pytest.raises(UsageError, match=r"--box_format=xywh must .*; .*t\.csv has file"):
            listed(path, box_format="xywh")
        with pytest.raises(UsageError, match=r"--box_units=pixels must go with a table of boxes"):
            listed(path, box_units="pixels")

    def test_boxes_that_look_like_fractions_are_refused(self, tmp_path: Path):
        header, row = "filename,class,xmin,ymin,xmax,ymax", "a.jpg,cat,0.1,0.2,0.5,1"
        path = table(tmp_path, header, row)
        with pytest.raises(UsageError, match=r"0\.1, 0\.2, 0\.5, 1, .* give --box_units=fraction"):
            listed(path)
        (found,) = listed(path, box_units="fraction")[0]["a.jpg"].objects
        assert (found.box, found.is_fraction) == ((0.1, 0.2, 0.5, 1), True)
        (found,) = listed(path, box_units="pixels")[0]["a.jpg"].objects
        assert not found.is_fraction
        listed(table(tmp_path, header, row, "a.jpg,cat,0,0,7,8"))

    def test_pixels_taken_for_fractions_are_refused(self, tmp_path: Path):
        path = table(tmp_path, "filename,class,xmin,ymin,xmax,ymax", "a.jpg,cat,1,2,50,60")
        with pytest.raises(UsageError, match=r"has 60: give --box_units=pixels"):
            listed(path, box_units="fraction")


def test_units_are_judged_by_the_first_hundred():
    units = UnitsCheck("t.csv", SourceSpec())
    for _ in range(99):
        units.add((0.0, 0.0, 0.5, 0.5))
    with pytest.raises(UsageError, match="--box_units=fraction"):
        units.add((0.0, 0.0, 1.0, 1.0))


def test_fractions_in_coco_and_voc(tmp_path: Path):
    fill(tmp_path, "in/a.jpg")
    content = {
        "images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0.1, 0.1, 0.5, 0.5]}],
    }  # fmt: skip
    (tmp_path / "c.json").write_text(json.dumps(content))
    (tmp_path / "xml").mkdir()
    sides = "<xmin>.1</xmin><ymin>.1</ymin><xmax>.5</xmax><ymax>.5</ymax>"
    (tmp_path / "xml/a.xml").write_text(
        f"<annotation><object><name>cat</name><bndbox>{sides}</bndbox></object></annotation>"
    )
    for notes in ("c.json", "xml"):
        with pytest.raises(UsageError, match="give --box_units=fraction"):
            listed(f"{tmp_path}/in", annotations=(f"{tmp_path}/{notes}",))
        images, _ = listed(
            f"{tmp_path}/in", annotations=(f"{tmp_path}/{notes}",), box_units="fraction"
        )
        assert images["a.jpg"].objects[0].is_fraction
    with pytest.raises(
        UsageError, match="box_format has no effect with layout='voc'; it is for table"
    ):
        listed(f"{tmp_path}/in", annotations=(f"{tmp_path}/xml",), box_format="xywh")
