"""Names and strengths of augmentations, as `recordmill images --augmentations` has them.

The reader imports no pipeline; a test compares the two tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from recordmill.records.errors import UsageError, one_of

Strength = float | bool  # True: the strength that a name has where none is given

STRENGTHS = {
    "flip": 0.5,
    "vertical_flip": 0.5,
    "scale": 0.2,
    "rotate": 15.0,
    "translate": 0.1,
    "color": 0.2,
    "brightness": 0.2,
    "contrast": 0.2,
    "saturation": 0.2,
}
CROP = 0.25
MIN_VISIBLE = 0.1
# What only the pipeline can do.
_WRITTEN_ONLY = ("rot90", "shear", "blur", "noise", "cutout", "randaugment")
_SYNONYMS = {
    "flip": "flip_left_right",
    "vertical_flip": "flip_up_down",
    "min_visible": "min_visibility",
}
_COLOUR = ("brightness", "contrast", "saturation")
_OPERATION = re.compile(r"([a-z_0-9]+)(?:\(([^()]*)\))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """What is done to images; see `augment_images`."""

    flip_left_right: float
    flip_up_down: float
    rotate: float
    translate: float
    zoom: tuple[float, float]
    brightness: float
    contrast: float
    saturation: float
    hue: float
    min_visibility: float

    def __post_init__(self) -> None:
        limits = {
            "flip_left_right": 1, "flip_up_down": 1, "rotate": 180, "translate": 1,
            "brightness": 1, "contrast": 1, "saturation": 1, "hue": 0.5, "min_visibility": 1,
        }  # fmt: skip
        for name, limit in limits.items():
            if not 0 <= getattr(self, name) <= limit:
                raise UsageError(f"{name} must be in [0, {limit}], got {getattr(self, name)}")
        if not 0 < self.zoom[0] <= self.zoom[1]:
            raise UsageError(f"zoom must be 0 < least <= most, got {self.zoom}")

    @property
    def moves(self) -> bool:
        """Whether pixels change their position, other than by a flip."""
        return bool(self.rotate or self.translate) or self.zoom != (1.0, 1.0)

    @property
    def colours(self) -> bool:
        """Whether colours change."""
        return any((self.brightness, self.contrast, self.saturation, self.hue))


def parse_augmentations(text: str) -> dict[str, float]:
    """Reads `--augmentations`: name -> strength.

    >>> parse_augmentations("flip,rotate(10)")
    {'flip': 0.5, 'rotate': 10.0}

    Raises:
      UsageError: no such operation, one that readers lack, or no number where one belongs.
    """
    strengths: dict[str, float] = {}
    for part in filter(None, re.split(r",(?![^(]*\))", text)):
        match = _OPERATION.fullmatch(part.strip())
        if not match:
            raise UsageError(f"augmentations must be like flip,rotate(10), got {part.strip()!r}")
        name, number = match[1], match[2]
        if name == "crop":
            raise UsageError(
                "crop belongs to decoding, where less is decoded then: give "
                "decode_images(crop=True), and leave it out of augmentations"
            )
        if name in _WRITTEN_ONLY:
            raise UsageError(
                f"{name} is not made while reading: write it with `recordmill images "
                f"--augmentations={name}`, or choose of {', '.join(STRENGTHS)}"
            )
        one_of("the augmentation", name, STRENGTHS)
        if name in strengths:
            raise UsageError(f"augmentations must name each operation once, got {name} twice")
        try:
            strengths[name] = STRENGTHS[name] if number is None else float(number)
        except ValueError as error:
            raise UsageError(f"{name} takes a number in parentheses, got {number!r}") from error
    return strengths


def strength_of(name: str, value: Strength | None, usual: float) -> float:
    """Returns a strength as a number: True is the usual one, False and None are 0."""
    if isinstance(value, bool) or value is None:
        return usual if value else 0.0
    if not isinstance(value, (int, float)):
        raise UsageError(f"{name} must be a number, True or False, got {value!r}")
    return float(value)


def make_augmentation(
    text: str, given: Mapping[str, Strength | None], *, zoom: tuple[float, float] | None
) -> Augmentation:
    """Returns the checked augmentation of the arguments of `augment_images`.

    Args:
      text: operations as `--augmentations` has them.
      given: the other arguments by name.
      zoom: the least and largest factor.

    Raises:
      UsageError: see `augment_images`.
    """
    if given["hue"] is True:
        raise UsageError("hue must be a number in [0, 0.5], got True")
    values = {name: value for name, value in given.items() if value not in (None, False, 0)}
    for name, other in _SYNONYMS.items():
        if given[name] is not None and given[other] is not None:
            raise UsageError(f"{name} and {other} are the same: give one of them")
    if text:
        operations = [n for n in (*values, "zoom" if zoom else "") if n in (*STRENGTHS, "zoom")]
        operations += [n for n in ("flip_left_right", "flip_up_down") if n in values]
        if operations:
            raise UsageError(
                f"augmentations={text!r} names all operations: put {operations[0]} into it too"
            )
        values |= parse_augmentations(text)
        if given["min_visible"] is None and given["min_visibility"] is None:
            values["min_visible"] = MIN_VISIBLE
    elif given["flip"] is None and given["flip_left_right"] is None:
        values["flip"] = True
    for name, other in _SYNONYMS.items():
        if other in values:
            values[name] = values.pop(other)
    if "color" in values:
        if any(name in values for name in _COLOUR):
            raise UsageError(f"color is all of {', '.join(_COLOUR)}: give it, or those")
        values |= dict.fromkeys(_COLOUR, strength_of("color", values.pop("color"), 0.2))
    usual = {**STRENGTHS, "min_visible": MIN_VISIBLE, "hue": 0.0}
    strengths = {name: strength_of(name, values.get(name), usual[name]) for name in usual}
    if zoom is None:
        zoom = (1 - strengths["scale"], 1 + strengths["scale"])
    elif strengths["scale"]:
        raise UsageError("scale and zoom are the same: give one of them")
    return Augmentation(
        flip_left_right=strengths["flip"],
        flip_up_down=strengths["vertical_flip"],
        zoom=zoom,
        min_visibility=strengths["min_visible"],
        **{name: strengths[name] for name in ("rotate", "translate", "hue", *_COLOUR)},
    )
