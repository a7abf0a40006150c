"""Whether the values of mask images are classes, by a sample of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from recordmill.records.errors import UsageError
from recordmill.transforms.images.decoding import ImageRejectedError, decode_mask
from recordmill.transforms.images.image_spec import KEEP, NO_CLASS, DecodeSpec, MaskClassSpec
from recordmill.transforms.images.mask_classes import FOREGROUND
from recordmill.transforms.images.masks import Mask
from recordmill.transforms.images.references import ImageReference
from recordmill.transforms.images.stored_bytes import ImageReader, UnreadableBytesError

_SAMPLE_MASKS = 32
_NOISY_VALUES = 4  # more in a JPEG are its noise, not classes
_HIGHEST_USUAL = 200  # datasets have fewer classes: COCO-Stuff 182, ADE20K 150
_SPARSE = 8  # times as many numbers as values are grey levels, not classes, from 32 on
_TWO = "--binary_masks (above 127 is class 1) or --mask_threshold=N (above N is class 1)"


@dataclass(frozen=True, slots=True)
class MaskSample:
    """The values of some mask images.

    Attributes:
      values: of each mask, sorted.
      jpeg: whether one is a JPEG, whose compression changes values.
    """

    values: tuple[Mask, ...]
    jpeg: bool

    @property
    def present(self) -> list[int]:
        """The values that occur, sorted."""
        return sorted({value for values in self.values for value in values.tolist()})


def sample_masks(lines: Iterable[str], decode: DecodeSpec) -> MaskSample:
    """Reads the first mask images of some references; those that cannot be read are left out."""
    reader = ImageReader()
    values: list[Mask] = []
    jpeg, tried = False, 0
    try:
        for line in lines:
            mask = ImageReference.from_line(line).mask
            if mask is None or mask.storage == "idx":
                continue
            tried += 1
            if tried > _SAMPLE_MASKS:
                break
            try:
                header, image = decode_mask(reader.read(mask), decode)
            except (ImageRejectedError, UnreadableBytesError):
                continue
            jpeg |= header.format == "JPEG"
            values.append(np.flatnonzero(image.histogram()).astype(np.uint8))
    finally:
        reader.close()
    return MaskSample(tuple(values), jpeg)


def mask_labels(
    spec: MaskClassSpec, names: list[str], *, first_label: int, regions: bool
) -> dict[str, int]:
    """Returns class name -> number for a segmentation job.

    Args:
      spec: what masks mean.
      names: of the input's classes, or those that --labels lists.
      first_label: the number of the first of them.
      regions: whether the input has regions instead of mask images.
    """
    if spec.one_class:
        return {spec.one_class: 1}
    if spec.two_classes and (regions or not names):
        return {FOREGROUND: 1}
    return {name: number for number, name in enumerate(names, first_label)}


def check_values(sample: MaskSample, spec: MaskClassSpec, *, last: int, implied: bool) -> None:
    """Checks the values of mask images.

    Args:
      sample: some of them.
      spec: what their values mean.
      last: the highest class, 255 where classes have no names.
      implied: whether `spec` is the layout's own and not asked for.

    Raises:
      UsageError: they are no classes; the message names the flag that is meant.
    """
    present = [value for value in sample.present if value]
    if not present:
        return
    held = f"{len(sample.values)} masks of a sample hold {_shown(sample.present)}"
    if spec.cut is not None:
        if max(present) <= spec.cut:
            raise UsageError(
                f"{spec.flags[0]} makes values above {spec.cut} class 1, and {held}: all would be "
                "class 0; remove it, or give --mask_threshold=0"
            )
        return
    unknown_values = [spec.unknown_values(values.tolist(), last) for values in sample.values]
    bad = [values for values in unknown_values if values]
    if len(bad) * 2 > len(sample.values) or (bad and sample.jpeg):
        unknown = sorted({value for values in bad for value in values})
        raise UsageError(_unknown_message(unknown, held, spec, last=last, implied=implied))
    if spec.values or spec.keep:
        return
    _check_classes([value for value in present if value != NO_CLASS], sample, held)


def _check_classes(classes: Sequence[int], sample: MaskSample, held: str) -> None:
    """Checks that values look like classes.

    Raises:
      UsageError: they do not.
    """
    if not classes:
        raise UsageError(
            f"masks must hold classes, and 255 means no class; {held}: give --binary_masks if 255 "
            f"is class 1, or --mask_values={KEEP} if it is no class"
        )
    if (sample.jpeg and len(classes) > _NOISY_VALUES) or len(classes) > _HIGHEST_USUAL:
        cause = ", because JPEG changes values" if sample.jpeg else ""
        raise UsageError(f"masks must hold classes; {held}{cause}: give {_TWO}")
    highest = max(classes)
    sparse = highest >= 4 * _SPARSE and len(classes) * _SPARSE <= highest
    if sparse or highest >= _HIGHEST_USUAL:
        levels = [0, *classes] + ([NO_CLASS] if NO_CLASS in sample.present else [])
        mapping = ",".join(f"{value}:{number}" for number, value in enumerate(levels[:9]))
        mapping += ",…" if len(levels) > 9 else ""
        raise UsageError(
            f"masks must hold classes, and these look like grey levels; {held}: give {_TWO}, "
            f"--mask_values={mapping}, or --mask_values={KEEP} if these are classes"
        )


def _unknown_message(
    unknown: Sequence[int], held: str, spec: MaskClassSpec, *, last: int, implied: bool
) -> str:
    if implied:
        return f"masks of --layout=dagm must hold 0 and 255 (or 1); {held}: give {_TWO}"
    if spec.values:
        return f"--mask_values must name all values of the masks, got none for {_shown(unknown)}"
    return (
        f"masks must hold classes up to {last}, the last of --labels; {held}: give {_TWO}, or "
        f"--mask_values=0:0,{unknown[0]}:1"
    )


def _shown(values: Sequence[int]) -> str:
    """Returns the values in words, those in the middle left out."""
    if len(values) <= 8:
        return ", ".join(map(str, values))
    first, last = ", ".join(map(str, values[:4])), ", ".join(map(str, values[-2:]))
    return f"{first}, … {last} ({len(values)} values)"
