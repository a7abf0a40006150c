"""Augmentations: the parameters drawn for a copy of an image, and their effect on its geometry.

A draw is a pure function of (seed, operation, key of the image, copy), so that adding an operation
does not change the draws of the others. The drawn parameters are a small JSON object, and they
alone determine the result: geometry as a matrix (`output_matrix`), then colours
(`colors.recolour`). The order is fixed, however the operations are listed: crop, rot90, resize,
scale, shear, rotate, translate, RandAugment's geometry, flips; then colours as listed.

RandAugment is Cubuk et al. 2020, arXiv:1909.13719, with its 14 operations and magnitudes from 0 to
10; cutout DeVries and Taylor 2017, arXiv:1708.04552; crop that of Szegedy et al. 2015,
arXiv:1409.4842, with sides from 3:4 to 4:3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from recordmill.records.augmentations import Crop, RandAugment
from recordmill.records.codec import randomness
from recordmill.records.hashing import seed_for
from recordmill.transforms.images.geometry import (
    Matrix,
    Size,
    quarter_turns,
    resizing,
    rotation,
    scaling,
    shearing,
    shift,
)
from recordmill.transforms.images.image_spec import AugmentationSpec, TransformSpec

Parameters = Mapping[str, Any]

_MOST_MAGNITUDE = 10


class Draws:
    """The draws of one operation for one copy of one image."""

    def __init__(self, seed: int, operation: str, key: int, copy: int) -> None:
        self._state = np.zeros(1, np.uint64)
        purpose = np.uint64(seed_for(seed, f"augment/{operation}"))
        randomness.start(self._state, purpose, np.uint64(key), copy)

    def between(self, low: float, high: float) -> float:
        """Returns a number in [low, high), of 6 decimals, as JSON will hold it."""
        return round(low + (high - low) * float(randomness.next_unit(self._state)), 6)

    def below(self, bound: int) -> int:
        """Returns an integer in [0, bound)."""
        return int(randomness.next_below(self._state, bound))

    def chance(self, probability: float) -> bool:
        """Returns True with this probability."""
        return float(randomness.next_unit(self._state)) < probability


def _crop(draws: Draws, crop: Crop, size: Size) -> list[float]:
    """A window `[x, y, width, height]` of the upright image; the whole after ten bad tries."""
    width, height = size
    for _ in range(10):
        area = draws.between(crop.area, 1) * width * height
        sides = 2 ** draws.between(math.log2(3 / 4), math.log2(4 / 3))
        crop_width, crop_height = round(math.sqrt(area * sides)), round(math.sqrt(area / sides))
        if 1 <= crop_width <= width and 1 <= crop_height <= height:
            x, y = draws.below(width - crop_width + 1), draws.below(height - crop_height + 1)
            return [x, y, crop_width, crop_height]
    return [0, 0, width, height]


_RANDAUGMENT: dict[str, Callable[[Draws, float], float]] = {
    "identity": lambda draws, level: 0,
    "autocontrast": lambda draws, level: 0,
    "equalize": lambda draws, level: 0,
    "posterize": lambda draws, level: 8 - round(4 * level),
    "solarize": lambda draws, level: 256 - round(256 * level),
    "saturation": lambda draws, level: draws.between(1 - 0.9 * level, 1 + 0.9 * level),
    "contrast": lambda draws, level: draws.between(1 - 0.9 * level, 1 + 0.9 * level),
    "brightness": lambda draws, level: draws.between(1 - 0.9 * level, 1 + 0.9 * level),
    "sharpness": lambda draws, level: draws.between(1 - 0.9 * level, 1 + 0.9 * level),
    "rotate": lambda draws, level: draws.between(-30 * level, 30 * level),
    "shear_x": lambda draws, level: draws.between(-0.3 * level, 0.3 * level),
    "shear_y": lambda draws, level: draws.between(-0.3 * level, 0.3 * level),
    "translate_x": lambda draws, level: draws.between(-0.45 * level, 0.45 * level),
    "translate_y": lambda draws, level: draws.between(-0.45 * level, 0.45 * level),
}


def _randaugment(draws: Draws, chosen: RandAugment, size: Size) -> list[list[Any]]:
    names = list(_RANDAUGMENT)
    drawn = [names[draws.below(len(names))] for _ in range(chosen.operations)]
    level = chosen.magnitude / _MOST_MAGNITUDE
    return [[name, _RANDAUGMENT[name](draws, level)] for name in drawn]


def _around_one(draws: Draws, chosen: Any, size: Size) -> float:
    return draws.between(1 - chosen.most, 1 + chosen.most)


def _around_zero(draws: Draws, most: float) -> float:
    return draws.between(-most, most)


# Name -> what is drawn of a struct of `records/augmentations.py`, for an image of a size.
_DRAWN: dict[str, Callable[[Draws, Any, Size], Any]] = {
    "flip": lambda draws, flip, size: draws.chance(flip.probability),
    "vertical_flip": lambda draws, flip, size: draws.chance(flip.probability),
    "rot90": lambda draws, rot90, size: draws.below(4),
    "crop": _crop,
    "scale": _around_one,
    "shear": lambda draws, shear, size: [_around_zero(draws, shear.most), 0.0],
    "rotate": lambda draws, rotate, size: _around_zero(draws, rotate.degrees),
    "translate": lambda draws, to, size: [_around_zero(draws, to.most) for _ in range(2)],
    "color": lambda draws, color, size: [_around_one(draws, color, size) for _ in range(3)],
    "brightness": _around_one,
    "contrast": _around_one,
    "saturation": _around_one,
    "blur": lambda draws, blur, size: draws.between(0, blur.pixels),
    "noise": lambda draws, noise, size: [draws.between(0, noise.most), draws.below(1 << 31)],
    # Centre and side of a square, in shares of width, height, and the shorter side.
    "cutout": lambda draws, cutout, size: [
        draws.between(0, 1), draws.between(0, 1), cutout.side,
    ],
    "randaugment": _randaugment,
}  # fmt: skip


def draw(spec: AugmentationSpec, size: Size, *, seed: int, key: int, copy: int) -> dict[str, Any]:
    """Draws what is done to a copy of an image.

    Args:
      spec: the operations.
      size: `(width, height)` of the image, upright.
      seed: of the job.
      key: of the image, in [0, 2**64).
      copy: its number, from 1.

    Returns:
      operation -> what was drawn, numbers and lists of them, in the order of `spec`.
    """
    return {
        each.name: _DRAWN[each.name](Draws(seed, each.name, key, copy), each, size)
        for each in spec.operations
    }


def output_matrix(parameters: Parameters, size: Size, spec: TransformSpec) -> tuple[Matrix, Size]:
    """Returns the way from the upright image to the one written, and the size of the latter.

    A crop without a resize is enlarged back to the image's size.
    """
    x, y, crop_width, crop_height = parameters.get("crop", (0, 0, *size))
    turns = parameters.get("rot90", 0)
    turned = quarter_turns(turns, crop_width, crop_height).after(shift(-x, -y))
    view = (crop_height, crop_width) if turns % 2 else (crop_width, crop_height)
    if spec.size is None:
        canvas = size[::-1] if turns % 2 else size
        matrix = scaling(canvas[0] / view[0], canvas[1] / view[1])
    else:
        matrix, canvas = resizing(spec, *view)
    return _jitter(parameters, canvas).after(matrix.after(turned)), canvas


def _jitter(parameters: Parameters, canvas: Size) -> Matrix:
    """Returns what happens around the middle of the canvas, and the flips."""
    width, height = canvas
    steps = [scaling(*[parameters.get("scale", 1.0)] * 2)]
    steps.append(shearing(*parameters.get("shear", (0.0, 0.0))))
    steps.append(rotation(parameters.get("rotate", 0.0)))
    x, y = parameters.get("translate", (0.0, 0.0))
    steps.append(shift(x * width, y * height))
    for name, value in parameters.get("randaugment", ()):
        if name in _GEOMETRY:
            steps.append(_GEOMETRY[name](value, canvas))
    steps.append(
        scaling(
            -1.0 if parameters.get("flip") else 1.0,
            -1.0 if parameters.get("vertical_flip") else 1.0,
        )
    )
    matrix = Matrix()
    for step in steps:
        matrix = step.after(matrix)
    return shift(width / 2, height / 2).after(matrix.after(shift(-width / 2, -height / 2)))


_GEOMETRY: dict[str, Callable[[float, Size], Matrix]] = {
    "rotate": lambda value, canvas: rotation(value),
    "shear_x": lambda value, canvas: shearing(value, 0.0),
    "shear_y": lambda value, canvas: shearing(0.0, value),
    "translate_x": lambda value, canvas: shift(value * canvas[0], 0.0),
    "translate_y": lambda value, canvas: shift(0.0, value * canvas[1]),
}
