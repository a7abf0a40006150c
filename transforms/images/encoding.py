"""Pixels to the bytes that a record holds."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.transforms.images.decoding import Header, ImageRejectedError, to_pixels
from recordmill.transforms.images.image_spec import EncodeSpec
from recordmill.transforms.images.masks import Mask

# Readers take a GIF for a film and know no TIFF, so what is kept of these is kept as PNG, lossless.
_PASSED = ("JPEG", "PNG", "WEBP", "BMP")
_MOST_SIDE = {"JPEG": 65500, "WEBP": 16383}


def passes_through(header: Header, spec: EncodeSpec, *, changed: bool) -> bool:
    """Returns whether the bytes of the source are written unchanged.

    Args:
      header: of the image.
      spec: how images are written.
      changed: whether the image is resized or augmented.
    """
    is_shown_alike = header.format in _PASSED and header.frames == 1 and header.is_portable
    return not changed and spec.format == "keep" and is_shown_alike


def encode_image(image: Image.Image, format: str, *, quality: int) -> bytes:  # noqa: A002
    """Returns the bytes of an image of mode "L" or "RGB" as JPEG, PNG or WebP.

    Raises:
      ImageRejectedError: unencodable, where the format has no such sizes, or Pillow fails.
    """
    if max(image.size) > _MOST_SIDE.get(format, 1 << 31):
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
