"""Documents and images as elements: what a function of a user's own takes and returns.

They are small and frozen: `dataclasses.replace` makes a changed one. A wrong type fails where the
element is made, so the error names the line of the user that made it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bytes

_DATA = "bytes, or an array of uint8 [height, width] or [height, width, 1 or 3]"


@dataclass(frozen=True, slots=True)
class Document:
    r"""A document.

    Attributes:
      text: its text, with "\n" between lines.
      key: decides position and random draws, so it should be its own; None leaves it to what makes
        a dataset of documents: without a better one, the hash of the text.
      group: documents of one group share a split; None is a group that the text decides.
      label: its class, or a number to be predicted, where `WriteText` writes texts to classify.
      pair: the second text of a pair to classify.
      prompt: stands before the text, where `WriteText` is told of prompts.
      fields: what `WriteText` carries into the records, by name.

    Raises:
      TypeError: a value is of another type.
    """

    text: str
    key: str | None = None
    group: str | None = None
    label: str | float | None = None
    pair: str | None = None
    prompt: str | None = None
    fields: Mapping[str, str | float] | None = None

    def __post_init__(self) -> None:
        # Millions of these are made, nearly all with a text, a key and nothing else.
        is_plain = type(self.text) is str and type(self.key) in (str, type(None))
        if is_plain and not self.has_more:
            return
        _check("Document.text", self.text, str)
        _check("Document.key", self.key, str, type(None))
        _check("Document.group", self.group, str, type(None))
        if not isinstance(self.label, str | None):
            _check_number("Document.label", self.label)
        _check("Document.pair", self.pair, str, type(None))
        _check("Document.prompt", self.prompt, str, type(None))
        _check("Document.fields", self.fields, Mapping, type(None))

    @property
    def has_more(self) -> bool:
        """Whether it has anything beside its text and its key."""
        return not (
            self.group is None
            and self.label is None
            and self.pair is None
            and self.prompt is None
            and self.fields is None
        )


@dataclass(frozen=True, slots=True)
class Box:
    """An object in an image.

    Attributes:
      label: its class by name; "" where there is none.
      xmin, ymin, xmax, ymax: in pixels of the stored image, half-open, before any EXIF turn, or of
        the image as shown where `ImageSpec.drawn_on` is that.
      is_crowd: COCO's mark of a group that is one object.
      difficult: Pascal VOC's mark.
      area: in pixels; None where it is not known.
      pixels: the object's own pixels as the source of annotations has them (polygons or run
        lengths), to be handed on as they are; None where they are not known.

    Raises:
      TypeError: a value is of another type.
      ValueError: a side is no finite number.
    """

    label: str
    xmin: float
    ymin: float
    xmax: float
    ymax: float
    is_crowd: bool = False
    difficult: bool = False
    area: float | None = None
    pixels: Any = None

    def __post_init__(self) -> None:
        _check("Box.label", self.label, str)
        for name in ("xmin", "ymin", "xmax", "ymax"):
            _check_number(f"Box.{name}", getattr(self, name))
        if self.area is not None:
            _check_number("Box.area", self.area)


@dataclass(frozen=True, slots=True)
class Image:
    """An image with its annotations.

    Attributes:
      data: an encoded image of a format that `recordmill images` reads, or its pixels,
        uint8 `[height, width]` or `[height, width, 1 or 3]`.
      key: decides position and random draws, so it should be its own; None leaves it to what makes
        a dataset of images: without a better one, the hash of the data.
      label: its class by name, a number to be predicted, or a tuple of names for several; None
        where there is none.
      boxes: its objects; None where they are not known, () where there is none.
      mask: an encoded image of the same size, or an array `[height, width] uint8`, whose values
        are classes; None where there is none.
      group: images of one group share a split; None is a group of its own.
      split: the name of its split; None leaves it to the group's hash.

    Raises:
      TypeError: a value is of another type.
      ValueError: an array is of another shape, or a number is not finite.
    """

    data: bytes | Bytes
    key: str | None = None
    label: str | float | tuple[str, ...] | None = None
    boxes: tuple[Box, ...] | None = None
    mask: bytes | Bytes | None = None
    group: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        _check_data("Image.data", self.data, (1, 3))
        for name in ("key", "group", "split"):
            _check(f"Image.{name}", getattr(self, name), str, type(None))
        if isinstance(self.label, tuple):
            for name in self.label:
                _check("Image.label", name, str)
        elif not isinstance(self.label, str | None):
            _check_number("Image.label", self.label)
        if self.boxes is not None:
            _check("Image.boxes", self.boxes, tuple)
            for box in self.boxes:
                _check("Image.boxes", box, Box)
        if self.mask is not None:
            _check_data("Image.mask", self.mask, (1,))


def _check(name: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds):
        names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be {names}, got {type(value).__name__}")


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")


def _check_data(name: str, value: object, channels: tuple[int, ...]) -> None:
    if isinstance(value, bytes):
        return
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} must be {_DATA}, got {type(value).__name__}")
    array: npt.NDArray[Any] = value
    if array.dtype != np.uint8:
        raise TypeError(f"{name} must be {_DATA}, got an array of {array.dtype}")
    fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in channels)
    if not fits or not array.size:
        shape = " or ".join(["[height, width]", *(f"[height, width, {n}]" for n in channels)])
        raise ValueError(f"{name} must be of shape {shape}, got {list(array.shape)}")
