"""Image examples: the record formats, and the spec of all image options, checked as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from recordmill.records import image_formats
from recordmill.records.codec.encoding import Column
from recordmill.records.errors import UsageError, at_least, one_of
from recordmill.records.image_formats import ImageContent
from recordmill.records.schema import Schema
from recordmill.transforms.dataset.argument_names import IMAGE_ARGUMENTS
from recordmill.transforms.dataset.argument_types import checked_fields
from recordmill.transforms.images import columns as image_columns
from recordmill.transforms.images.augmentation import AugmentationSpec
from recordmill.transforms.images.columns import Prepared
from recordmill.transforms.images.decoding import DecodeSpec
from recordmill.transforms.images.encoding import EncodeSpec, Encoding
from recordmill.transforms.images.geometry import TransformSpec
from recordmill.transforms.images.mask_classes import MaskClassSpec
from recordmill.transforms.images.masks import USUAL_DRAWN_PIXELS
from recordmill.transforms.sources.kept_fields import KeptField

TASKS = ("classification", "detection", "segmentation")
_IMAGES: tuple[Encoding, ...] = ("keep", "JPEG", "PNG", "WEBP")


@dataclass(frozen=True, slots=True)
class Format:
    """A record format.

    Attributes:
      tasks: what it can hold.
      encodings: how its images can be encoded; the first is the default.
      schema: its features.
      columns: what puts prepared images into them.
      multilabel: whether an image may have any number of labels.
      masks: whether objects may have masks.
      needs_size: whether all images must be of one size.
      numbers: whether a label may be a number to be predicted.
      unlabeled: whether images may have no label.
    """

    tasks: tuple[str, ...]
    encodings: tuple[Encoding, ...]
    schema: Callable[[ImageContent], Schema]
    columns: Callable[[Sequence[Prepared], ImageContent], dict[str, Column]]
    multilabel: bool = False
    masks: bool = False
    needs_size: bool = False
    numbers: bool = False
    unlabeled: bool = False


FORMATS = {
    "tfds": Format(
        TASKS,
        _IMAGES,
        image_formats.tfds,
        image_columns.tfds,
        multilabel=True,
        masks=True,
        numbers=True,
        unlabeled=True,
    ),
    "imagenet": Format(
        ("classification",), _IMAGES, image_formats.imagenet, image_columns.imagenet
    ),
    "raw": Format(
        ("classification", "segmentation"),
        ("raw",),
        image_formats.raw,
        image_columns.raw,
        numbers=True,
        unlabeled=True,
    ),
    "object_detection": Format(
        ("detection",),
        _IMAGES,
        image_formats.object_detection,
        image_columns.object_detection,
        masks=True,
    ),
    "model_garden": Format(
        TASKS,
        _IMAGES,
        image_formats.model_garden,
        image_columns.model_garden,
        multilabel=True,
        masks=True,
        unlabeled=True,
    ),
    "unet": Format(
        ("segmentation",), ("float",), image_formats.unet, image_columns.unet, needs_size=True
    ),
}


def check_combination(
    task: str,
    format: str,  # noqa: A002
    encode: EncodeSpec,
    transform: TransformSpec,
    *,
    multilabel: bool = False,
    masks: bool = False,
    numbers: bool = False,
    unlabeled: bool = False,
) -> None:
    """Holds the parts of a configuration against each other.

    Raises:
      UsageError: they do not go together.
    """
    one_of("--task", task, TASKS)
    record_format = FORMATS[one_of("--format", format, FORMATS)]
    if task not in record_format.tasks:
        fitting = [name for name, other in FORMATS.items() if task in other.tasks]
        raise UsageError(
            f"--format must be one of {', '.join(fitting)} for --task={task}, got {format!r}"
        )
    if encode.format not in record_format.encodings:
        raise UsageError(
            f"--encoding must be one of {', '.join(record_format.encodings)} for "
            f"--format={format}, got {encode.format!r}"
        )
    if record_format.needs_size and transform.fixed_size is None:
        raise UsageError(
            f"--format={format} must have images of one size: --image_size with --resize=stretch, "
            f"fit or crop, got --resize={transform.mode}"
            + ("" if transform.size else " without --image_size")
        )
    if multilabel and not (task == "classification" and record_format.multilabel):
        raise UsageError(
            "--multilabel must go with --task=classification and a format of several labels "
            f"({', '.join(n for n, f in FORMATS.items() if f.multilabel)}), got {task}, {format}"
        )
    if numbers and (task != "classification" or multilabel or not record_format.numbers):
        raise UsageError(
            "--labels=number must go with --task=classification, one label an image and a format "
            f"of numbers ({', '.join(n for n, f in FORMATS.items() if f.numbers)}), got {task}, "
            f"{format}{', --multilabel' if multilabel else ''}"
        )
    if unlabeled and (task != "classification" or multilabel or not record_format.unlabeled):
        raise UsageError(
            "--labels=none must go with a format of images alone for --task=classification "
            f"({', '.join(n for n, f in FORMATS.items() if f.unlabeled)}), got {format}"
            f"{', --multilabel' if multilabel else ''}"
        )
    if masks and not (task == "detection" and record_format.masks):
        raise UsageError(
            "--include_masks must go with --task=detection and a format of masks "
            f"({', '.join(n for n, f in FORMATS.items() if f.masks)}), got {task}, {format}"
        )


@dataclass(frozen=True)
class ImageSpec:
    """All that is done to images.

    Attributes:
      task: "classification", "detection", "segmentation".
      format: a key of `FORMATS`.
      labels: class name -> number. In masks 0 is the background, where it has no other name, and
        255 a pixel without a class.
      seed: of all draws.
      decode, transform, augmentation, encode: see there.
      channels: 3, or 1 for grey.
      multilabel: images have any number of labels; else one.
      numbers: the label is a number to be predicted, and no class.
      unlabeled: images are written without labels.
      keep_fields: columns of the table that are written as features of their names.
      masks: objects are written with their masks.
      mask_classes: what the values of masks mean.
      write_augmentations: what was drawn becomes a feature, `image/augmentation`.
      min_visible: the share of a box that must be visible for an object to be kept, in [0, 1].
      max_drawn_pixels: for the regions of an image, see `masks.DrawingLimit`.

    Raises:
      UsageError: a value is not valid, or options contradict each other.
    """

    task: Literal["classification", "detection", "segmentation"]
    format: str
    labels: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    decode: DecodeSpec = field(default_factory=DecodeSpec)
    transform: TransformSpec = field(default_factory=TransformSpec)
    augmentation: AugmentationSpec = field(default_factory=AugmentationSpec)
    encode: EncodeSpec = field(default_factory=EncodeSpec)
    channels: Literal[1, 3] = 3
    multilabel: bool = False
    numbers: bool = False
    unlabeled: bool = False
    keep_fields: tuple[KeptField, ...] = ()
    masks: bool = False
    mask_classes: MaskClassSpec = field(default_factory=MaskClassSpec)
    write_augmentations: bool = False
    min_visible: float = 0.1
    max_drawn_pixels: int = USUAL_DRAWN_PIXELS

    @checked_fields(IMAGE_ARGUMENTS)
    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise UsageError(f"--channels must be 1 or 3, got {self.channels}")
        if not 0 <= self.min_visible <= 1:
            raise UsageError(f"--min_visible must be in [0, 1], got {self.min_visible}")
        at_least("--max_drawn_pixels", self.max_drawn_pixels, 1)
        if self.write_augmentations and not self.augmentation:
            raise UsageError("--write_augmentations must go with --augmentations, got none")
        if self.mask_classes.given and self.task != "segmentation":
            flag = self.mask_classes.given[0]
            raise UsageError(f"{flag} must go with --task=segmentation, got {self.task}")
        check_combination(
            self.task, self.format, self.encode, self.transform,
            multilabel=self.multilabel, masks=self.masks, numbers=self.numbers,
            unlabeled=self.unlabeled,
        )  # fmt: skip
        own = {feature.name for feature in FORMATS[self.format].schema(self._content).features}
        if taken := sorted(own & {field.name for field in self.keep_fields}):
            raise UsageError(
                f"--keep_fields must name columns that --format={self.format} has no feature of, "
                f"got {', '.join(taken)}; rename them in the table"
            )
        if (least := min(self.labels.values(), default=0)) < 0:
            raise UsageError(f"ImageSpec.labels must be numbers from 0 on, got {least}")
        if self.task == "segmentation" and max(self.labels.values(), default=0) > 255:
            raise UsageError(
                f"--task=segmentation must have at most 255 classes, got {len(self.labels)}"
            )

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of class 0, 1, …; numbers that `labels` leaves out are called background."""
        names = {number: name for name, number in self.labels.items()}
        count = max(names, default=0) + 1
        return tuple(names.get(n, "background" if n == 0 else f"class_{n}") for n in range(count))

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        schema = FORMATS[self.format].schema(self._content)
        kept = (f.feature(f"the table's column {f.name}") for f in self.keep_fields)
        return Schema((*schema.features, *kept))

    @cached_property
    def _content(self) -> ImageContent:
        height, width = self.transform.fixed_size or (None, None)
        return ImageContent(
            self.task, self.classes, (height, width, self.channels),
            multilabel=self.multilabel, masks=self.masks, augmentation=self.write_augmentations,
            numbers=self.numbers, unlabeled=self.unlabeled,
        )  # fmt: skip

    def columns(self, batch: Sequence[Prepared]) -> dict[str, Column]:
        """Returns feature -> values of prepared images, for `encode_batch`."""
        columns = FORMATS[self.format].columns(batch, self._content)
        if self.write_augmentations:
            columns["image/augmentation"] = image_columns.augmentations(batch)
        for position, kept in enumerate(self.keep_fields):
            columns[kept.name] = kept.column([image.fields[position] for image in batch])
        return columns
