"""Pixels to the bytes that a record holds."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.transforms.images.decoding import ImageRejectedError, OpenImage, to_pixels
from recordmill.transforms.images.image_spec import EncodeSpec, ImageSpec
from recordmill.transforms.images.masks import Mask
from recordmill.transforms.images.stored_forms import MOST_PNG_SIDE, is_portable, is_whole

# Readers take a GIF for a film and know no TIFF, so what is kept of these is kept as PNG, lossless.
_PASSED = ("JPEG", "PNG", "WEBP", "BMP")
_MOST_SIDE = {"JPEG": 65500, "WEBP": 16383, "PNG": MOST_PNG_SIDE}


def passes_through(opened: OpenImage, data: bytes, spec: ImageSpec, *, changed: bool) -> bool:
    """Returns whether the bytes of the source are written unchanged.

    Args:
      opened: the image.
      data: its bytes.
      spec: how images are decoded and written.
      changed: whether the image is resized or augmented.
    """
    name, frames = opened.header.format, opened.header.frames
    if changed or spec.encode.format != "keep" or name not in _PASSED or frames != 1:
        return False
    if not is_portable(name, opened.image, data):
        return False
    return not spec.decode.verifies or is_whole(name, opened.image, data)


def encode_image(image: Image.Image, format: str, *, quality: int) -> bytes:  # noqa: A002
    """Returns the bytes of an image of mode "L" or "RGB" as JPEG, PNG or WebP.

    Raises:
      ImageRejectedError: unencodable, where the format has no such sizes, or Pillow fails.
    """
    if max(image.size) > _MOST_SIDE[format]:
        raise ImageRejectedError(
            "unencodable",
            f"{format} of {image.width} x {image.height}, at most {_MOST_SIDE[format]}",
        )
    out = io.BytesIO()
    options = {} if format == "PNG" else {"quality": quality}
    try:
        image.save(out, format, **options)
    except MemoryError:
        raise
    except Exception as error:  # one image must not end a run
        detail = f"{type(error).__name__} of Pillow for {format}: {error}"
        raise ImageRejectedError("unencodable", detail) from error
    return out.getvalue()


def encode_mask(mask: Mask) -> bytes:
    """Returns a mask as a grey PNG, a class a pixel."""
    return encode_image(Image.fromarray(mask), "PNG", quality=0)


def to_floats(image: Image.Image, spec: EncodeSpec) -> npt.NDArray[np.float32]:
    """Returns `[height, width, channels] float32` in the range of `spec.float_range`."""
    pixels = to_pixels(image).astype(np.float32)
    if spec.float_range == "zero_one":
        pixels /= np.float32(255)
    else:
        pixels /= np.float32(127.5)
        pixels -= np.float32(1)
    return pixels
