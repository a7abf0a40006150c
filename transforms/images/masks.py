"""Regions of objects and classes to masks: Severstal's runs, COCO's polygons and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Int64s
from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.image_spec import USUAL_DRAWN_PIXELS
from recordmill.transforms.images.references import Region

Mask = npt.NDArray[np.uint8]

_FAR = 16  # times the image's size: no annotation is out there, and rasterizing it costs gigabytes
_OUTLINE = 400  # pixels' worth: COCO's tools sort five points of an outline for each of its pixels
_RUN = 100  # pixels' worth: a number of a list
_FEW_RUNS = 50_000  # that are painted one by one


class DrawingLimit:
    """How many pixels may be drawn for the regions of one image.

    A mask of the image's size counts all of its pixels, what is painted into one mask for all
    regions its own; a pixel of a polygon's outline counts 400, and a run of pixels 100.

    Args:
      most_pixels: of all regions together.
    """

    def __init__(self, most_pixels: int = USUAL_DRAWN_PIXELS) -> None:
        self._most_pixels = most_pixels
        self._left = float(most_pixels)

    def spend(self, pixels: float) -> None:
        """Counts pixels, before they are drawn.

        Raises:
          ImageRejectedError: too_much_to_draw.
        """
        self._left -= pixels
        if self._left < 0:
            detail = f"more than {self._most_pixels} pixels, see --max_drawn_pixels"
            raise ImageRejectedError("too_much_to_draw", detail)

    def spend_outlines(self, polygons: Sequence[Sequence[float]]) -> None:
        """Counts the outlines of polygons, as `spend` does."""
        for polygon in polygons:
            corners = np.asarray(polygon, np.float64).reshape(-1, 2)
            steps = np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1)
            self.spend(_OUTLINE * float(steps.sum() + len(steps)))


def region_mask(region: Region, height: int, width: int, limit: DrawingLimit | None = None) -> Mask:
    """Returns `[height, width] uint8`, 1 on the region.

    Raises:
      ImageRejectedError: broken_mask, where the region is not one of such an image;
        too_much_to_draw.
    """
    limit = limit or DrawingLimit()
    limit.spend(height * width)
    return _fill(_region_counts(region, height, width, limit), height, width)


def region_bounds(
    region: Region, height: int, width: int, limit: DrawingLimit | None = None
) -> tuple[float, float, float, float] | None:
    """Returns `bounds` of a region's mask, which is not drawn.

    Raises:
      ImageRejectedError: as `region_mask`.
    """
    starts, ends = _runs(_region_counts(region, height, width, limit or DrawingLimit()))
    if not len(starts):
        return None
    first, last = int(starts[0]) // height, int(ends[-1] - 1) // height
    if np.any(starts // height != (ends - 1) // height):  # one goes on in the next column
        return float(first), 0.0, float(last + 1), float(height)
    bottom = int(((ends - 1) % height).max()) + 1
    return float(first), float((starts % height).min()), float(last + 1), float(bottom)


def _region_counts(region: Region, height: int, width: int, limit: DrawingLimit) -> list[int]:
    """Returns the lengths of runs of zeros and ones, in turn, down the columns."""
    if region.encoding != "polygons":
        limit.spend(_RUN * len(region.runs))
        return _counts(region, height, width)
    polygons = region.in_pixels(width, height).polygons
    check_polygons(polygons, height, width)
    limit.spend_outlines(polygons)
    return _polygon_counts(polygons, height, width)


def _runs(counts: Sequence[int]) -> tuple[Int64s, Int64s]:
    """Returns where runs of ones begin and end, without empty ones."""
    edges = np.cumsum(np.asarray(counts, np.int64))
    starts, ends = edges[:-1:2], edges[1::2]
    some = starts < ends
    return starts[some], ends[some]


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
        size = region.size[1], region.size[0]
        raise ImageRejectedError(
            "broken_mask", f"a region of {size[0]} x {size[1]} pixels", size=size
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


def draw_polygons(
    polygons: Sequence[Sequence[float]], height: int, width: int, limit: DrawingLimit | None = None
) -> Mask:
    """Returns `[height, width] uint8`, 1 inside any of the polygons, as COCO's tools draw them.

    Raises:
      ImageRejectedError: too_much_to_draw.
    """
    limit = limit or DrawingLimit()
    limit.spend(height * width)
    limit.spend_outlines(polygons)
    return _fill(_polygon_counts(polygons, height, width), height, width)


def _polygon_counts(polygons: Sequence[Sequence[float]], height: int, width: int) -> list[int]:
    from pycocotools import mask as coco

    if not polygons:
        return [height * width]
    drawn = coco.frPyObjects([list(map(float, polygon)) for polygon in polygons], height, width)
    return _coco_counts(coco.merge(drawn)["counts"].decode())


def class_mask(
    regions: Sequence[tuple[str, Region]],
    labels: Mapping[str, int],
    *,
    height: int,
    width: int,
    max_drawn_pixels: int = USUAL_DRAWN_PIXELS,
) -> Mask:
    """Returns `[height, width] uint8`: the class of each pixel, 0 for none; later regions win.

    Raises:
      ImageRejectedError: broken_mask, unknown_label for a class that `labels` has not, mask_classes
        for one that has the number of the background, too_much_to_draw.
    """
    limit = DrawingLimit(max_drawn_pixels)
    columns = np.zeros(width * height, np.uint8)
    for name, region in regions:
        if name not in labels:
            raise ImageRejectedError("unknown_label", name)
        if labels[name] == 0:
            raise ImageRejectedError("mask_classes", f"{name} has number 0, the background's")
        counts = _region_counts(region, height, width, limit)
        starts, ends = _runs(counts)
        if len(starts) > _FEW_RUNS:
            limit.spend(height * width)
            columns[_flat(counts) > 0] = labels[name]
            continue
        limit.spend(int((ends - starts).sum()))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            columns[start:end] = labels[name]
    return np.ascontiguousarray(columns.reshape((width, height)).T)


def _fill(counts: Sequence[int], height: int, width: int) -> Mask:
    """Draws what `_region_counts` returns."""
    return np.ascontiguousarray(_flat(counts).reshape((width, height)).T)


def _flat(counts: Sequence[int]) -> Mask:
    """Returns the pixels of runs, down the columns."""
    return np.repeat((np.arange(len(counts)) & 1).astype(np.uint8), counts)


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
