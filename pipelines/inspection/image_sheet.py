"""Images of records as one picture, with their masks and boxes drawn."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageOps

from recordmill.pipelines.inspection.example_lines import MASKS, is_image
from recordmill.records.manifest import Manifest
from recordmill.records.schema import Schema

TILE = 320
_GAP = 12
_LINE = 16
_MASK_SHARE = 0.45
_OUTLINE = 2  # pixels, in the full colour of the class: a tint alone is lost on dark pictures
_WIDE = 2.0  # pictures as wide as this, in their median, have tiles of twice the width
_LETTER = 6.2  # pixels of Pillow's font, about
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
      caption: the lines below.
      mask_names: class -> name of the classes that masks hold.
    """

    image: Image.Image
    mask: npt.NDArray[np.uint8] | None
    boxes: npt.NDArray[np.float32]
    labels: Sequence[tuple[int, str]]
    caption: str
    mask_names: Mapping[int, str] = field(default_factory=dict)

    def describe_mask(self) -> str:
        """Returns the share of pixels of each class of the mask, "" without a mask."""
        if self.mask is None:
            return ""
        counts = np.bincount(self.mask.ravel(), minlength=256)
        shares = [(number, counts[number] / counts.sum()) for number in np.flatnonzero(counts)]
        return ", ".join(f"{self.mask_name(int(n))}: {share:.1%} of pixels" for n, share in shares)

    def mask_name(self, number: int) -> str:
        """Returns the name of a class of the mask, or its number."""
        if number in self.mask_names:
            return self.mask_names[number]
        return "no class" if number == _NO_CLASS else f"class {number}"


def mask_names_of(manifest: Manifest | None) -> dict[int, str]:
    """Returns class -> name of the masks of a dataset, {} where its manifest has none."""
    images = manifest.config.get("images") if manifest else None
    labels = images.get("labels") if isinstance(images, dict) else None
    if not isinstance(labels, dict):
        return {}
    named = {number: str(name) for name, number in labels.items() if isinstance(number, int)}
    return {0: "background"} | named if named else {}


def color_of(number: int) -> tuple[int, int, int]:
    """Returns the colour of a class: neighbours differ as much as golden angles do."""
    red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.85, 1.0)
    return int(red * 255), int(green * 255), int(blue * 255)


def drawing_of(
    values: Mapping[str, Any],
    schema: Schema | None,
    caption: str,
    mask_names: Mapping[int, str] | None = None,
) -> Drawing | None:
    """Returns what is drawn for the values of a record, None where it has no image.

    Args:
      values: feature -> values, as `parse_any` returns them.
      schema: of the dataset, None where no manifest has one.
      caption: the lines below the picture.
      mask_names: from `mask_names_of`.
    """
    image = _image(values, schema)
    if image is None:
        return None
    boxes = boxes_of(values)
    mask, labels = _mask(values, schema, image), _labels(values, schema)
    return Drawing(image, mask, boxes, labels, caption, mask_names or {})


def _image(values: Mapping[str, Any], schema: Schema | None) -> Image.Image | None:
    names = [name for name in (*_IMAGES, *sorted(values)) if len(values.get(name, ()))]
    for name in names:
        if name not in MASKS and is_image(values[name][0]):
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
    for name in MASKS:
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
    """Returns one picture of all drawings, in rows, with the colours of masks below.

    Args:
      drawings: at least one.
      columns: the number in a row; 0: as many as make the sheet about square, 6 at most.
    """
    aspects = [drawing.image.width / drawing.image.height for drawing in drawings]
    wide = 2 if np.median(aspects) >= _WIDE else 1
    columns = columns or min(6, max(1, round((len(drawings) / wide) ** 0.5 + 0.49)))
    columns = min(columns, len(drawings))
    pictures = [draw(drawing, TILE, wide=wide) for drawing in drawings]
    captions = [_lines_of(drawing.caption, wide) for drawing in drawings]
    rows = [range(i, min(i + columns, len(drawings))) for i in range(0, len(drawings), columns)]
    # A row is as high as its highest picture: wide ones would lie between empty stripes.
    heights = [
        max(pictures[i].height for i in row) + _LINE * max(len(captions[i]) for i in row)
        for row in rows
    ]
    width = columns * (wide * TILE + _GAP) + _GAP
    legend = _legend(drawings, width)
    height = sum(heights) + _GAP * (len(rows) + 1) + legend.height
    sheet = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(sheet)
    top = _GAP
    for row, row_height in zip(rows, heights, strict=True):
        for column, i in enumerate(row):
            left = _GAP + column * (wide * TILE + _GAP)
            sheet.paste(pictures[i], (left, top))
            for number, line in enumerate(captions[i]):
                at = (left, top + pictures[i].height + 2 + number * _LINE)
                pen.text(at, line, fill="black")
        top += row_height + _GAP
    sheet.paste(legend, (0, top))
    return sheet


def _lines_of(caption: str, wide: int) -> list[str]:
    """Returns the lines of a caption; of a long one its end, which tells files apart."""
    most = int(wide * TILE / _LETTER)
    lines = [_printable(line) for line in caption.splitlines()]
    return [line if len(line) <= most else f"...{line[3 - most :]}" for line in lines]


def _legend(drawings: Sequence[Drawing], width: int) -> Image.Image:
    """Returns the colours of the classes that the masks hold, of no height without any."""
    names: dict[int, str] = {}
    for drawing in drawings:
        if drawing.mask is not None:
            for number in np.unique(drawing.mask).tolist():
                if number:
                    names[number] = _printable(drawing.mask_name(number))
    spots = []
    left, top = _GAP, 0
    for number, name in sorted(names.items()):
        wide = 22 + int(len(name) * _LETTER) + _GAP
        if left + wide > width and left > _GAP:
            left, top = _GAP, top + _LINE + 4
        spots.append((left, top, number, name))
        left += wide
    legend = Image.new("RGB", (width, top + _LINE + _GAP if spots else 0), "white")
    pen = ImageDraw.Draw(legend)
    for left, top, number, name in spots:
        pen.rectangle((left, top, left + 14, top + 12), fill=_mask_color(number))
        pen.text((left + 20, top), name, fill="black")
    return legend


def _mask_color(number: int) -> tuple[int, int, int]:
    return (128, 128, 128) if number == _NO_CLASS else color_of(number)


def draw(drawing: Drawing, side: int = TILE, *, wide: int = 1) -> Image.Image:
    """Returns a picture with its mask and its boxes.

    Args:
      drawing: what is drawn.
      side: the most pixels of height; `wide` times as many are the most of width.
      wide: 1 or more.
    """
    image = drawing.image
    size = ImageOps.contain(image, (wide * side, side)).size
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
    """Returns a picture with each class of a mask as a tint, and its outline in full colour."""
    colors = np.array([_mask_color(number) for number in range(256)], np.float32)[mask]
    pixels = np.asarray(picture, np.float32)
    mixed = pixels * (1 - _MASK_SHARE) + colors * _MASK_SHARE
    edge = np.zeros(mask.shape, np.bool_)
    for step in range(1, _OUTLINE + 1):
        down = mask[step:] != mask[:-step]
        across = mask[:, step:] != mask[:, :-step]
        edge[step:] |= down
        edge[:-step] |= down
        edge[:, step:] |= across
        edge[:, :-step] |= across
    shown = np.where(edge[..., None], colors, mixed)
    return Image.fromarray(np.where(mask[..., None] > 0, shown, pixels).astype(np.uint8))


def _printable(text: str) -> str:
    """Returns text that Pillow's built-in font can draw."""
    return text.encode("latin-1", "replace").decode("latin-1")
