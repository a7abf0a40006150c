"""Images as elements that users see, made of what is listed and read, and the way back."""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Bytes
from recordmill.records.errors import WrongElementError
from recordmill.transforms.elements import Box
from recordmill.transforms.images.decoding import ImageRejectedError, probe
from recordmill.transforms.images.image_spec import DecodeSpec
from recordmill.transforms.images.objects import region_box
from recordmill.transforms.images.references import (
    ImageObject,
    ImageReference,
    Region,
    StoredBytes,
)
from recordmill.transforms.images.source_spec import DrawnOn


def read_boxes(
    reference: ImageReference, data: bytes, decode: DecodeSpec, drawn_on: DrawnOn
) -> list[tuple[Box, ImageObject]]:
    """Returns the boxes of an image in pixels, each with the object that it is of.

    Args:
      reference: the image.
      data: its bytes, which are opened only where the boxes need the image's size.
      decode: the limits of opening it.
      drawn_on: the picture in whose pixels they are.

    Raises:
      ImageRejectedError: the size is needed and is not known.
    """
    objects = reference.objects
    if all(item.box is not None and not item.is_fraction for item in objects):
        size = (0, 0)
    else:
        size = image_size(reference.image, data, decode, drawn_on)
    boxes = []
    for item in objects:
        sides = item.pixel_box(*size) or region_box(item.region, size) or (0.0, 0.0, 0.0, 0.0)
        box = Box(item.label, *sides, item.is_crowd, item.difficult, item.area, item.region)
        boxes.append((box, item))
    return boxes


def image_size(
    stored: StoredBytes, data: bytes, decode: DecodeSpec, drawn_on: DrawnOn
) -> tuple[int, int]:
    """Returns width and height of the picture that the annotations of an image were drawn on.

    Raises:
      ImageRejectedError: it cannot be opened.
    """
    if stored.storage == "idx":
        return stored.shape[1], stored.shape[0]
    return probe(data, decode).annotated_size(drawn_on)


def read_label(label: str | float | tuple[str, ...], *, numbers: bool) -> tuple[str, ...]:
    """Returns the labels of an image, as references have them.

    Raises:
      WrongElementError: the label is a number, and of a class; or its name, and is to be a number.
    """
    if isinstance(label, str | tuple) == numbers:
        if numbers:
            raise WrongElementError(
                f"Image.label must be a number for numbers=True, got {label!r:.80}"
            )
        raise WrongElementError(
            f"Image.label must be the name of a class, or a tuple of names, got {label!r}; give "
            f'label="{label}", or ImageSpec(numbers=True) if it is to be predicted'
        )
    if isinstance(label, tuple):
        return label
    return (label if isinstance(label, str) else repr(float(label)),)


def read_object(box: Box) -> ImageObject:
    """Returns the object of a box that a user has made."""
    sides = (float(box.xmin), float(box.ymin), float(box.xmax), float(box.ymax))
    region = box.pixels if isinstance(box.pixels, Region) else None
    area = None if box.area is None else float(box.area)
    return ImageObject(box.label, sides, region, box.is_crowd, box.difficult, area)


def read_data(stored: StoredBytes, data: bytes) -> bytes | Bytes:
    """Returns the data of an element: encoded bytes, or pixels `[height, width, channels] uint8`.

    Raises:
      ImageRejectedError: there are fewer bytes than pixels.
    """
    if stored.storage != "idx":
        return data
    height, width, channels = (*stored.shape, 1)[:3]
    if len(data) != height * width * channels or not data:
        raise ImageRejectedError(
            "truncated_image", f"{height * width * channels} bytes expected, {len(data)} found"
        )
    return np.frombuffer(data, np.uint8).reshape(height, width, channels)


def store_data(data: bytes | Bytes) -> tuple[StoredBytes, bytes]:
    """Returns what a reference says of the data of an element, in no file yet, and its bytes."""
    if isinstance(data, bytes):
        return StoredBytes(""), data
    height, width, channels = (*data.shape, 1)[:3]
    return StoredBytes("", "idx", shape=(height, width, channels)), data.tobytes()
