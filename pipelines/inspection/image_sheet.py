"""Images of records as one picture, with their masks and boxes drawn."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageOps

from recordmill.pipelines.inspection.example_lines import is_image
from recordmill.records.schema import Schema

TILE = 320
_CAPTION = 18
_MASK_SHARE = 0.45
_MASKS = ("segmentation_mask", "image/segmentation/class/encoded", "mask")
_IMAGES = ("image", "image/encoded")
_SIDES = ("ymin", "xmin", "ymax", "xmax")
_NO_CLASS = 255


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn for a record.

    Attributes:
      image: RGB.
      mask: `[height, width] uint8`, the class of each pixel, 0 is background; None without one.
      boxes: `[num_boxes, 4] float32`, (ymin, xmin, ymax, xmax) in [0, 1].
      labels: the class of each box by number and by name.
      caption: the line below.
    """

    image: Image.Image
    mask: npt.NDArray[np.uint8] | None
    boxes: npt.NDArray[np.float32]
    labels: Sequence[tuple[int, str]]
    caption: str


def color_of(number: int) -> tuple[int, int, int]:
    """Returns the colour of a class: neighbours differ as much as golden angles do."""
    red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.85, 1.0)
    return int(red * 255), int(green * 255), int(blue * 255)


def drawing_of(values: Mapping[str, Any], schema: Schema | None, caption: str) -> Drawing | None:
    """Returns what is drawn for the values of a record, None where it has no image.

    Args:
      values: feature -> values, as `parse_any` returns them.
      schema: of the dataset, None where no manifest has one.
      caption: the line below the picture.
    """
    image = _image(values, schema)
    if image is None:
        return None
    boxes = boxes_of(values)
    return Drawing(image, _mask(values, schema, image), boxes, _labels(values, schema), caption)


def _image(values: Mapping[str, Any], schema: Schema | None) -> Image.Image | None:
    names = [name for name in (*_IMAGES, *sorted(values)) if len(values.get(name, ()))]
    for name in names:
        if name not in _MASKS and is_image(values[name][0]):
            return _decoded(values[name][0], "RGB")
    for name in names:
        pixels = _pixels(values, schema, name)
        if pixels is not None:
            return pixels.convert("RGB")
    return None


def _decoded(data: bytes, mode: str) -> Image.Image | None:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.convert(mode)
    except Exception:
        return None


def _pixels(values: Mapping[str, Any], schema: Schema | None, name: str) -> Image.Image | None:
    """Returns raw pixels, or floats of one size for all, as an image."""
    names = [feature.name for feature in schema.features] if schema else []
    if schema is None or name not in names:
        return None
    feature = schema[name]
    shape = feature.image_shape or feature.shape
    if len(shape) != 3 or feature.kind == "image":
        return None
    if feature.kind == "pixels":
        flat = np.frombuffer(values[name][0], np.uint8)
    else:
        numbers = np.asarray(values[name], np.float64)
        low, high = float(numbers.min()), float(numbers.max())
        flat = ((numbers - low) / max(high - low, 1e-9) * 255).astype(np.uint8)
    sides = [
        int(size if size is not None else values[key][0])
        for size, key in zip(shape, ("height", "width", "channel"), strict=True)
    ]
    if flat.size != np.prod(sides):
        return None
    pixels = flat.reshape(sides)
    return Image.fromarray(pixels[..., 0] if sides[2] == 1 else pixels[..., :3])


def _mask(
    values: Mapping[str, Any], schema: Schema | None, image: Image.Image
) -> npt.NDArray[np.uint8] | None:
    for name in _MASKS:
        stored = values.get(name, ())
        if not len(stored):
            continue
        if isinstance(stored, list) and is_image(stored[0]):
            mask = _decoded(stored[0], "L")
        elif isinstance(stored, list):
            mask = _pixels(values, schema, name)
        else:
            classes = np.asarray(stored)
            each = classes.size // (image.width * image.height) or 1
            if classes.size != image.width * image.height * each:
                continue
            grid = classes.reshape(image.height, image.width, each)[..., 0]
            mask = Image.fromarray(grid.astype(np.uint8))
        if mask is not None:
            return np.asarray(mask.resize(image.size, Image.Resampling.NEAREST).convert("L"))
    return None


def boxes_of(values: Mapping[str, Any]) -> npt.NDArray[np.float32]:
    """Returns the boxes of a record, `[num_boxes, 4] float32`, (ymin, xmin, ymax, xmax)."""
    if len(values.get("objects/bbox", ())):
        return np.asarray(values["objects/bbox"], np.float32).reshape(-1, 4)
    sides = [values.get(f"image/object/bbox/{side}", ()) for side in _SIDES]
    if len({len(side) for side in sides}) != 1:
        return np.zeros((0, 4), np.float32)
    return np.stack([np.asarray(side, np.float32) for side in sides], axis=-1).reshape(-1, 4)


def _labels(values: Mapping[str, Any], schema: Schema | None) -> list[tuple[int, str]]:
    for name in ("objects/label", "image/object/class/label"):
        numbers = [int(number) for number in values.get(name, ())]
        if not numbers:
            continue
        texts = [
            text.decode("utf-8", "replace") for text in values.get("image/object/class/text", ())
        ]
        known = schema[name].classes if schema else ()
        named = [known[number] if number < len(known) else str(number) for number in numbers]
        return list(zip(numbers, texts if len(texts) == len(numbers) else named, strict=True))
    return []


def draw_sheet(drawings: Sequence[Drawing], columns: int = 0) -> Image.Image:
    """Returns one picture of all drawings, in rows.

    Args:
      drawings: at least one.
      columns: the number in a row; 0: as many as make the sheet about square, 6 at most.
    """
    columns = columns or min(6, max(1, round(len(drawings) ** 0.5 + 0.49)))
    rows = -(-len(drawings) // columns)
    width, height = min(columns, len(drawings)) * TILE, rows * (TILE + _CAPTION)
    sheet = Image.new("RGB", (width, height), "white")
    for i, drawing in enumerate(drawings):
        corner = (i % columns * TILE, i // columns * (TILE + _CAPTION))
        picture = draw(drawing)
        left = corner[0] + (TILE - picture.width) // 2
        sheet.paste(picture, (left, corner[1] + (TILE - picture.height) // 2))
        at = (corner[0] + 4, corner[1] + TILE + 2)
        ImageDraw.Draw(sheet).text(at, _printable(drawing.caption)[:52], fill="black")
    return sheet


def draw(drawing: Drawing, side: int = TILE) -> Image.Image:
    """Returns a picture of at most `side` x `side` pixels with its mask and its boxes."""
    image = drawing.image
    size = ImageOps.contain(image, (side, side)).size
    picture = image.resize(size)
    if drawing.mask is not None:
        mask = Image.fromarray(drawing.mask).resize(size, Image.Resampling.NEAREST)
        picture = _with_mask(picture, np.asarray(mask))
    pen = ImageDraw.Draw(picture)
    for box, (number, name) in zip(drawing.boxes, _padded(drawing), strict=False):
        top, left, bottom, right = (
            float(share) * length for share, length in zip(box, (size[1], size[0]) * 2, strict=True)
        )
        corners = (min(left, right), min(top, bottom), max(left, right), max(top, bottom))
        pen.rectangle(corners, outline=color_of(number), width=2)
        _write_name(pen, (corners[0], corners[1]), _printable(name), color_of(number))
    return picture


def _write_name(
    pen: ImageDraw.ImageDraw, corner: tuple[float, float], name: str, color: tuple[int, int, int]
) -> None:
    """Writes the name of a box on its colour, in black or white, whichever can be read."""
    if name:
        _, _, right, bottom = pen.textbbox((corner[0] + 3, corner[1] + 1), name)
        pen.rectangle((corner[0], corner[1], right + 2, bottom + 2), fill=color)
        red, green, blue = color
        bright = 299 * red + 587 * green + 114 * blue > 128_000  # ITU-R BT.601
        pen.text((corner[0] + 3, corner[1] + 1), name, fill="black" if bright else "white")


def _padded(drawing: Drawing) -> list[tuple[int, str]]:
    return [*drawing.labels, *[(0, "")] * (len(drawing.boxes) - len(drawing.labels))]


def _with_mask(picture: Image.Image, mask: npt.NDArray[np.uint8]) -> Image.Image:
    colors = np.array([color_of(number) for number in range(256)], np.float32)
    colors[_NO_CLASS] = 128
    pixels = np.asarray(picture, np.float32)
    mixed = pixels * (1 - _MASK_SHARE) + colors[mask] * _MASK_SHARE
    return Image.fromarray(np.where(mask[..., None] > 0, mixed, pixels).astype(np.uint8))


def _printable(text: str) -> str:
    """Returns text that Pillow's built-in font can draw."""
    return text.encode("latin-1", "replace").decode("latin-1")
