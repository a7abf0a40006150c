"""Augmentations of images by name, each a struct of its parameters: for writer and reader alike.

`flip,rotate(15),randaugment(2,9)` is `(Flip(), Rotate(degrees=15), RandAugment(2, 9))`: the numbers
in parentheses are the fields in order, and without parentheses they have their defaults. A new
augmentation is a struct here, its effect in the writer (`transforms/images/augmentation.py`) and in
the reader (`reader/transforms/image_augmentation.py`), whose arguments are made from these structs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, Union, get_args

import msgspec

from recordmill.records.errors import UsageError, one_of
from recordmill.records.spec import Spec, check_type, declared_fields, option, tag_of

# Boxes of which augmentations leave less than this share of the area are dropped.
MIN_VISIBLE = 0.1
AugmentationT = TypeVar("AugmentationT", bound="Augmentation")
_ITEM = re.compile(r"\s*([a-z_0-9]+)\s*(?:\(([^()]*)\))?\s*")
_Share = Annotated[float, option("a share, or a probability", ge=0, le=1)]


class Augmentation(Spec, frozen=True):
    """What is done to an image at random; its fields are numbers that say how much."""

    @property
    def name(self) -> str:
        """The name in lists of augmentations."""
        return tag_of(type(self))

    @property
    def strengths(self) -> tuple[float, ...]:
        """The numbers, in order."""
        return tuple(getattr(self, each.name) for each in declared_fields(type(self)))


class Flip(Augmentation, frozen=True, tag="flip", tag_field="name"):
    """Left and right are exchanged with this probability."""

    probability: _Share = 0.5


class VerticalFlip(Augmentation, frozen=True, tag="vertical_flip", tag_field="name"):
    """Top and bottom are exchanged with this probability."""

    probability: _Share = 0.5


class Rot90(Augmentation, frozen=True, tag="rot90", tag_field="name"):
    """0 to 3 quarter turns."""


class Crop(Augmentation, frozen=True, tag="crop", tag_field="name"):
    """A window of at least this share of the image's area (Szegedy et al. 2015, 1409.4842)."""

    area: Annotated[float, option("the least share of the area", ge=0.01, le=1)] = 0.25


class Scale(Augmentation, frozen=True, tag="scale", tag_field="name"):
    """The factor is drawn from `[1 - x, 1 + x]`."""

    most: Annotated[float, option("the most change of the factor", ge=0, le=0.9)] = 0.2


class Shear(Augmentation, frozen=True, tag="shear", tag_field="name"):
    """Each row is moved by up to this share of its distance from the middle."""

    most: _Share = 0.1


class Rotate(Augmentation, frozen=True, tag="rotate", tag_field="name"):
    """Up to so many degrees, either way, about the middle."""

    degrees: Annotated[float, option("the most degrees", ge=0, le=180)] = 15.0


class Translate(Augmentation, frozen=True, tag="translate", tag_field="name"):
    """Up to this share of height and width, each way."""

    most: _Share = 0.1


class Color(Augmentation, frozen=True, tag="color", tag_field="name"):
    """Brightness, contrast and saturation, by factors drawn from `[1 - x, 1 + x]`."""

    most: _Share = 0.2


class Brightness(Augmentation, frozen=True, tag="brightness", tag_field="name"):
    """The factor is drawn from `[1 - x, 1 + x]`."""

    most: _Share = 0.2


class Contrast(Augmentation, frozen=True, tag="contrast", tag_field="name"):
    """The factor is drawn from `[1 - x, 1 + x]`."""

    most: _Share = 0.2


class Saturation(Augmentation, frozen=True, tag="saturation", tag_field="name"):
    """The factor is drawn from `[1 - x, 1 + x]`."""

    most: _Share = 0.2


class Blur(Augmentation, frozen=True, tag="blur", tag_field="name"):
    """The Gaussian's deviation is drawn from 0 to this many pixels."""

    pixels: Annotated[float, option("the most pixels", ge=0, le=50)] = 1.0


class Noise(Augmentation, frozen=True, tag="noise", tag_field="name"):
    """The noise's deviation is drawn from 0 to this share of 255."""

    most: _Share = 0.05


class Cutout(Augmentation, frozen=True, tag="cutout", tag_field="name"):
    """The side of a black square, as a share of the shorter side (DeVries 2017, 1708.04552)."""

    side: _Share = 0.25


class RandAugment(Augmentation, frozen=True, tag="randaugment", tag_field="name"):
    """So many of 14 operations, of a magnitude in [0, 10] (Cubuk et al. 2020, 1909.13719)."""

    operations: Annotated[int, option("how many operations", ge=1, le=14)] = 2
    magnitude: Annotated[float, option("their magnitude", ge=0, le=10)] = 9.0


AnyAugmentation = Union[  # noqa: UP007 - its members are listed at run time
    Flip, VerticalFlip, Rot90, Crop, Scale, Shear, Rotate, Translate, Color, Brightness, Contrast,
    Saturation, Blur, Noise, Cutout, RandAugment,
]  # fmt: skip
# Name -> its struct: the augmentations that there are.
AUGMENTATIONS: dict[str, type[AnyAugmentation]] = {
    tag_of(kind): kind for kind in get_args(AnyAugmentation)
}


def parse_augmentations(text: str) -> tuple[AnyAugmentation, ...]:
    """Reads "flip,rotate(15),randaugment(2,9)"; "" is none.

    Raises:
      UsageError: an unknown name, one that is there twice, or strengths beyond their limits.
    """
    found: list[AnyAugmentation] = []
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if not item or text[item.end() : item.end() + 1] not in ("", ","):
            raise UsageError(
                "--augmentations must be names with commas between, strengths in parentheses, "
                f"such as flip,rotate(15), got {text!r}"
            )
        name = one_of("--augmentations", item[1], AUGMENTATIONS)
        found.append(make_augmentation(name, _numbers(name, item[2])))
        at = item.end() + 1
    check_once(found)
    return tuple(found)


def make_augmentation(name: str, strengths: tuple[float, ...] | None) -> AnyAugmentation:
    """Returns an augmentation of so many strengths; None for the usual ones.

    Raises:
      UsageError: their number is another one, or one is beyond its limits.
    """
    kind = AUGMENTATIONS[one_of("--augmentations", name, AUGMENTATIONS)]
    if strengths is None:
        return kind()
    wanted = len(declared_fields(kind))
    if len(strengths) != wanted:
        raise UsageError(
            f"--augmentations={name} must have {wanted} numbers in its parentheses, got "
            f"{len(strengths)}"
        )
    return _make(kind, strengths, f"--augmentations={name}")


def _make(kind: type[AugmentationT], strengths: tuple[float, ...], named: str) -> AugmentationT:
    fields = declared_fields(kind)
    values = []
    for each, value in zip(fields, strengths, strict=True):
        if each.hint is int:
            if value % 1:
                raise UsageError(f"{named} must have a whole number of {each.name}, got {value:g}")
            value = int(value)
        of = f"{named}: {each.name}" if len(fields) > 1 else named
        values.append(each.checked(value, kind, named=of))
    return kind(*values)


def argument_type(kind: type[Augmentation]) -> Any:
    """Returns the type of what `augmentation_of` takes."""
    fields = declared_fields(kind)
    words = f"({', '.join(each.name for each in fields)})"
    numbers: Any = {0: None, 1: float}.get(len(fields), Annotated[tuple[float, float], words])
    has_usual = all(each.default is not msgspec.NODEFAULT for each in fields)
    return bool | numbers | None if has_usual else numbers | None


def augmentation_of(kind: type[AugmentationT], value: Any) -> AugmentationT | None:
    """Returns what an argument of the reader asks for: its name is that of the augmentation.

    Args:
      kind: of the augmentation.
      value: True for the usual strength, a number, or a pair of them where it takes two; None,
        False and 0 are for none.

    Raises:
      UsageError: another value, or one beyond its limits.
    """
    value = check_type(tag_of(kind), value, argument_type(kind))
    if not value:
        return None
    if value is True:
        return kind()
    return _make(kind, value if isinstance(value, tuple) else (value,), tag_of(kind))


def check_once(augmentations: Sequence[Augmentation]) -> None:
    """Checks that each augmentation is named once.

    Raises:
      UsageError: one is there twice.
    """
    names = [each.name for each in augmentations]
    if len(set(names)) != len(names):
        raise UsageError(f"--augmentations must name each once, got {','.join(names)}")


def _numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    if not text:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"--augmentations={name} must have numbers, got {text!r}") from error
