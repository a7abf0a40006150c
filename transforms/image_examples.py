"""What image examples hold: record formats, and all that is done to images, checked as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from recordmill.records import image_formats
from recordmill.records.encoding import Column
from recordmill.records.errors import UsageError, one_of
from recordmill.records.image_formats import ImageContent
from recordmill.records.schema import Schema
from recordmill.transforms import image_columns
from recordmill.transforms.image_augmentation import AugmentationSpec
from recordmill.transforms.image_columns import Prepared
from recordmill.transforms.image_decoding import DecodeSpec
from recordmill.transforms.image_encoding import EncodeSpec
from recordmill.transforms.image_geometry import TransformSpec

TASKS = ("classification", "detection", "segmentation")
_IMAGES = ("keep", "JPEG", "PNG", "WEBP")


@dataclass(frozen=True, slots=True)
class Format:
    """A record format.

    Attributes:
      tasks: what it can hold.
      encodings: how its images can be encoded; the first is meant where nothing is said.
      schema: its features.
      columns: what puts prepared images into them.
      multilabel: whether an image may have any number of labels.
      masks: whether objects may have masks.
      needs_size: whether all images must be of one size.
    """

    tasks: tuple[str, ...]
    encodings: tuple[str, ...]
    schema: Callable[[ImageContent], Schema]
    columns: Callable[[Sequence[Prepared], ImageContent], dict[str, Column]]
    multilabel: bool = False
    masks: bool = False
    needs_size: bool = False


FORMATS = {
    "tfds": Format(
        TASKS, _IMAGES, image_formats.tfds, image_columns.tfds, multilabel=True, masks=True
    ),
    "imagenet": Format(
        ("classification",), _IMAGES, image_formats.imagenet, image_columns.imagenet
    ),
    "raw": Format(
        ("classification", "segmentation"), ("raw",), image_formats.raw, image_columns.raw
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
) -> None:
    """Holds the parts of a configuration against each other.

    Raises:
      UsageError: they do not go together.
    """
    one_of("--task", task, TASKS)
    found = FORMATS[one_of("--format", format, FORMATS)]
    if task not in found.tasks:
        fitting = [name for name, other in FORMATS.items() if task in other.tasks]
        raise UsageError(
            f"--format must be one of {', '.join(fitting)} for --task={task}, got {format!r}"
        )
    if encode.format not in found.encodings:
        raise UsageError(
            f"--encoding must be one of {', '.join(found.encodings)} for --format={format}, got "
            f"{encode.format!r}"
        )
    if found.needs_size and transform.fixed_size is None:
        raise UsageError(
            f"--format={format} must have images of one size: --image_size with --resize=stretch, "
            f"fit or crop, got --resize={transform.mode}"
            + ("" if transform.size else " without --image_size")
        )
    if multilabel and not (task == "classification" and found.multilabel):
        raise UsageError(
            "--multilabel must go with --task=classification and a format of several labels "
            f"({', '.join(n for n, f in FORMATS.items() if f.multilabel)}), got {task}, {format}"
        )
    if masks and not (task == "detection" and found.masks):
        raise UsageError(
            "--include_masks must go with --task=detection and a format of masks "
            f"({', '.join(n for n, f in FORMATS.items() if f.masks)}), got {task}, {format}"
        )


@dataclass(frozen=True)
class ImageWork:
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
      masks: objects are written with their masks.
      binary_masks: in mask images all above 127 is class 1, and else 0, as in DAGM 2007.
      write_augmentations: what was drawn becomes a feature, `image/augmentation`.
      min_visible: the share of a box that must be seen for an object to be kept, in [0, 1].
    """

    task: Literal["classification", "detection", "segmentation"]
    format: str
    labels: Mapping[str, int]
    seed: int = 0
    decode: DecodeSpec = field(default_factory=DecodeSpec)
    transform: TransformSpec = field(default_factory=TransformSpec)
    augmentation: AugmentationSpec = field(default_factory=AugmentationSpec)
    encode: EncodeSpec = field(default_factory=EncodeSpec)
    channels: Literal[1, 3] = 3
    multilabel: bool = False
    masks: bool = False
    binary_masks: bool = False
    write_augmentations: bool = False
    min_visible: float = 0.1

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise UsageError(f"--channels must be 1 or 3, got {self.channels}")
        if not 0 <= self.min_visible <= 1:
            raise UsageError(f"--min_visible must be in [0, 1], got {self.min_visible}")
        if self.write_augmentations and not self.augmentation:
            raise UsageError("--write_augmentations must go with --augmentations, got none")
        check_combination(
            self.task, self.format, self.encode, self.transform,
            multilabel=self.multilabel, masks=self.masks,
        )  # fmt: skip
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
        return FORMATS[self.format].schema(self._content)

    @cached_property
    def _content(self) -> ImageContent:
        height, width = self.transform.fixed_size or (None, None)
        return ImageContent(
            self.task, self.classes, (height, width, self.channels),
            multilabel=self.multilabel, masks=self.masks, augmentation=self.write_augmentations,
        )  # fmt: skip

    def columns(self, batch: Sequence[Prepared]) -> dict[str, Column]:
        """Returns feature -> values of prepared images, for `encode_batch`."""
        columns = FORMATS[self.format].columns(batch, self._content)
        if self.write_augmentations:
            columns["image/augmentation"] = image_columns.augmentations(batch)
        return columns
