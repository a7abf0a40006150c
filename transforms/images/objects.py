"""Objects after the geometry: their boxes and masks on the image that is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.encoding import encode_mask
from recordmill.transforms.images.geometry import (
    Box,
    Matrix,
    Size,
    box_around,
    clip,
    keeps_all,
    render,
)
from recordmill.transforms.images.image_spec import USUAL_DRAWN_PIXELS
from recordmill.transforms.images.masks import (
    DrawingLimit,
    Mask,
    bounds,
    check_region,
    draw_polygons,
    region_bounds,
    region_mask,
)
from recordmill.transforms.images.references import ImageObject, Region

_COUNTS = (
    "boxes_clipped", "boxes_dropped_inverted", "boxes_dropped_empty", "boxes_dropped_outside",
    "boxes_dropped_cut",
)  # fmt: skip
_ROUNDING = 0.5  # pixels beyond the image by which a rounded box may lie without being reported


@dataclass(frozen=True, slots=True)
class TransformedObject:
    """An object of an image that is written.

    Attributes:
      label: its class by name.
      number: its class by number.
      box: `(xmin, ymin, xmax, ymax)` in pixels of that image, within it.
      mask: a grey PNG of that image's size, 1 on the object; b"" where its pixels are not known
        or not asked for.
      is_crowd, difficult: as in the source.
      area: in pixels of that image.
    """

    label: str
    number: int
    box: Box
    mask: bytes
    is_crowd: bool
    difficult: bool
    area: float


@dataclass(frozen=True, slots=True)
class PixelTransform:
    """The way from the image that annotations were drawn on to the one written.

    Attributes:
      matrix: from pixels of the one to pixels of the other.
      source_size, output_size: their `(width, height)`.
    """

    matrix: Matrix
    source_size: Size
    output_size: Size


def transform_mask(mask: Mask, transform: PixelTransform) -> Mask:
    """Moves `[height, width] uint8` as the image is moved; 0 where no pixel falls."""
    moved = render(
        Image.fromarray(mask), transform.matrix, transform.output_size,
        resample="nearest", fill=(0, 0, 0),
    )  # fmt: skip
    return np.asarray(moved)


def transform_objects(
    objects: Sequence[ImageObject],
    labels: Mapping[str, int],
    transform: PixelTransform,
    *,
    min_visible: float,
    masks: bool,
    max_drawn_pixels: int = USUAL_DRAWN_PIXELS,
) -> tuple[list[TransformedObject], dict[str, int]]:
    """Moves objects as the image is moved.

    A box is the one around the moved corners, cut at the image's sides. Where the pixels of the
    object are known and the image is turned or cut, it is the box around the pixels that remain.

    Args:
      objects: of the image that they were drawn on.
      labels: class name -> number.
      transform: how the image is moved.
      min_visible: the share of a box's area below which an object is dropped.
      masks: whether they are asked for.
      max_drawn_pixels: of all regions of the image, see `DrawingLimit`.

    Returns:
      The remaining objects, and counts: of `boxes_clipped`, which reached beyond that image;
      and of objects that are dropped, `boxes_dropped_inverted` (xmin > xmax or ymin > ymax),
      `boxes_dropped_empty` (without an area), `boxes_dropped_outside` (of that image) and
      `boxes_dropped_cut` (too little is visible on the written one).

    Raises:
      ImageRejectedError: unknown_label, broken_mask, too_much_to_draw.
    """
    transformed = []
    limit = DrawingLimit(max_drawn_pixels)
    counts = dict.fromkeys(_COUNTS, 0)
    for item in objects:
        if item.label not in labels:
            raise ImageRejectedError("unknown_label", item.label)
        if item.region is not None:
            check_region(item.region, transform.source_size[1], transform.source_size[0])
        box = item.pixel_box(*transform.source_size)
        box = box or region_box(item.region, transform.source_size, limit) or (0.0, 0.0, 0.0, 0.0)
        inside, share = clip(box, transform.source_size)
        if share == 0:
            counts[f"boxes_dropped_{_why_dropped(box)}"] += 1
            continue
        beyond = max(abs(side - kept) for side, kept in zip(box, inside, strict=True))
        counts["boxes_clipped"] += beyond > _ROUNDING
        one = _transform_object(
            item, inside, number=labels[item.label], transform=transform,
            min_visible=min_visible, masks=masks, limit=limit,
        )  # fmt: skip
        if one is None:
            counts["boxes_dropped_cut"] += 1
        else:
            transformed.append(one)
    return transformed, counts


def _transform_object(
    item: ImageObject,
    inside: Box,
    *,
    number: int,
    transform: PixelTransform,
    min_visible: float,
    masks: bool,
    limit: DrawingLimit,
) -> TransformedObject | None:
    """Moves one object whose part inside the stored image is known; None where it is cut away."""
    matrix = transform.matrix
    box, share = clip(box_around(matrix, inside), transform.output_size)
    if share == 0 or share < min_visible:
        return None
    whole = (inside[2] - inside[0]) * (inside[3] - inside[1]) if item.area is None else item.area
    area = whole * abs(matrix.determinant) * share
    mask = b""
    exact = item.box is not None and keeps_all(matrix, transform.source_size, transform.output_size)
    if item.region is not None and (masks or item.area is None or not exact):
        pixels = _transform_region(item.region, transform, limit)
        around = bounds(pixels)
        if not exact:
            if around is None:
                return None
            box = around
        area = area if item.area is not None else float(pixels.sum())
        mask = encode_mask(pixels) if masks else b""
    return TransformedObject(item.label, number, box, mask, item.is_crowd, item.difficult, area)


def _transform_region(region: Region, transform: PixelTransform, limit: DrawingLimit) -> Mask:
    width, height = transform.output_size
    if region.encoding != "polygons":
        stored = region_mask(region, transform.source_size[1], transform.source_size[0], limit)
        limit.spend(width * height)
        return transform_mask(stored, transform)
    moved = [
        transform.matrix.apply(np.asarray(polygon, np.float64).reshape(-1, 2)).reshape(-1).tolist()
        for polygon in region.in_pixels(*transform.source_size).polygons
    ]
    return draw_polygons(moved, height, width, limit)


def _why_dropped(box: Box) -> str:
    """Returns the reason for which a box has no area inside the image."""
    xmin, ymin, xmax, ymax = box
    if xmin > xmax or ymin > ymax:
        return "inverted"
    return "empty" if xmin == xmax or ymin == ymax else "outside"


def region_box(region: Region | None, size: Size, limit: DrawingLimit | None = None) -> Box | None:
    """Returns the box around a region, None where it has no pixel."""
    if region is None:
        return None
    return region_bounds(region, size[1], size[0], limit)
