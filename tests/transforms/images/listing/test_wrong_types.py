"""Annotations with values of wrong types, cut or damaged: rejects or one line, no traceback."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.dataset.labels import read_labels
from recordmill.transforms.images.listing.list_images import SourceSpec, label_names
from recordmill.transforms.images.listing.voc import parse_voc
from recordmill.transforms.images.listing.yolo import class_names, parse_yolo

from ....mutations import with_value, wrong_bytes, wrong_json
from ..image_trees import fill, listed

COCO: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
    "categories": [{"id": 18, "name": "dog"}, {"id": 2, "name": "zebra"}],
    "annotations": [
        {
            "id": 1, "image_id": 1, "category_id": 18, "bbox": [1, 2, 3, 4], "area": 12.0,
            "iscrowd": 0, "segmentation": [[1, 2, 3, 4, 5, 6]],
        },
        {
            "id": 2, "image_id": 2, "category_id": 2, "bbox": [5.5, 2, 30, 40], "area": 100,
            "iscrowd": 1, "segmentation": {"size": [10, 10], "counts": [50, 50]},
        },
    ],
}  # fmt: skip
FIELDS = ("bbox", "area", "segmentation")
VOC = b"""<?xml version="1.0" encoding="UTF-8"?>
<annotation><filename>a.jpg</filename><object><name>dog</name><difficult>0</difficult>
<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>
<polygon><x1>1</x1><y1>1</y1><x2>9</x2><y2>1</y2><x3>9</x3><y3>9</y3></polygon>
</object></annotation>"""
CSV = b"path,label,xmin,ymin,xmax,ymax\na.jpg,dog,1,2,30,40\nb.jpg,cat,1.5,2,30,40\n"


def one_line(error: Exception) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 1500


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return fill(tmp_path / "images", "a.jpg", "b.jpg")


def listed_coco(images: Path, data: bytes) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    path = images.parent / "instances.json"
    path.write_bytes(data)
    return listed(str(images), layout="coco", annotations=(str(path),))


def number_of(value: Any) -> bool:
    return type(value) in (int, float) or value in ("-1",)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bbox", [1, 2, 1e308, 1e308]), ("bbox", [float("nan"), 2, 3, 4]), ("bbox", [1, 2, 3]),
        ("bbox", [1, 2, 3, {}]), ("bbox", {"x": 1}), ("bbox", 7), ("bbox", [1e300, 1, 1, 1]),
        ("area", float("inf")), ("area", [1]), ("area", {}), ("area", "x"),
        ("segmentation", {"size": [1e300, 1], "counts": [1]}), ("segmentation", [[1e308] * 6]),
        ("segmentation", {"size": [10, 10], "counts": [1e300, 5]}), ("segmentation", [["x"] * 6]),
        ("segmentation", {"size": [10, 10]}), ("segmentation", 7), ("segmentation", [[1, 2]]),
        ("segmentation", {"size": 10, "counts": [100]}), ("segmentation", [{"a": 1}]),
        ("segmentation", {"size": [10, 10], "counts": {"a": 1}}), ("category_id", [18]),
        ("category_id", {"id": 18}), ("category_id", True), ("iscrowd", [0]),
    ],
)  # fmt: skip
def test_a_wrong_annotation_rejects_its_image(images: Path, field: str, value: Any) -> None:
    content = json.loads(json.dumps(COCO))
    content["annotations"][0][field] = value
    found, rejects = listed_coco(images, json.dumps(content).encode())
    assert list(found) == ["b.jpg"]
    assert rejects == [("a.jpg", "bad_row")]


def test_an_annotation_of_nobody_is_a_reject_of_its_own(images: Path) -> None:
    for value in ([1], {"id": 1}, None, 99, "1", True):
        content = json.loads(json.dumps(COCO))
        content["annotations"].append({"image_id": value, "category_id": 18})
        found, rejects = listed_coco(images, json.dumps(content).encode())
        assert sorted(found) == ["a.jpg", "b.jpg"]
        assert rejects == [("instances.json#2", "bad_row")]
    content["annotations"][2] = [7]
    assert listed_coco(images, json.dumps(content).encode())[1][0][0] == "instances.json#2"


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("images", 1, "id"), [1], r"images\[1\].id must be .* and is a list"),
        (("images", 1, "id"), {"a": 1}, r"images\[1\].id must be .* and is an object"),
        (("images", 1, "file_name"), 7, r"images\[1\].file_name must be text, and is an integer"),
        (("images", 1), None, r"images\[1\] must be an object, and is null"),
        (("images",), {}, "images must be a list, and is an object"),
        (("annotations",), None, "annotations must be a list, and is null"),
        (("categories", 0, "id"), [], r"categories\[0\].id must be"),
        (("categories", 0, "name"), ["dog"], r"categories\[0\].name must be text, and is a list"),
        (("categories", 0, "id"), "18", "ids of categories that are all numbers or all text"),
        (("images", 1, "id"), 1, "image 1 once"),
        ((), [], "the whole must be an object, and is a list"),
    ],
)  # fmt: skip
def test_a_wrong_list_is_refused_with_its_field(
    images: Path, path: tuple[Any, ...], value: Any, line: str
) -> None:
    with pytest.raises(UsageError, match=f"instances.json must .*{line}") as info:
        listed_coco(images, with_value(COCO, path, value))
    one_line(info.value)


def test_nan_rejects_only_its_image(images: Path) -> None:
    data = json.dumps(COCO).replace("12.0", "NaN").encode()
    found, rejects = listed_coco(images, data)
    assert list(found) == ["b.jpg"]
    assert rejects == [("a.jpg", "bad_row")]
    whole, _ = listed_coco(images, json.dumps(COCO).encode())
    other = {**COCO, "info": float("nan")}
    assert listed_coco(images, json.dumps(other).encode())[0] == whole


def test_numbers_as_text_are_read_as_before(images: Path) -> None:
    content = json.loads(json.dumps(COCO))
    content["annotations"][0] |= {"bbox": ["1", 2, "3.0", 4], "area": "12", "iscrowd": True}
    found, rejects = listed_coco(images, json.dumps(content).encode())
    assert not rejects
    assert found["a.jpg"].objects[0].box == (1.0, 2.0, 4.0, 6.0)
    assert found["a.jpg"].objects[0].area == 12.0
    assert found["a.jpg"].objects[0].is_crowd


@settings(max_examples=150)
@given(data=wrong_json(COCO))
def test_any_wrong_coco(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    base = tmp_path_factory.mktemp("coco")
    try:
        found, rejects = listed_coco(fill(base / "images", "a.jpg", "b.jpg"), data)
        assert {"a.jpg", "b.jpg"} <= {*found, *(source for source, _ in rejects)}
    except (UsageError, RunError) as error:
        one_line(error)


@pytest.mark.parametrize(
    "data",
    [
        VOC.replace(b"UTF-8", b"klingon"), VOC.replace(b"UTF-8", b"UTF-32"),
        VOC.replace(b"UTF-8", b"utf-7"), VOC.replace(b"UTF-8", b"hex"),
        VOC.decode().encode("utf-16"),
        VOC.replace(b"UTF-8", b"idna"), VOC.replace(b"UTF-8", b"shift_jis"), b"", b"\0",
        VOC.replace(b"30", b"1e308"), VOC.replace(b"30", b"nan"), VOC.replace(b">9<", b">1e400<"),
        b"<annotation>" + b"<object>" * 100_000,
    ],
)  # fmt: skip
def test_wrong_xml_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as info:
        parse_voc(data)
    one_line(info.value)


@settings(max_examples=150)
@given(data=wrong_bytes(VOC))
def test_any_wrong_xml(data: bytes) -> None:
    try:
        for item in parse_voc(data):
            assert item.label
            assert item.box
    except ValueError as error:
        one_line(error)


@settings(max_examples=100)
@given(data=wrong_bytes(b"0 0.5 0.5 0.25 0.25\n1 0.1 0.2 0.3 0.4 0.5 0.6\n"))
def test_any_wrong_yolo(data: bytes) -> None:
    try:
        parse_yolo(data.decode("utf-8-sig"), ["dog", "cat"])
    except ValueError as error:
        one_line(error)


@settings(max_examples=100)
@given(
    data=wrong_bytes(b"path: x\nnames:\n  0: dog\n  1: cat\n")
    | wrong_bytes(b"names: [dog, 'cat', 3]\n")
    | st.just(b"names:\n  " + b"9" * 5000 + b": dog\n")
    | st.just(b"names: [" + b"[" * 100_000 + b"]\n")
)
def test_any_wrong_names(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    base = tmp_path_factory.mktemp("yolo")
    (base / "data.yaml").write_bytes(data)
    try:
        names = class_names(SourceSpec(patterns=(str(base),), layout="yolo"))
        assert all(type(name) is str for name in names)
    except UsageError as error:
        one_line(error)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
    ".zst": lambda data: zstd.compress(
        data, options={zstd.CompressionParameter.checksum_flag: 1}
    ),
}  # fmt: skip


def listed_table(base: Path, name: str, data: bytes) -> None:
    images = fill(base / "images", "a.jpg", "b.jpg")
    (base / name).write_bytes(data)
    try:
        found, rejects = listed(str(images), layout="table", annotations=(str(base / name),))
        assert {"a.jpg", "b.jpg"} <= {*found, *(source for source, _ in rejects)}
    except (UsageError, RunError) as error:
        one_line(error)


@pytest.mark.parametrize("extension", [name for name in COMPRESSIONS if name])
def test_a_damaged_table_is_refused(tmp_path: Path, extension: str) -> None:
    images = fill(tmp_path / "images", "a.jpg", "b.jpg")
    table = tmp_path / f"t.csv{extension}"
    whole = COMPRESSIONS[extension](CSV * 50)
    middle = len(whole) // 2
    damaged = whole[:middle] + bytes(255 - b for b in whole[middle : middle + 8])
    for data in (whole[: len(whole) - 9], damaged + whole[middle + 8 :], b"x" * 40):
        table.write_bytes(data)
        with pytest.raises(UsageError, match=rf"{table.name} cannot be read: .") as info:
            listed(str(images), layout="table", annotations=(str(table),))
        one_line(info.value)


@settings(max_examples=100)
@given(data=st.data(), extension=st.sampled_from(sorted(COMPRESSIONS)))
def test_any_wrong_table(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, extension: str
) -> None:
    content = data.draw(wrong_bytes(COMPRESSIONS[extension](CSV)))
    listed_table(tmp_path_factory.mktemp("table"), f"t.csv{extension}", content)


@settings(max_examples=100)
@given(row=wrong_json({"path": "a.jpg", "label": "dog", "bbox": [1, 2, 3, 4]}))
def test_any_wrong_row(tmp_path_factory: pytest.TempPathFactory, row: bytes) -> None:
    other = b'{"path": "b.jpg", "label": "cat", "bbox": [1, 2, 3, 4]}\n'
    listed_table(tmp_path_factory.mktemp("table"), "t.jsonl", other + row + b"\n")


@pytest.mark.parametrize("row", [{"ImageId": "a.jpg"}, {"EncodedPixels": "1 2"}, {"ClassId": 1}])
def test_a_row_of_severstal_without_fields(tmp_path: Path, row: dict[str, Any]) -> None:
    images = fill(tmp_path / "images", "a.jpg")
    table = tmp_path / "train.jsonl"
    first = {"ImageId": "a.jpg", "ClassId": 1, "EncodedPixels": f"{2**70} 5"}
    table.write_text("".join(json.dumps(line) + "\n" for line in (first, row)))
    found, rejects = listed(str(images), layout="severstal", annotations=(str(table),))
    assert not found
    assert ("a.jpg", "bad_row") in rejects


BREAKS = ("\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029")


@pytest.mark.parametrize("character", BREAKS)
@pytest.mark.parametrize("way", ["coco", "voc", "folder", "table", "yolo", "given"])
def test_a_label_of_two_lines_is_refused(tmp_path: Path, way: str, character: str) -> None:
    label = f"do{character}g"
    images = fill(tmp_path / "images", "a.jpg")
    flags: dict[str, Any] = {"layout": way}
    patterns = (str(images),)
    if way == "coco":
        flags["annotations"] = (str(tmp_path / "c.json"),)
        content = json.loads(json.dumps(COCO))
        content["categories"][0]["name"] = label
        (tmp_path / "c.json").write_text(json.dumps(content))
    elif way == "voc":
        flags["annotations"] = (str(tmp_path / "xml"),)
        (tmp_path / "xml").mkdir()
        entity = label if character in "\n\u2028\u2029\x85" else "do&#10;g"  # XML has no others
        (tmp_path / "xml/a.xml").write_text(VOC.decode().replace("dog", entity), newline="")
    elif way == "folder":
        patterns = (str(fill(tmp_path / "tree", f"{label}/a.jpg")),)
        flags = {"layout": "folders"}
    elif way == "table":
        flags["annotations"] = (str(tmp_path / "t.jsonl"),)
        (tmp_path / "t.jsonl").write_text(json.dumps({"path": "a.jpg", "label": label}))
    elif way == "yolo":
        if character in "\n":
            return  # two names, one a line
        fill(tmp_path / "images", "labels/a.txt")
        (tmp_path / "images/labels/a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
        (tmp_path / "images/classes.txt").write_text(f"{label}\ncat\n", newline="")
    else:
        if character in "\n":
            return
        (tmp_path / "labels.txt").write_text(f"{label}\ncat\n", newline="")
        flags = {"labels": read_labels(str(tmp_path / "labels.txt"), kinds="none")}
    spec = SourceSpec(patterns=patterns, **flags)
    found, _ = listed(*patterns, **flags)
    occurring = {item.label for image in found.values() for item in image.objects}
    occurring |= {label for image in found.values() for label in image.labels}
    with pytest.raises(UsageError, match="labels must have neither control characters nor line"):
        label_names(spec, occurring)
