"""Refuses flags of `recordmill images` that have no effect on the job asked for.

A flag that is ignored makes a dataset that its user takes for another. A flag with its default
value is accepted everywhere, because templates give all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from recordmill.pipelines.flags import ImageFlags
from recordmill.records.errors import UsageError
from recordmill.transforms.images.examples import ImageSpec
from recordmill.transforms.images.listing.source_spec import SourceSpec

_MOVING = {"crop", "scale", "shear", "rotate", "translate", "randaugment"}
_UNCOVERING = {"scale", "shear", "rotate", "translate", "randaugment", "cutout"}
_CUTTING = _MOVING | {"flip", "vertical_flip", "rot90"}


@dataclass(frozen=True, slots=True)
class _Rule:
    """When a flag has an effect, and what it needs, for the message."""

    has_effect: Callable[[ImageSpec, ImageFlags], bool]
    needs: str


def _operations(images: ImageSpec) -> set[str]:
    return {name for name, _ in images.augmentation.operations}


def _resizes(images: ImageSpec) -> bool:
    return images.transform.size is not None


def _is_lossy(images: ImageSpec, _: ImageFlags) -> bool:
    """Whether an image may be written as JPEG or WebP by Pillow."""
    if images.encode.format == "keep":
        return _resizes(images) or bool(images.augmentation) or images.channels == 1
    return images.encode.format in ("JPEG", "WEBP")


def _takes_table_labels(images: ImageSpec, options: ImageFlags) -> bool:
    if images.task == "classification":
        return options.labels not in ("from_folder", "none")
    return images.task == "detection"


_RULES = {
    "quality": _Rule(_is_lossy, "images that are encoded as JPEG or WebP"),
    "float_range": _Rule(
        lambda images, _: images.encode.format == "float", "--format=unet, whose pixels are floats"
    ),
    "resize": _Rule(lambda images, _: _resizes(images), "--image_size"),
    "resample": _Rule(
        lambda images, _: _resizes(images) or bool(_operations(images) & _MOVING),
        f"--image_size, or --augmentations of {', '.join(sorted(_MOVING))}",
    ),
    "reducing_gap": _Rule(
        lambda images, _: _resizes(images) and images.transform.resample != "nearest",
        "--image_size, and another --resample than nearest",
    ),
    "fill": _Rule(
        lambda images, _: (_resizes(images) and images.transform.mode == "fit")
        or bool(_operations(images) & _UNCOVERING),
        f"--image_size with --resize=fit, or --augmentations of {', '.join(sorted(_UNCOVERING))}",
    ),
    "no_check": _Rule(
        lambda images, _: images.encode.format == "keep" and not _resizes(images),
        "images that are kept byte for byte: --encoding=keep without --image_size",
    ),
    "min_visible": _Rule(
        lambda images, _: images.task == "detection"
        and (
            bool(_operations(images) & _CUTTING)
            or (_resizes(images) and images.transform.mode == "crop")
        ),
        "--task=detection, and --augmentations or --resize=crop that cut objects",
    ),
    "max_drawn_pixels": _Rule(
        lambda images, _: images.task != "classification",
        "--task=detection or --task=segmentation, whose annotations have regions",
    ),
    "label_field": _Rule(_takes_table_labels, "a job whose labels are the table's"),
    "label_delimiter": _Rule(_takes_table_labels, "a job whose labels are the table's"),
    "label_folder": _Rule(
        lambda images, options: images.task == "classification"
        and options.labels not in ("from_field", "none"),
        "--task=classification with labels from folders",
    ),
}  # fmt: skip

# Those of encoded images in files or archives.
_ENCODED = ("coco", "dagm", "flat", "folders", "pairs", "severstal", "table", "voc", "yolo")
# Flag -> the layouts that it says something of.
_LAYOUTS = {
    "gif": _ENCODED,
    "max_scans": _ENCODED,
    "max_metadata_bytes": _ENCODED,
    "max_pixels": _ENCODED,
    "no_check": _ENCODED,
    "max_objects": ("coco", "table", "voc", "yolo"),
    "label_folder": ("folders", "table"),
}
_LAYOUTS_WITHOUT_SPLITS = ("flat", "pairs", "severstal", "table")


def check_flags(given: Set[str], images: ImageSpec, options: ImageFlags) -> None:
    """Refuses flags that have no effect on this task, format and these pixels.

    Args:
      given: the flags that have not their default value.
      images: what is done to images.
      options: the parsed flags.

    Raises:
      UsageError: names the flag and what it needs.
    """
    for name, rule in _RULES.items():
        if name in given and not rule.has_effect(images, options):
            raise UsageError(
                f"{_shown(name, options)} has no effect on this job: it needs {rule.needs}; "
                "remove it"
            )
    if images.task == "segmentation" and options.labels in ("from_folder", "from_field"):
        raise UsageError(
            f"--labels={options.labels} has no effect on --task=segmentation, whose classes are "
            "those of the masks; remove it"
        )


def check_layout_flags(given: Set[str], source: SourceSpec) -> None:
    """Refuses flags that have no effect on an input of this layout.

    Args:
      given: the flags that have not their default value.
      source: the input; its layout is known.

    Raises:
      UsageError: names the flag and the layouts that it is for.
    """
    layout, split_from, split_by = source.layout, source.split_from, source.split_by
    for name, layouts in _LAYOUTS.items():
        if name in given and layout not in layouts:
            raise UsageError(
                f"--{name} has no effect on --layout={layout}; it is for {', '.join(layouts)}; "
                "remove it"
            )
    if "label_folder" in given and layout == "table" and source.labels_from != "folder":
        raise UsageError(
            f"--label_folder={source.label_folder} has no effect on a table's labels; give "
            "--labels=from_folder too, or remove it"
        )
    if split_from == "none" and layout in _LAYOUTS_WITHOUT_SPLITS:
        raise UsageError(
            f"--split_from=none has no effect on --layout={layout}, which names no splits; "
            "remove it"
        )
    if split_by and split_from not in ("", "none"):
        raise UsageError(
            f"--split_by={split_by} has no effect where --split_from names the split of each "
            "image; remove one of them"
        )


def check_split_flags(split_by: str, *, named: bool, splits: int) -> None:
    """Refuses --split_by where no split is drawn.

    Args:
      split_by: the flag.
      named: whether the input names the splits.
      splits: their number.

    Raises:
      UsageError: no image can change its split.
    """
    if split_by and (named or splits == 1):
        why = "the input names the splits" if named else "there is one split"
        raise UsageError(
            f"--split_by={split_by} has no effect where {why}; remove it, or give --splits such "
            "as train:0.9,validation:0.1" + (" with --split_from=none" if named else "")
        )


def check_first_label(given: Set[str], *, numbered: bool) -> None:
    """Refuses --first_label where no class of the input gets a number from it.

    Args:
      given: the flags that have not their default value.
      numbered: whether the input's classes, or those of --labels, are numbered.

    Raises:
      UsageError: they are not.
    """
    if "first_label" in given and not numbered:
        raise UsageError(
            "--first_label has no effect where classes have no names, or are 0 and 1; give "
            "--labels=FILE, or remove it"
        )


def _shown(name: str, options: ImageFlags) -> str:
    value = getattr(options, name)
    return f"--{name}" if value is True else f"--{name}={value}"
