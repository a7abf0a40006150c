"""How the values of mask images, and the classes of regions, become the classes of a written mask.

In a mask image a value is a class and 255 marks a pixel without class, unless `MaskClassSpec` says
otherwise. Masks of many datasets hold 0 and 255 for two classes, or grey levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.image_spec import NO_CLASS, MaskClassSpec
from recordmill.transforms.images.masks import Mask
from recordmill.transforms.images.references import Region

FOREGROUND = "foreground"  # the name of class 1 where a mask has two classes
TWO_CLASSES = ((0, 0), (1, 1), (255, 1))  # what DAGM 2007 means by the values of its masks


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
        if unknown := spec.unknown_values(np.flatnonzero(counts).tolist(), last):
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
