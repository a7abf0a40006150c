"""Regions of objects and classes to masks: Severstal's runs, COCO's polygons and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.references import Region

Mask = npt.NDArray[np.uint8]

_FAR = 16  # times the image's size: no annotation is out there, and rasterizing it costs gigabytes


def region_mask(region: Region, height: int, width: int) -> Mask:
    """Returns `[height, width] uint8`, 1 on the region.

    Raises:
      ImageRejectedError: broken_mask, where the region is not one of such an image.
    """
    if region.encoding == "polygons":
        polygons = region.in_pixels(width, height).polygons
        check_polygons(polygons, height, width)
        return draw_polygons(polygons, height, width)
    return _fill(_counts(region, height, width), height, width)


def check_region(region: Region, height: int, width: int) -> None:
    """Checks a region as `region_mask` does, without drawing it, so that all uses reject the same.

    Raises:
      ImageRejectedError: broken_mask, where the region is not one of such an image.
    """
    if region.encoding == "polygons":
        check_polygons(region.in_pixels(width, height).polygons, height, width)
    else:
        _counts(region, height, width)


def _counts(region: Region, height: int, width: int) -> list[int]:
    """Returns the lengths of runs of zeros and ones, in turn, down the columns."""
    if region.size not in ((0, 0), (height, width)):
        raise ImageRejectedError(
            "broken_mask", f"a region of {region.size[1]} x {region.size[0]} pixels"
        )
    if region.encoding == "runs":
        counts = _severstal_counts(region.runs, height * width)
    else:
        counts = _coco_counts(region.runs)
    if sum(counts) != height * width or min(counts, default=0) < 0:
        raise ImageRejectedError(
            "broken_mask", f"runs of {sum(counts)} pixels in an image of {height * width}"
        )
    return counts


def check_polygons(polygons: Sequence[Sequence[float]], height: int, width: int) -> None:
    """Refuses what COCO's tools would crash on, or need gigabytes for.

    Raises:
      ImageRejectedError: broken_mask, where a polygon is none or is far outside of the image.
    """
    reach = _FAR * max(height, width)
    for polygon in polygons:
        if len(polygon) < 6 or len(polygon) % 2:
            raise ImageRejectedError("broken_mask", f"a polygon of {len(polygon)} numbers")
        if not np.all(np.abs(np.asarray(polygon, np.float64)) <= reach):
            raise ImageRejectedError("broken_mask", "a polygon far outside of the image")


def draw_polygons(polygons: Sequence[Sequence[float]], height: int, width: int) -> Mask:
    """Returns `[height, width] uint8`, 1 inside any of the polygons, as COCO's tools draw them."""
    from pycocotools import mask as coco

    if not polygons:
        return np.zeros((height, width), np.uint8)
    drawn = coco.frPyObjects([list(map(float, polygon)) for polygon in polygons], height, width)
    return _fill(_coco_counts(coco.merge(drawn)["counts"].decode()), height, width)


def class_mask(
    regions: Sequence[tuple[str, Region]], labels: Mapping[str, int], *, height: int, width: int
) -> Mask:
    """Returns `[height, width] uint8`: the class of each pixel, 0 for none; later regions win.

    Raises:
      ImageRejectedError: broken_mask, unknown_label for a class that `labels` has not, mask_classes
        for one that has the number of the background.
    """
    classes = np.zeros((height, width), np.uint8)
    for name, region in regions:
        if name not in labels:
            raise ImageRejectedError("unknown_label", name)
        if labels[name] == 0:
            raise ImageRejectedError("mask_classes", f"{name} has number 0, the background's")
        classes[region_mask(region, height, width) > 0] = labels[name]
    return classes


def _fill(counts: Sequence[int], height: int, width: int) -> Mask:
    """Draws what `_counts` returns."""
    values = (np.arange(len(counts)) & 1).astype(np.uint8)
    return np.ascontiguousarray(np.repeat(values, counts).reshape((width, height)).T)


def bounds(mask: Mask) -> tuple[float, float, float, float] | None:
    """Returns `(xmin, ymin, xmax, ymax)` around the pixels that are not 0, None without any."""
    columns = np.flatnonzero(mask.any(axis=0))
    if not len(columns):
        return None
    rows = np.flatnonzero(mask.any(axis=1))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def _severstal_counts(runs: tuple[int, ...] | str, pixels: int) -> list[int]:
    """Turns `[start, length, …]` from 1 into COCO's counts of zeros and ones."""
    if isinstance(runs, str) or len(runs) % 2:
        raise ImageRejectedError("broken_mask", "runs are pairs of a start and a length")
    counts, end = [], 1
    for start, length in sorted(zip(runs[::2], runs[1::2], strict=True)):
        if start < end or length < 1 or start + length - 1 > pixels:
            raise ImageRejectedError(
                "broken_mask", f"run {start} {length} in an image of {pixels} pixels"
            )
        counts += [start - end, length]
        end = start + length
    return [*counts, pixels + 1 - end]


def _coco_counts(runs: tuple[int, ...] | str) -> list[int]:
    """Reads counts, also from their compressed text.

    pycocotools would write beyond its buffer if the counts were wrong, so they are read here.
    """
    if not isinstance(runs, str):
        return list(runs)
    counts: list[int] = []
    value = shift = 0
    for byte in runs.encode():
        bits = byte - 48
        if not 0 <= bits < 64 or shift > 60:
            raise ImageRejectedError("broken_mask", "the text of the runs is not COCO's")
        value |= (bits & 0x1F) << shift
        shift += 5
        if bits & 0x20:
            continue
        if bits & 0x10:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    return counts
