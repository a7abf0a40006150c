"""Augmentations of colours, which follow those of geometry: Pillow's operations, and noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from recordmill.records.hashing import mix64

_NOISE_ROWS = 64  # so many rows of noise are held at a time
# The sum of four uniform 16-bit numbers has this standard deviation.
_SUM_DEVIATION = 65536 / 3**0.5

Fill = tuple[int, int, int]


def recolour(image: Image.Image, parameters: Mapping[str, Any], fill: Fill) -> Image.Image:
    """Applies drawn operations to the colours of an image of mode "L" or "RGB".

    Args:
      image: as it will be written.
      parameters: as `augmentation.draw` returns them; those of geometry are skipped.
      fill: the colour that cutout leaves.
    """
    for name, value in parameters.items():
        if name == "cutout":
            image = _cut(image, value, fill)
        elif name == "randaugment":
            for inner, strength in value:
                image = _COLOURS[inner](image, strength) if inner in _COLOURS else image
        elif name in _COLOURS:
            image = _COLOURS[name](image, value)
    return image


def _color(image: Image.Image, factors: list[float]) -> Image.Image:
    brightness, contrast, saturation = factors
    image = ImageEnhance.Brightness(image).enhance(brightness)
    image = ImageEnhance.Contrast(image).enhance(contrast)
    return ImageEnhance.Color(image).enhance(saturation)


def _noise(image: Image.Image, value: list[Any]) -> Image.Image:
    """Adds noise of this deviation, near to normal: sums of four uniform numbers."""
    deviation, seed = value
    pixels = np.array(image)
    rows = pixels.reshape(pixels.shape[0], -1)
    scale = np.float32(255 * deviation / _SUM_DEVIATION)
    with np.errstate(over="ignore"):
        start = mix64(np.array([seed], np.uint64))
        for top in range(0, len(rows), _NOISE_ROWS):
            part = rows[top : top + _NOISE_ROWS]
            first = np.uint64(top * rows.shape[1])
            offsets = np.arange(part.size, dtype=np.uint64) + first
            halves = mix64(offsets + start).view(np.uint16).reshape(-1, 4)
            sums = halves.sum(axis=1, dtype=np.int32).reshape(part.shape) - 2 * 65535
            part[:] = np.clip(np.rint(part + sums * scale), 0, 255).astype(np.uint8)
    return Image.fromarray(pixels)


def _cut(image: Image.Image, value: list[float], fill: Fill) -> Image.Image:
    x, y, share = value
    half = share * min(image.size) / 2
    across, down = x * image.width, y * image.height
    left, top = max(0, round(across - half)), max(0, round(down - half))
    right, bottom = min(image.width, round(across + half)), min(image.height, round(down + half))
    image = image.copy()
    if left < right and top < bottom:
        colour = fill if image.mode == "RGB" else fill[0]
        image.paste(colour, (left, top, right, bottom))
    return image


_COLOURS: dict[str, Callable[[Image.Image, Any], Image.Image]] = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": ImageOps.posterize,
    "solarize": ImageOps.solarize,
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "saturation": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
    "color": _color,
    "blur": lambda image, sigma: image.filter(ImageFilter.GaussianBlur(sigma)),
    "noise": _noise,
}
