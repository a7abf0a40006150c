"""How the values of mask images, and the classes of regions, become the classes of a written mask.

In a mask image a value is a class and 255 marks a pixel without class, unless `MaskClassSpec` says
otherwise. Masks of many datasets hold 0 and 255 for two classes, or grey levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.argument_names import IMAGE_ARGUMENTS
from recordmill.transforms.dataset.argument_types import checked_arguments, checked_fields
from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.masks import Mask
from recordmill.transforms.images.references import Region

NO_CLASS = 255  # in masks, a pixel that is not to be learned: Pascal VOC's borders
FOREGROUND = "foreground"  # the name of class 1 where a mask has two classes
KEEP = "keep"  # --mask_values=keep
TWO_CLASSES = ((0, 0), (1, 1), (255, 1))  # what DAGM 2007 means by the values of its masks
_BINARY_THRESHOLD = 127


@dataclass(frozen=True, slots=True)
class MaskClassSpec:
    """The meaning of the values of masks.

    Attributes:
      binary: mask images have class 1 above 127, regions of any class are class 1.
      threshold: mask images have class 1 above it, class 0 elsewhere.
      values: (value, class) of mask images; images with other values are rejected.
      keep: values of mask images are known to be classes, however they look.
      one_class: regions of this class are class 1, all else is class 0.

    Raises:
      UsageError: a value is not valid, or several options say what masks mean.
    """

    binary: bool = False
    threshold: int | None = None
    values: tuple[tuple[int, int], ...] = ()
    keep: bool = False
    one_class: str = ""

    @checked_fields(IMAGE_ARGUMENTS)
    def __post_init__(self) -> None:
        if len(self.given) > 1:
            raise UsageError(f"give one of {' and '.join(self.given)}: each says what masks mean")
        if self.threshold is not None and not 0 <= self.threshold <= 254:
            raise UsageError(f"--mask_threshold must be from 0 to 254, got {self.threshold}")
        stored = [value for value, _ in self.values]
        for value in (number for pair in self.values for number in pair):
            if not 0 <= value <= 255:
                raise UsageError(f"--mask_values must be from 0 to 255, got {value}")
        if len(set(stored)) != len(stored):
            twice = next(value for value in stored if stored.count(value) > 1)
            raise UsageError(f"--mask_values must name each value once, got {twice} twice")

    @classmethod
    @checked_arguments(IMAGE_ARGUMENTS)
    def parse_values(cls, text: str) -> tuple[tuple[int, int], ...]:
        """Reads "0:0,255:1".

        Raises:
          UsageError: it is of another form.
        """
        try:
            pairs = [part.split(":") for part in text.split(",")]
            return tuple((int(value), int(number)) for value, number in pairs)
        except ValueError as error:
            raise UsageError(
                f"--mask_values must be like 0:0,255:1, or {KEEP}, got {text!r}"
            ) from error

    @property
    def given(self) -> list[str]:
        """The flags that are set."""
        flags = {
            "--binary_masks": self.binary,
            "--mask_threshold": self.threshold is not None,
            "--mask_values": bool(self.values) or self.keep,
            "--mask_class": bool(self.one_class),
        }
        return [flag for flag, is_set in flags.items() if is_set]

    @property
    def two_classes(self) -> bool:
        """Whether masks have the classes 0 and 1 alone, whatever the input's classes are."""
        if self.values:
            return {number for _, number in self.values} <= {0, 1, NO_CLASS}
        return self.binary or self.threshold is not None or bool(self.one_class)

    @property
    def cut(self) -> int | None:
        """The value above which a pixel is class 1; None where values are classes."""
        return _BINARY_THRESHOLD if self.binary else self.threshold

    def unknown_values(self, present: Mask, last: int) -> Sequence[int]:
        """Returns the values that are no classes.

        Args:
          present: `[num_values] uint8`, the values of a mask.
          last: the highest class.
        """
        if self.cut is not None:
            return ()
        if self.values:
            known = {value for value, _ in self.values}
            return [value for value in present.tolist() if value not in known]
        return [value for value in present.tolist() if last < value != NO_CLASS]


def classes_of_image(mask: Mask, spec: MaskClassSpec, last: int) -> Mask:
    """Returns `[height, width] uint8`: the classes of a mask image's values.

    Args:
      mask: `[height, width] uint8`, as stored.
      spec: what its values mean.
      last: the highest class.

    Raises:
      ImageRejectedError: mask_classes, for a value that is no class.
    """
    if spec.cut is not None:
        return (mask > spec.cut).astype(np.uint8)
    if spec.values:
        counts = np.bincount(mask.ravel(), minlength=256)
        if unknown := spec.unknown_values(np.flatnonzero(counts).astype(np.uint8), last):
            raise ImageRejectedError("mask_classes", f"value {unknown[0]}, not in --mask_values")
        table = np.zeros(256, np.uint8)
        for value, number in spec.values:
            table[value] = number
        return table[mask]
    highest = int(mask.max(where=mask != NO_CLASS, initial=0))
    if highest > last:
        raise ImageRejectedError("mask_classes", f"class {highest}, at most {last}")
    return mask


def chosen_regions(
    regions: Sequence[tuple[str, Region]], labels: Mapping[str, int], spec: MaskClassSpec
) -> tuple[Sequence[tuple[str, Region]], Mapping[str, int]]:
    """Returns the regions to draw, and the numbers of their classes."""
    if spec.binary:
        return [(FOREGROUND, region) for _, region in regions], {FOREGROUND: 1}
    if spec.one_class:
        return [item for item in regions if item[0] == spec.one_class], {spec.one_class: 1}
    return regions, labels


def class_name(names: Sequence[str], number: int) -> str:
    """Returns the name of a class of a mask, also of one that has none."""
    if number == NO_CLASS:
        return "no_class"
    if number < len(names):
        return names[number]
    return f"class_{number}" if number else "background"
