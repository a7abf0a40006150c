"""Whether the masks of an input are what a segmentation job takes them for.

A sample of the mask images is read while planning: values that are no classes would make a dataset
that is silently wrong, or a run whose images are all rejected at its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from recordmill.pipelines.planning.image_inputs import InputSummary
from recordmill.records.errors import UsageError, listed
from recordmill.transforms.images.image_spec import NO_CLASS, ImageSpec, MaskClassSpec
from recordmill.transforms.images.mask_classes import TWO_CLASSES
from recordmill.transforms.images.mask_samples import check_values, sample_masks

_DEFECTS = ("dagm", "severstal")  # layouts that say of each image where it has defects


def segmentation_masks(
    images: ImageSpec, summary: InputSummary, lines: Iterable[str], layout: str
) -> ImageSpec:
    """Checks that a segmentation job can use the masks of its input; returns what they mean.

    Args:
      images: the job's; its labels are those that a file lists, or none.
      summary: of the whole input.
      lines: references, a random sample first.
      layout: of the input.

    Raises:
      UsageError: there are no masks, or their values are no classes.
    """
    # Elsewhere an image without objects is background only beside others that have masks.
    known = summary.segmented if layout in _DEFECTS else summary.mask_images + summary.regions
    if not known:
        raise UsageError(
            f"--task=segmentation needs masks, and this input of --layout={layout} has none; name "
            "mask images by --masks=GLOB"
        )
    spec = images.mask_classes
    if layout == "dagm" and not spec.flags:
        images = replace(images, mask_classes=MaskClassSpec(values=TWO_CLASSES))
    _check_source(spec, summary, layout)
    if summary.mask_images:
        implied = images.mask_classes != spec
        sample = sample_masks(lines, images.decode)
        last = max(images.labels.values(), default=NO_CLASS)
        check_values(sample, images.mask_classes, last=last, implied=implied)
    return images


def _check_source(spec: MaskClassSpec, summary: InputSummary, layout: str) -> None:
    """Checks the flags against the kind of masks: images, or regions."""
    if spec.one_class and not summary.regions:
        raise UsageError(
            f"--mask_class={spec.one_class} needs regions with classes, such as Severstal's; for "
            "mask images give --mask_values=0:0,N:1"
        )
    if spec.one_class and spec.one_class not in summary.labels:
        raise UsageError(
            f"--mask_class must be one of {listed(sorted(summary.labels))}, the classes of the "
            f"input, got {spec.one_class!r}"
        )
    images_only = spec.values or spec.keep or spec.threshold is not None
    if images_only and not summary.mask_images:
        raise UsageError(
            f"{spec.flags[0]} is for mask images, and this input of --layout={layout} has none; "
            "remove it"
        )
