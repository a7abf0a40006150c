"""An image before it is opened: where its bytes are stored, and its annotations.

A reference is small and goes through files as a line of JSON; pixels never do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import orjson

from recordmill.records.state import MAX_INT64, Count, Uint32, decode

_FARTHEST_SIDE = 1e9  # so that no product with an image's size overflows

Storage = Literal["file", "range", "zip", "idx", "packed"]


@dataclass(frozen=True, slots=True)
class Region:
    """The pixels of an object, in the coordinates of the picture that `ImageSpec.drawn_on` says.

    Attributes:
      polygons: of `[x0, y0, x1, y1, …]` pixels each, as COCO writes them.
      runs: run lengths; `[start, length, …]` from 1 down the columns (Severstal) where `encoding`
        is "runs"; COCO's counts, a list or its compressed text, where it is "coco".
      encoding: "polygons", "runs", "coco".
      size: `(height, width)` that the runs are of; (0, 0) where the image's own is meant.
      is_fraction: polygons are in shares of the image's width and height, not in pixels.
    """

    encoding: Literal["polygons", "runs", "coco"]
    polygons: tuple[tuple[float, ...], ...] = ()
    runs: tuple[int, ...] | str = ()
    size: tuple[int, int] = (0, 0)
    is_fraction: bool = False

    def in_pixels(self, width: int, height: int) -> Region:
        """Returns the region in pixels of its picture, which is of this size."""
        if not self.is_fraction:
            return self
        sides = (width, height)
        scaled = (tuple(n * sides[i % 2] for i, n in enumerate(p)) for p in self.polygons)
        return replace(self, polygons=tuple(scaled), is_fraction=False)


@dataclass(frozen=True, slots=True)
class ImageObject:
    """An object in an image.

    Attributes:
      label: its class by name; "" where there is none.
      box: `(xmin, ymin, xmax, ymax)` in pixels of the picture that regions are of, half-open; None
        where only a region is given.
      is_fraction: the box is in shares of the image's width and height, not in pixels.
      region: its pixels.
      is_crowd: COCO's mark of a group that is one object.
      difficult: Pascal VOC's mark.
      area: in pixels, where the source gives it.
    """

    label: str = ""
    box: tuple[float, float, float, float] | None = None
    region: Region | None = None
    is_crowd: bool = False
    difficult: bool = False
    area: float | None = None
    is_fraction: bool = False

    def pixel_box(self, width: int, height: int) -> tuple[float, float, float, float] | None:
        """Returns the box in pixels of its picture, which is of this size."""
        if self.box is None or not self.is_fraction:
            return self.box
        xmin, ymin, xmax, ymax = self.box
        return xmin * width, ymin * height, xmax * width, ymax * height


def box_sides(sides: Iterable[Any]) -> tuple[float, float, float, float]:
    """Reads the four sides of a box.

    Raises:
      ValueError: one is no finite number, or beyond a billion.
      TypeError: one is neither number nor text.
    """
    xmin, ymin, xmax, ymax = map(float, sides)
    if not max(map(abs, (xmin, ymin, xmax, ymax))) <= _FARTHEST_SIDE or math.isnan(
        xmin + ymin + xmax + ymax
    ):
        raise ValueError("not finite, or beyond a billion")
    return xmin, ymin, xmax, ymax


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes of an image or mask, in a file of their own or inside another.

    Attributes:
      path: the file to open.
      storage: "file" is the whole of it; "range" the bytes `[offset, offset + size)`, as for
        members of a tar; "zip" a member whose local header begins there, and which has `size`
        compressed bytes; "idx" raw grey or RGB pixels of `shape`; "packed" a range of a pack, by
        the pack's name in the job's folder of them.
      offset, size: of the stored bytes; `size` -1 where it is not known before opening.
      shape: `(height, width, channels)` for "idx".
      crc32: of the unpacked member for "zip", from the archive's central directory; else None.
      is_planar: the pixels of "idx" are stored channel by channel.
      modified_ns: when the file to open was last changed; 0 where that is unknown.
    """

    path: str
    storage: Storage = "file"
    offset: Count = 0
    size: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT64)] = -1
    shape: tuple[Count, ...] = ()
    crc32: Uint32 | None = None
    modified_ns: int = 0
    is_planar: bool = False


class ReferenceLines(NamedTuple):
    """An image reference as JSON.

    Attributes:
      line: what `ImageReference.from_line` reads.
      without_paths: the same with empty paths and without times, so that moving the input does not
        change it.
    """

    line: str
    without_paths: bytes


@dataclass(frozen=True, slots=True)
class ImageReference:
    """An image of the input.

    Attributes:
      name: its path below the input root, as `folder/a.jpg`, `photos.tar/a.jpg` or `images#17`:
        what keys are made of, so that moving the input changes nothing.
      image: its bytes.
      labels: classes by name; one for classification, more only for multi-label tables.
      objects: for detection.
      mask: an image of the same size whose pixels are classes, for segmentation; or
      regions: the pixels of each class, for segmentation without mask images; () with
        `has_mask` means an image without defects.
      has_mask: whether a segmentation is known.
      split: the split that the source names, "" where it names none.
      group: images of one group never straddle splits; "" is a group of its own.
      fields: the text of the table's columns that are carried along, in the order of the flag.
      source_id: the number that the source gives the image (COCO's), "" where it gives none.
    """

    name: str
    image: StoredBytes
    labels: tuple[str, ...] = ()
    objects: tuple[ImageObject, ...] = ()
    mask: StoredBytes | None = None
    regions: tuple[tuple[str, Region], ...] = ()
    has_mask: bool = False
    split: str = ""
    group: str = ""
    source_id: str = ""
    fields: tuple[str, ...] = ()

    def with_mask(self, mask: StoredBytes) -> ImageReference:
        """Returns the image with a mask."""
        return replace(self, mask=mask, has_mask=True)

    def to_line(self) -> str:
        """Returns one line of JSON without line end; fields with default values are omitted."""
        return orjson.dumps(_sparse(self)).decode()

    def to_lines(self) -> ReferenceLines:
        """Returns `to_line`, and the same line without paths and times of the image and mask."""
        content = _sparse(self)
        line = orjson.dumps(content).decode()
        for stored in (content["image"], content.get("mask")):
            if stored:
                stored["path"] = ""
                stored.pop("modified_ns", None)
        return ReferenceLines(line, orjson.dumps(content))

    @classmethod
    def from_line(cls, line: str | bytes) -> ImageReference:
        """Reads what `to_line` returned.

        Raises:
          FormatError: it is something else.
        """
        return decode(line, cls)


@dataclass(frozen=True, slots=True)
class ListedReject:
    """An input that listing rejects.

    Attributes:
      source: its name below the input root.
      reason: a key of `rejects.REASONS`.
      detail: the values found, one line.
      position: in bytes from the file's beginning.
    """

    source: str
    reason: str
    detail: str = ""
    position: int = 0


_PLAIN_TYPES = (str, int, bool, float)  # listings of millions of images spend time in `_sparse`
_DEFAULTS: dict[type, dict[str, Any]] = {
    kind: {f.name: f.default for f in fields(kind)}
    for kind in (ImageReference, StoredBytes, ImageObject, Region)
}


def _sparse(value: Any) -> Any:
    """Returns the JSON form of a dataclass, without fields that have their default values."""
    if (defaults := _DEFAULTS.get(type(value))) is not None:
        content = {}
        for name, default in defaults.items():
            field_value = getattr(value, name)
            if field_value != default:
                is_plain = type(field_value) in _PLAIN_TYPES
                content[name] = field_value if is_plain else _sparse(field_value)
        return content
    if isinstance(value, tuple | list):
        return [_sparse(item) for item in value]
    return value
