"""Names and strengths of augmentations, as `recordmill images --augmentations` has them.

The reader imports no pipeline; a test compares the two tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from recordmill.records.errors import UsageError, one_of

Strength = float | bool  # True: the strength that a name has where none is given
Strengths = Strength | tuple[float, float]

# The strengths that `True`, or a name without parentheses, stands for.
STRENGTHS: dict[str, tuple[float, ...]] = {
    "flip": (0.5,),
    "vertical_flip": (0.5,),
    "rot90": (),
    "scale": (0.2,),
    "shear": (0.1,),
    "rotate": (15.0,),
    "translate": (0.1,),
    "color": (0.2,),
    "brightness": (0.2,),
    "contrast": (0.2,),
    "saturation": (0.2,),
    "blur": (1.0,),
    "noise": (0.05,),
    "cutout": (0.25,),
    "randaugment": (2.0, 9.0),
}
CROP = 0.25
MIN_VISIBLE = 0.1
_SYNONYMS = {
    "flip": "flip_left_right",
    "vertical_flip": "flip_up_down",
    "min_visible": "min_visibility",
}
_COLOUR = ("brightness", "contrast", "saturation")
# What changes pixels where they are, in the order in which arguments do it.
_EFFECTS = ("recolour", "blur", "noise", "cutout", "randaugment")
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
    rot90: bool = False
    shear: float = 0.0
    blur: float = 0.0
    noise: float = 0.0
    cutout: float = 0.0
    randaugment: tuple[float, float] | None = None
    effects: tuple[str, ...] = _EFFECTS

    def __post_init__(self) -> None:
        limits = {
            "flip_left_right": 1, "flip_up_down": 1, "rotate": 180, "translate": 1,
            "brightness": 1, "contrast": 1, "saturation": 1, "hue": 0.5, "min_visibility": 1,
            "shear": 1, "blur": 50, "noise": 1, "cutout": 1,
        }  # fmt: skip
        for name, limit in limits.items():
            if not 0 <= getattr(self, name) <= limit:
                raise UsageError(f"{name} must be in [0, {limit}], got {getattr(self, name)}")
        if not 0 < self.zoom[0] <= self.zoom[1]:
            raise UsageError(f"zoom must be 0 < least <= most, got {self.zoom}")
        if self.randaugment:
            count, magnitude = self.randaugment
            if count not in range(1, 15) or not 0 <= magnitude <= 10:
                raise UsageError(
                    "randaugment must be (operations from 1 to 14, magnitude in [0, 10]), got "
                    f"({count:g}, {magnitude:g})"
                )

    @property
    def moves(self) -> bool:
        """Whether pixels change their position, other than by flips and quarter turns."""
        moved = (self.rotate, self.translate, self.shear, self.randaugment)
        return any(moved) or self.zoom != (1.0, 1.0)

    @property
    def colours(self) -> bool:
        """Whether colours change."""
        return any((self.brightness, self.contrast, self.saturation, self.hue))


def parse_augmentations(text: str) -> dict[str, Strengths]:
    """Reads `--augmentations`: name -> strength.

    >>> parse_augmentations("flip,rotate(10),randaugment(2,9)")
    {'flip': 0.5, 'rotate': 10.0, 'randaugment': (2.0, 9.0)}

    Raises:
      UsageError: no such operation, or other numbers than it takes.
    """
    strengths: dict[str, Strengths] = {}
    for part in filter(None, re.split(r",(?![^(]*\))", text)):
        match = _OPERATION.fullmatch(part.strip())
        if not match:
            raise UsageError(f"augmentations must be like flip,rotate(10), got {part.strip()!r}")
        name, numbers = match[1], match[2]
        if name == "crop":
            raise UsageError(
                "crop belongs to decoding, where less is decoded then: give "
                "decode_images(crop=True), and leave it out of augmentations"
            )
        one_of("the augmentation", name, STRENGTHS)
        if name in strengths:
            raise UsageError(f"augmentations must name each operation once, got {name} twice")
        strengths[name] = _numbers(name, numbers)
    return strengths


def _numbers(name: str, text: str | None) -> Strengths:
    """Returns the strength in an operation's parentheses, or the usual one."""
    usual = STRENGTHS[name]
    try:
        given = usual if text is None else tuple(float(n) for n in text.split(",") if text)
    except ValueError:
        given = ()
    if len(given) != len(usual):
        needed = ("no number", "a number in parentheses", "two numbers in parentheses")
        raise UsageError(f"{name} takes {needed[len(usual)]}, got {text!r}")
    return given if len(given) == 2 else given[0] if given else True


def strength_of(name: str, value: Strengths | None, usual: float) -> float:
    """Returns a strength as a number: True is the usual one, False and None are 0."""
    if isinstance(value, bool) or value is None:
        return usual if value else 0.0
    if not isinstance(value, (int, float)):
        raise UsageError(f"{name} must be a number, True or False, got {value!r}")
    return float(value)


def _pair_of(value: Strengths | None) -> tuple[float, float] | None:
    """Returns RandAugment's operations and magnitude."""
    if isinstance(value, bool) or value is None:
        return (STRENGTHS["randaugment"][0], STRENGTHS["randaugment"][1]) if value else None
    if not isinstance(value, tuple) or len(value) != 2:
        raise UsageError(
            f"randaugment must be (operations, magnitude), such as (2, 9), or True, got {value!r}"
        )
    return value


def make_augmentation(
    text: str, given: Mapping[str, Strengths | None], *, zoom: tuple[float, float] | None
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
    named: list[str] = []
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
        parsed = parse_augmentations(text)
        values |= parsed
        named = ["recolour" if name in (*_COLOUR, "color") else name for name in parsed]
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
    usual = {name: numbers[0] for name, numbers in STRENGTHS.items() if len(numbers) == 1}
    usual |= {"min_visible": MIN_VISIBLE, "hue": 0.0}
    strengths = {name: strength_of(name, values.get(name), usual[name]) for name in usual}
    if zoom is None:
        zoom = (1 - strengths["scale"], 1 + strengths["scale"])
    elif strengths["scale"]:
        raise UsageError("scale and zoom are the same: give one of them")
    same = ("rotate", "translate", "shear", "hue", *_COLOUR, "blur", "noise", "cutout")
    return Augmentation(
        flip_left_right=strengths["flip"],
        flip_up_down=strengths["vertical_flip"],
        rot90=bool(strength_of("rot90", values.get("rot90"), 1.0)),
        zoom=zoom,
        min_visibility=strengths["min_visible"],
        randaugment=_pair_of(values.get("randaugment")),
        effects=tuple(dict.fromkeys(n for n in (*named, *_EFFECTS) if n in _EFFECTS)),
        **{name: strengths[name] for name in same},
    )
