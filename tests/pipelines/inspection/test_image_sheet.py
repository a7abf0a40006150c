"""Pictures of records: what is drawn where."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.pipelines.inspection.image_sheet import (
    TILE,
    color_of,
    draw,
    draw_sheet,
    drawing_of,
    mask_names_of,
)
from recordmill.records import image_formats
from recordmill.records.image_formats import ImageContent
from recordmill.records.manifest import Manifest

from ...pictures import encoded

GAP = 12
GREY = encoded(Image.new("RGB", (100, 50), (90, 90, 90)), "PNG")


def drawing(values: dict[str, Any], schema: Any = None) -> Any:
    found = drawing_of(values, schema, "train:0")
    assert found
    return found


def differs(picture: Image.Image, box: tuple[int, int, int, int]) -> bool:
    return bool((np.asarray(picture.crop(box)) != 90).any())


@pytest.mark.parametrize("form", ["tfds", "object_detection"])
def test_boxes(form: str) -> None:
    content = ImageContent("detection", ("cat", "dog"), (None, None, 3))
    schema = getattr(image_formats, form)(content)
    if form == "tfds":
        values = {
            "image": [GREY],
            "objects/bbox": np.array([0.5, 0.5, 1.0, 1.0], np.float32),
            "objects/label": np.array([1]),
        }
    else:
        sides = zip(("ymin", "xmin", "ymax", "xmax"), (0.5, 0.5, 1.0, 1.0), strict=True)
        values = {
            f"image/object/bbox/{side}": np.array([share], np.float32) for side, share in sides
        } | {
            "image/encoded": [GREY],
            "image/object/class/label": np.array([1]),
            "image/object/class/text": [b"dog"],
        }
    found = drawing(values, schema)
    assert found.labels == [(1, "dog")]
    picture = draw(found)
    assert picture.size == (TILE, TILE // 2)
    left, top = TILE // 2, TILE // 4
    assert picture.getpixel((left, top + 60)) == color_of(1)
    assert picture.getpixel((left + 80, top)) == color_of(1)
    assert not differs(picture, (0, 0, left - 2, top - 2))


def test_masks() -> None:
    mask = np.zeros((50, 100), np.uint8)
    mask[:, 50:] = 2
    values = {"image": [GREY], "segmentation_mask": [encoded(Image.fromarray(mask), "PNG")]}
    picture = draw(drawing(values))
    assert not differs(picture, (0, 0, TILE // 2 - 2, TILE // 2))
    mixed = [round(90 * 0.55 + 0.45 * part) for part in color_of(2)]
    inside = picture.getpixel((TILE // 2 + 20, 40))
    assert np.abs(np.subtract(inside, mixed)).max() <= 1


def test_raw_pixels_and_floats() -> None:
    content = ImageContent("segmentation", ("a", "b"), (20, 30, 3))
    pixels = np.full((20, 30, 3), 90, np.uint8)
    sizes = {"height": np.array([20]), "width": np.array([30]), "channel": np.array([3])}
    mask = np.zeros((20, 30, 1), np.uint8)
    mask[:10] = 1
    raw = {"image": [pixels.tobytes()], "mask": [mask.tobytes()], **sizes}
    found = drawing(raw, image_formats.raw(content))
    assert found.image.size == (30, 20)
    assert found.mask is not None
    assert (found.mask == mask[..., 0]).all()
    floats = {
        "image": np.linspace(-1, 1, 20 * 30 * 3, dtype=np.float32),
        "mask": np.repeat(mask, 3, axis=2).astype(np.float32).ravel(),
    }
    found = drawing(floats, image_formats.unet(content))
    assert found.mask is not None
    assert (found.mask == mask[..., 0]).all()


def test_a_sheet_of_several() -> None:
    one = drawing({"image": [GREY]})
    assert draw_sheet([one] * 5, columns=3).width == 3 * (2 * TILE + GAP) + GAP  # they are wide
    assert draw_sheet([one]).width == 2 * TILE + 2 * GAP


def test_pictures_lie_apart_and_rows_are_as_high_as_they() -> None:
    """A wide picture leaves no white stripe, and two do not touch."""
    black = encoded(Image.new("RGB", (1600, 256)), "PNG")
    sheet = draw_sheet([drawing({"image": [black]})] * 4, columns=2)
    assert (np.asarray(sheet) == 0).all(axis=2).mean() > 0.6
    row = np.asarray(sheet)[GAP + 10]
    assert (row[2 * TILE + GAP : 2 * TILE + 2 * GAP] == 255).all()


def test_colours_of_masks_are_explained() -> None:
    mask = np.zeros((50, 100), np.uint8)
    mask[:, 80:] = 2
    values = {"image": [GREY], "segmentation_mask": [encoded(Image.fromarray(mask), "PNG")]}
    found = drawing_of(values, None, "train:0\na/long/name.png", {0: "background", 2: "crack"})
    assert found
    assert found.describe_mask() == "background: 80.0% of pixels, crack: 20.0% of pixels"
    plain, sheet = draw_sheet([drawing({"image": [GREY]})]), draw_sheet([found])
    below = np.asarray(sheet)[-30:]
    assert (below == color_of(2)).all(axis=2).any()
    assert sheet.height > plain.height
    outline = np.asarray(draw(found)) == color_of(2)
    assert outline.all(axis=2).any()
    assert not drawing({"image": [GREY]}).describe_mask()


def test_names_of_masks_come_from_the_manifest() -> None:
    config = {"images": {"labels": {"crack": 1}}}
    manifest = Manifest("ds", config, "", [], "", {}, {}, {}, {})
    assert mask_names_of(manifest) == {0: "background", 1: "crack"}
    assert mask_names_of(None) == {}


def test_no_image() -> None:
    assert drawing_of({"label": np.array([1])}, None, "") is None
    assert drawing_of({"image": [b"\xff\xd8\xff broken"]}, None, "") is None
    assert Image.open(io.BytesIO(GREY)).size == (100, 50)
