"""Objects after the geometry: their boxes and masks on the image that is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from recordmill.transforms.image_decoding import ImageRejectedError
from recordmill.transforms.image_encoding import encode_mask
from recordmill.transforms.image_geometry import (
    Box,
    Matrix,
    Size,
    box_around,
    clip,
    keeps_all,
    render,
)
from recordmill.transforms.image_masks import (
    Mask,
    bounds,
    check_region,
    draw_polygons,
    region_mask,
)
from recordmill.transforms.image_references import ImageObject, Region


@dataclass(frozen=True, slots=True)
class PlacedObject:
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
class Placement:
    """The way from the stored image to the one written.

    Attributes:
      matrix: from pixels of the one to pixels of the other.
      before, after: their `(width, height)`.
    """

    matrix: Matrix
    before: Size
    after: Size


def place_mask(mask: Mask, placement: Placement) -> Mask:
    """Moves `[height, width] uint8` as the image is moved; 0 where no pixel falls."""
    moved = render(
        Image.fromarray(mask), placement.matrix, placement.after,
        resample="nearest", fill=(0, 0, 0),
    )  # fmt: skip
    return np.asarray(moved)


def place_objects(
    objects: Sequence[ImageObject],
    labels: Mapping[str, int],
    placement: Placement,
    *,
    min_visible: float,
    masks: bool,
) -> tuple[list[PlacedObject], dict[str, int]]:
    """Moves objects as the image is moved.

    A box is the one around the moved corners, cut at the image's sides. Where the pixels of the
    object are known and the image is turned or cut, it is the box around what is left of them.

    Args:
      objects: of the stored image.
      labels: class name -> number.
      placement: how the image is moved.
      min_visible: the share of a box's area below which an object is dropped.
      masks: whether they are asked for.

    Returns:
      What is left, and counts of what is not: `objects_empty`, without an area inside the image,
      and `objects_cut`, of which too little is seen.

    Raises:
      ImageRejectedError: unknown_label, broken_mask.
    """
    placed = []
    counts = {"objects_empty": 0, "objects_cut": 0}
    for item in objects:
        if item.label not in labels:
            raise ImageRejectedError("unknown_label", item.label)
        if item.region is not None:
            check_region(item.region, placement.before[1], placement.before[0])
        box = item.box or _region_box(item.region, placement.before)
        inside, share = clip(box, placement.before) if box else ((0.0,) * 4, 0.0)
        if share == 0:
            counts["objects_empty"] += 1
            continue
        found = _place(
            item, inside, number=labels[item.label], placement=placement,
            min_visible=min_visible, masks=masks,
        )  # fmt: skip
        if found is None:
            counts["objects_cut"] += 1
        else:
            placed.append(found)
    return placed, counts


def _place(
    item: ImageObject,
    inside: Box,
    *,
    number: int,
    placement: Placement,
    min_visible: float,
    masks: bool,
) -> PlacedObject | None:
    """Moves one object whose part inside the stored image is known; None where it is cut away."""
    matrix = placement.matrix
    box, share = clip(box_around(matrix, inside), placement.after)
    if share == 0 or share < min_visible:
        return None
    whole = (inside[2] - inside[0]) * (inside[3] - inside[1]) if item.area is None else item.area
    area = whole * abs(matrix.determinant) * share
    mask = b""
    exact = item.box is not None and keeps_all(matrix, placement.before, placement.after)
    if item.region is not None and (masks or item.area is None or not exact):
        pixels = _place_region(item.region, placement)
        around = bounds(pixels)
        if not exact:
            if around is None:
                return None
            box = around
        area = area if item.area is not None else float(pixels.sum())
        mask = encode_mask(pixels) if masks else b""
    return PlacedObject(item.label, number, box, mask, item.is_crowd, item.difficult, area)


def _place_region(region: Region, placement: Placement) -> Mask:
    width, height = placement.after
    if region.encoding != "polygons":
        stored = region_mask(region, placement.before[1], placement.before[0])
        return place_mask(stored, placement)
    moved = [
        placement.matrix.apply(np.asarray(polygon, np.float64).reshape(-1, 2)).reshape(-1).tolist()
        for polygon in region.polygons
    ]
    return draw_polygons(moved, height, width)


def _region_box(region: Region | None, size: Size) -> Box | None:
    """Returns the box around a region, None where it has no pixel."""
    if region is None:
        return None
    return bounds(region_mask(region, size[1], size[0]))
