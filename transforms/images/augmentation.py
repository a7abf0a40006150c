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
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recordmill.records.codec import randomness
from recordmill.records.errors import UsageError, one_of
from recordmill.records.hashing import seed_for
from recordmill.transforms.dataset.argument_names import IMAGE_ARGUMENTS
from recordmill.transforms.dataset.argument_types import checked_arguments, checked_fields
from recordmill.transforms.images.geometry import (
    Matrix,
    Size,
    TransformSpec,
    quarter_turns,
    resizing,
    rotation,
    scaling,
    shearing,
    shift,
)

Parameters = Mapping[str, Any]

_MOST_MAGNITUDE = 10
_ITEM = re.compile(r"\s*([a-z_0-9]+)\s*(?:\(([^()]*)\))?\s*")


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


def _crop(draws: Draws, strength: tuple[float, ...], size: Size) -> list[float]:
    """A window `[x, y, width, height]` of the upright image; the whole after ten bad tries."""
    width, height = size
    for _ in range(10):
        area = draws.between(strength[0], 1) * width * height
        sides = 2 ** draws.between(math.log2(3 / 4), math.log2(4 / 3))
        crop_width, crop_height = round(math.sqrt(area * sides)), round(math.sqrt(area / sides))
        if 1 <= crop_width <= width and 1 <= crop_height <= height:
            x, y = draws.below(width - crop_width + 1), draws.below(height - crop_height + 1)
            return [x, y, crop_width, crop_height]
    return [0, 0, width, height]


def _cutout(draws: Draws, strength: tuple[float, ...], size: Size) -> list[float]:
    """Centre and side of a square, in shares of width, height, and the shorter side."""
    return [draws.between(0, 1), draws.between(0, 1), strength[0]]


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


def _randaugment(draws: Draws, strength: tuple[float, ...], size: Size) -> list[list[Any]]:
    names = list(_RANDAUGMENT)
    chosen = [names[draws.below(len(names))] for _ in range(int(strength[0]))]
    return [[name, _RANDAUGMENT[name](draws, strength[1] / _MOST_MAGNITUDE)] for name in chosen]


def _around_one(draws: Draws, strength: tuple[float, ...], size: Size) -> float:
    return draws.between(1 - strength[0], 1 + strength[0])


def _around_zero(draws: Draws, strength: tuple[float, ...], size: Size) -> float:
    return draws.between(-strength[0], strength[0])


@dataclass(frozen=True, slots=True)
class _Kind:
    """An operation: how it draws, its strengths where none are given, and their limits."""

    draw: Callable[[Draws, tuple[float, ...], Size], Any]
    defaults: tuple[float, ...] = ()
    limits: tuple[tuple[float, float], ...] = ()


_SHARE = ((0.0, 1.0),)
OPERATIONS = {
    "flip": _Kind(lambda d, s, _: d.chance(s[0]), (0.5,), _SHARE),
    "vertical_flip": _Kind(lambda d, s, _: d.chance(s[0]), (0.5,), _SHARE),
    "rot90": _Kind(lambda d, s, _: d.below(4)),
    "crop": _Kind(_crop, (0.25,), ((0.01, 1.0),)),
    "scale": _Kind(_around_one, (0.2,), ((0.0, 0.9),)),
    "shear": _Kind(lambda d, s, size: [_around_zero(d, s, size), 0.0], (0.1,), _SHARE),
    "rotate": _Kind(_around_zero, (15.0,), ((0.0, 180.0),)),
    "translate": _Kind(
        lambda d, s, size: [_around_zero(d, s, size) for _ in range(2)], (0.1,), _SHARE
    ),
    "color": _Kind(lambda d, s, size: [_around_one(d, s, size) for _ in range(3)], (0.2,), _SHARE),
    "brightness": _Kind(_around_one, (0.2,), _SHARE),
    "contrast": _Kind(_around_one, (0.2,), _SHARE),
    "saturation": _Kind(_around_one, (0.2,), _SHARE),
    "blur": _Kind(lambda d, s, _: d.between(0, s[0]), (1.0,), ((0.0, 50.0),)),
    "noise": _Kind(lambda d, s, _: [d.between(0, s[0]), d.below(1 << 31)], (0.05,), _SHARE),
    "cutout": _Kind(_cutout, (0.25,), _SHARE),
    "randaugment": _Kind(_randaugment, (2.0, 9.0), ((1.0, 14.0), (0.0, _MOST_MAGNITUDE))),
}


@dataclass(frozen=True, slots=True)
class AugmentationSpec:
    """The operations on augmented copies.

    Attributes:
      operations: name and strengths of each, as `parse` reads them.

    Raises:
      UsageError: an operation is named twice, or a strength is beyond its limits.
    """

    operations: tuple[tuple[str, tuple[float, ...]], ...] = ()

    @checked_fields(IMAGE_ARGUMENTS)
    def __post_init__(self) -> None:
        names = [name for name, _ in self.operations]
        if len(set(names)) != len(names):
            raise UsageError(f"--augmentations must name each once, got {','.join(names)}")
        for name, strengths in self.operations:
            kind = OPERATIONS[one_of("--augmentations", name, OPERATIONS)]
            if len(strengths) != len(kind.limits):
                raise UsageError(
                    f"--augmentations={name} must have {len(kind.limits)} numbers in its "
                    f"parentheses, got {len(strengths)}"
                )
            for value, (low, high) in zip(strengths, kind.limits, strict=True):
                if not low <= value <= high:
                    raise UsageError(
                        f"--augmentations={name} must be from {low:g} to {high:g}, got {value:g}"
                    )
            if name == "randaugment" and strengths[0] % 1:
                raise UsageError(
                    f"--augmentations=randaugment must do a whole number of operations, got "
                    f"{strengths[0]:g}"
                )

    def __bool__(self) -> bool:
        return bool(self.operations)

    @classmethod
    @checked_arguments(IMAGE_ARGUMENTS)
    def parse(cls, text: str) -> AugmentationSpec:
        """Reads "flip,rotate(15),randaugment(2,9)"; "" is none.

        Raises:
          UsageError: an unknown name, or strengths beyond their limits.
        """
        operations, at = [], 0
        while at < len(text):
            item = _ITEM.match(text, at)
            if not item or text[item.end() : item.end() + 1] not in ("", ","):
                raise UsageError(
                    "--augmentations must be names with commas between, strengths in parentheses, "
                    f"such as flip,rotate(15), got {text!r}"
                )
            name = one_of("--augmentations", item[1], OPERATIONS)
            operations.append((name, _numbers(name, item[2])))
            at = item.end() + 1
        return cls(tuple(operations))


def _numbers(name: str, text: str | None) -> tuple[float, ...]:
    if not text:
        return OPERATIONS[name].defaults
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"--augmentations={name} must have numbers, got {text!r}") from error


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
        name: OPERATIONS[name].draw(Draws(seed, name, key, copy), strengths, size)
        for name, strengths in spec.operations
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
