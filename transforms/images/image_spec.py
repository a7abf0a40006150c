"""The options of image jobs: decoding, sizes, augmentation, encoding, masks, formats, and a job.

`ImageSpec(task="detection", format="object_detection")` is what `WriteImages` takes and what
`recordmill images --task=detection --format=object_detection` makes. Nothing heavy is imported
here: help and completion read these structs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

import msgspec
from msgspec.structs import force_setattr, replace

from recordmill.records import image_formats
from recordmill.records.augmentations import (
    AUGMENTATIONS,
    AnyAugmentation,
    check_once,
    parse_augmentations,
)
from recordmill.records.errors import UsageError
from recordmill.records.image_formats import ImageContent
from recordmill.records.schema import Schema
from recordmill.records.spec import Spec, check_type, naming_arguments, option, python_names
from recordmill.transforms.dataset.output_spec import (
    MapOptions,
    OutputSpec,
    SharesOrNames,
    Splits,
    WarningsOption,
    WriteSpec,
)
from recordmill.transforms.images.source_spec import DrawnOnOption, SourceSpec
from recordmill.transforms.sources.input_spec import Limit, MaxRejected

if TYPE_CHECKING:
    from recordmill.transforms.sources.kept_fields import KeptField

Task = Literal["classification", "detection", "segmentation"]
Encoding = Literal["keep", "JPEG", "PNG", "WEBP", "raw", "float"]
Resizing = Literal["stretch", "fit", "crop", "longest", "shortest"]
Resampling = Literal["nearest", "bilinear", "bicubic", "lanczos"]
MAX_PIXELS = 178_956_970  # Pillow itself refuses more as a decompression bomb
USUAL_SCANS = 100
USUAL_METADATA_BYTES = 1 << 26  # cameras' and phones' have some 100 KB, and depth maps some MB
USUAL_DRAWN_PIXELS = 4_000_000_000  # half a minute, where each object has a mask of its own
SAMPLE_IMAGES = 1000  # of channel statistics
NO_CLASS = 255  # in masks, a pixel that is not to be learned: Pascal VOC's borders
KEEP = "keep"  # --mask_values=keep
_BINARY_THRESHOLD = 127
_HIGHEST_ID = 100_000  # the classes up to it have a name each in the schema


class DecodeSpec(Spec, frozen=True):
    """How images are decoded.

    Attributes:
      gif: of an image of several frames "first" takes the first, "reject" none.
      verifies: whether images that are passed through are decoded all the same, to find broken
        ones.
      max_pixels: more are refused before any is decoded.
      max_scans: of a progressive JPEG; usual ones have ten, and time grows with them.
      max_metadata_bytes: that reading tags, EXIF and comments may copy, see `metadata.py`.
      wrong_extension: whether images whose names say another format than their bytes are used.
      orientation: "upright" applies EXIF's, "keep" leaves pixels as they are stored.

    Raises:
      UsageError: a value is not valid.
    """

    group: ClassVar[str] = "pixels"
    qualified: ClassVar[bool] = True

    gif: Annotated[Literal["first", "reject"], option("If animated.", example="reject")] = "first"
    verifies: Annotated[bool, option(
        "Trust images that are kept byte for byte, instead of decoding each once.", flag="no_check",
        inverts=True
    )] = True  # fmt: skip
    max_pixels: Annotated[
        int, option("Images of more pixels are rejected.", ge=1, le=MAX_PIXELS, example="40000000")
    ] = MAX_PIXELS
    max_scans: Annotated[int, option(
        "Progressive JPEGs of more scans are rejected; usual ones have ten.", ge=1, value="N",
        example="20"
    )] = USUAL_SCANS  # fmt: skip
    max_metadata_bytes: Annotated[int, option(
        "Images whose tags, EXIF and comments take more to read are rejected.", ge=1, value="N",
        example="10000000"
    )] = USUAL_METADATA_BYTES  # fmt: skip
    wrong_extension: Annotated[Literal["accept", "reject"], option(
        "What becomes of images whose names say another format than their bytes, such as a PNG "
        "called .jpg; the bytes decide how they are decoded.", example="accept"
    )] = "reject"  # fmt: skip
    orientation: Annotated[Literal["upright", "keep"], option(
        "Of images that EXIF turns: upright turns their pixels, because readers of records know no "
        "EXIF, and so encodes them anew; keep leaves pixels, and bytes, as they are stored.",
        example="keep"
    )] = "upright"  # fmt: skip


def parse_size(text: str) -> tuple[int, int]:
    """Reads "224x160", height first, or "224" for a square.

    Raises:
      UsageError: it is neither.
    """
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--image_size must be HEIGHTxWIDTH or one number, got {text!r}")
    return int(parts[0]), int(parts[-1])


def _parse_size_flag(text: str) -> tuple[int, int] | None:
    return parse_size(text) if text else None


def _parse_fill(text: str) -> tuple[int, ...]:
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--fill must be like 0 or 255,128,0, got {text!r}") from error
    if len(values) not in (1, 3):
        raise UsageError(f"--fill must be one number or three, got {text!r}")
    return tuple(values * 3 if len(values) == 1 else values)


class TransformSpec(Spec, frozen=True):
    """How images are resized.

    Attributes:
      size: `(height, width)`; None keeps each image's own.
      mode: "stretch" to the size; "fit" into it and pad with `fill`; "crop" the middle that covers
        it; "longest" or "shortest" gives that side the length of `size`, and keeps proportions.
      fill: grey or red, green, blue, 0 to 255, of pixels that no pixel of the image falls on.
      resample: the filter; with all but "nearest", shrinking averages all pixels.
      reducing_gap: an image is first made smaller by a whole number, while it is decoded or by
        averaging, as long as that leaves so many times the size; Pillow's parameter of this name.
        1 is fastest, 3 hardly differs from the filter alone.

    Raises:
      UsageError: a value is not valid, or the mode does not fit the size.
    """

    group: ClassVar[str] = "pixels"
    qualified: ClassVar[bool] = True

    size: Annotated[tuple[int, int] | None, option(
        "Such as 224x224, or 224; unset keeps all sizes.", flag="image_size",
        short="unset keeps all sizes", value="HEIGHTxWIDTH", parse=_parse_size_flag,
        pattern=r"^[0-9]+(x[0-9]+)?$", example="224x224"
    )] = None  # fmt: skip
    mode: Annotated[Resizing, option(
        "fit pads, crop cuts out the middle, longest and shortest set that side.", flag="resize",
        short="", value="HOW", example="crop"
    )] = "stretch"  # fmt: skip
    fill: Annotated[tuple[int, int, int], option(
        "Of pixels beyond the image's edge.", value="GREY | R,G,B", parse=_parse_fill, default="0",
        example="124,116,104"
    )] = (0, 0, 0)  # fmt: skip
    resample: Annotated[Resampling, option(
        "The filter that resizes images; masks always take the nearest pixel.", example="lanczos"
    )] = "bilinear"  # fmt: skip
    reducing_gap: Annotated[float, option(
        "Large images are first reduced by a whole number, JPEG while it is decoded, if that "
        "leaves so many times --image_size; 1 is fastest, 3 like the filter alone.", ge=1, le=1000,
        example="1"
    )] = 2.0  # fmt: skip

    def check(self) -> None:
        """Checks the sides and colours, and that a mode of one side has one."""
        if self.size is not None and not all(1 <= side <= 65535 for side in self.size):
            raise UsageError(f"--image_size must be sides from 1 to 65535, got {_shown(self.size)}")
        if self.mode in ("longest", "shortest") and self.size and self.size[0] != self.size[1]:
            raise UsageError(
                f"--resize={self.mode} must have one side in --image_size, such as 512, got "
                f"{_shown(self.size)}"
            )
        if not all(0 <= value <= 255 for value in self.fill):
            raise UsageError(f"--fill must be three numbers from 0 to 255, got {self.fill}")

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """`(height, width)` where all images get the same."""
        return self.size if self.mode in ("stretch", "fit", "crop") else None


def _shown(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


class EncodeSpec(Spec, frozen=True):
    """How images are written.

    Attributes:
      format: "keep" writes the bytes of the source where nothing is done to the image, EXIF does
        not turn it, and TensorFlow's decoders show what Pillow does; else its format, or PNG for
        all that is not JPEG, PNG or WebP, which readers of images do not take; only a BMP that
        TensorFlow shows is kept. "raw" is
        uint8, "float" float32; they are what "keep" means for a record format that has no encoded
        images.
      quality: of JPEG and WebP, 1 to 100.
      float_range: "zero_one" is x / 255, "zero_centered" x / 127.5 - 1.

    Raises:
      UsageError: a value is not valid.
    """

    group: ClassVar[str] = "pixels"
    qualified: ClassVar[bool] = True

    format: Annotated[Encoding, option(
        "keep writes unchanged images byte for byte as they are stored.", flag="encoding", short="",
        value="FORMAT", example="PNG"
    )] = "keep"  # fmt: skip
    quality: Annotated[int, option("Of JPEG and WebP.", ge=1, le=100, example="85")] = 95
    float_range: Annotated[Literal["zero_one", "zero_centered"], option(
        "x / 255 or x / 127.5 - 1.", example="zero_centered"
    )] = "zero_one"  # fmt: skip

    def written_format(self, source: str) -> str:
        """Returns the format that a changed image of this source format is written in."""
        if self.format != "keep":
            return self.format
        return source if source in ("JPEG", "PNG", "WEBP") else "PNG"


_KEPT_VALUES = ((-1, -1),)  # what --mask_values=keep is until it is checked


def parse_values(text: str) -> tuple[tuple[int, int], ...]:
    """Reads "0:0,255:1", or "keep"; "" is no value.

    Raises:
      UsageError: it is of another form.
    """
    if text in ("", KEEP):
        return _KEPT_VALUES if text else ()
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return tuple((int(value), int(number)) for value, number in pairs)
    except ValueError as error:
        raise UsageError(
            f"--mask_values must be like 0:0,255:1, or {KEEP}, got {text!r}"
        ) from error


class MaskClassSpec(Spec, frozen=True):
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

    group: ClassVar[str] = "task"
    qualified: ClassVar[bool] = True

    binary: Annotated[bool, option(
        "Segmentation: two classes. In mask images all above 127 is class 1, the rest class 0; of "
        "regions all are class 1.", flag="binary_masks", python="MaskClassSpec.binary=True"
    )] = False  # fmt: skip
    threshold: Annotated[int | None, option(
        "Segmentation: in mask images all above N is class 1, the rest class 0; for masks with "
        "noise, such as JPEG's.", ge=0, le=254, flag="mask_threshold", value="N", example="200"
    )] = None  # fmt: skip
    values: Annotated[tuple[tuple[int, int], ...], option(
        "Segmentation: the class of each value in mask images, such as 0:0,255:1. By default "
        "values are classes and 255 is none, which a sample of the masks is checked for; keep "
        "skips that. DAGM has 0:0,1:1,255:1.", flag="mask_values", value="VALUE:CLASS,… | keep",
        parse=parse_values, example="0:0,128:1,255:2"
    )] = ()  # fmt: skip
    keep: bool = False
    one_class: Annotated[str, option(
        "Segmentation by regions (Severstal): this class is class 1, all others class 0.",
        flag="mask_class", value="NAME", example="3"
    )] = ""  # fmt: skip

    def check(self) -> None:
        """Checks that one option says what masks mean, and the values."""
        if self.values == _KEPT_VALUES:
            force_setattr(self, "values", ())
            force_setattr(self, "keep", True)
        if len(self.flags) > 1:
            raise UsageError(f"give one of {' and '.join(self.flags)}: each says what masks mean")
        for value in (number for pair in self.values for number in pair):
            if not 0 <= value <= 255:
                raise UsageError(f"--mask_values must be from 0 to 255, got {value}")
        stored = [value for value, _ in self.values]
        if len(set(stored)) != len(stored):
            twice = next(value for value in stored if stored.count(value) > 1)
            raise UsageError(f"--mask_values must name each value once, got {twice} twice")

    @property
    def flags(self) -> list[str]:
        """The flags that are set."""
        return [f"--{name}" for name in self.given()] + ["--mask_values"] * self.keep

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

    def unknown_values(self, present: Sequence[int], last: int) -> Sequence[int]:
        """Returns the values that are no classes.

        Args:
          present: the values of a mask.
          last: the highest class.
        """
        if self.cut is not None:
            return ()
        if self.values:
            known = {value for value, _ in self.values}
            return [value for value in present if value not in known]
        return [value for value in present if last < value != NO_CLASS]


class AugmentationSpec(Spec, frozen=True):
    """The operations on augmented copies.

    Attributes:
      operations: structs of `records/augmentations.py`.

    Raises:
      UsageError: an operation is named twice, or a strength is beyond its limits.
    """

    group: ClassVar[str] = "augmentation"

    operations: Annotated[tuple[AnyAugmentation, ...], option(
        f"Of {', '.join(AUGMENTATIONS)}; such as flip,rotate(15),randaugment(2,9).",
        flag="augmentations", short="such as flip,rotate(20),brightness",
        value="NAME[(STRENGTH,…)],…", parse=parse_augmentations, python="ImageSpec.augmentation",
        example="'flip,crop(0.3),randaugment(2,9)'"
    )] = ()  # fmt: skip

    def check(self) -> None:
        """Checks that each is there once."""
        check_once(self.operations)

    def __bool__(self) -> bool:
        return bool(self.operations)

    @property
    def names(self) -> set[str]:
        """What the operations are called."""
        return {each.name for each in self.operations}

    @classmethod
    def parse(cls, text: str) -> AugmentationSpec:
        """Reads "flip,rotate(15),randaugment(2,9)"; "" is none.

        Raises:
          UsageError: an unknown name, or strengths beyond their limits.
        """
        with naming_arguments(python_names(cls)):
            return cls(parse_augmentations(check_type("text", text, str)))


_TASKS: tuple[Task, ...] = get_args(Task)
_IMAGES: tuple[Encoding, ...] = ("keep", "JPEG", "PNG", "WEBP")


@dataclass(frozen=True, slots=True)
class Format:
    """A record format: its features are those of the function of its name in `image_formats`.

    Attributes:
      tasks: what it can hold.
      encodings: how its images can be encoded; the first is the default.
      multilabel: whether an image may have any number of labels.
      masks: whether objects may have masks.
      needs_size: whether all images must be of one size.
      numbers: whether a label may be a number to be predicted.
      unlabeled: whether images may have no label.
    """

    tasks: tuple[Task, ...]
    encodings: tuple[Encoding, ...] = _IMAGES
    multilabel: bool = False
    masks: bool = False
    needs_size: bool = False
    numbers: bool = False
    unlabeled: bool = False


FORMATS = {
    "tfds": Format(_TASKS, multilabel=True, masks=True, numbers=True, unlabeled=True),
    "imagenet": Format(("classification",)),
    "raw": Format(("classification", "segmentation"), ("raw",), numbers=True, unlabeled=True),
    "object_detection": Format(("detection",), masks=True),
    "model_garden": Format(_TASKS, multilabel=True, masks=True, unlabeled=True),
    "unet": Format(("segmentation",), ("float",), needs_size=True),
}
_USUAL_FORMATS = {"classification": "tfds", "detection": "object_detection", "segmentation": "tfds"}


class ImageSpec(Spec, frozen=True, dict=True):
    """All that is done to images.

    Attributes:
      task: "classification", "detection", "segmentation".
      format: a key of `FORMATS`; None is tfds, for detection object_detection.
      labels: class name -> number. In masks 0 is the background, where it has no other name, and
        255 a pixel without a class.
      seed: of all draws.
      decode, transform, augmentation, encode: see there.
      channels: 3, or 1 for grey.
      multilabel: images have any number of labels; else one.
      numbers: the label is a number to be predicted, and no class.
      unlabeled: images are written without labels.
      keep_fields: columns of the table that are written as features of their names, such as
        "caption,year:int".
      masks: objects are written with their masks.
      mask_classes: what the values of masks mean.
      write_augmentations: what was drawn becomes a feature, `image/augmentation`.
      drawn_on: the picture that annotations were drawn on: as it is "stored", or as EXIF has it
        "shown"; "" is stored, with a warning. `ReadImages` needs the same value.
      min_visible: the share of a box that must be visible for an object to be kept, in [0, 1].
      max_drawn_pixels: for the regions of an image, see `masks.DrawingLimit`.

    Raises:
      UsageError: a value is not valid, or options contradict each other.
    """

    group: ClassVar[str] = "task"
    qualified: ClassVar[bool] = True
    words: ClassVar[Mapping[str, str]] = {
        "labels": "ImageSpec.labels",
        "labels=number": "ImageSpec.numbers=True",
        "labels=none": "ImageSpec.unlabeled=True",
    }

    task: Annotated[Task, option(
        "What a model learns from the images.", short="or detection, segmentation", value="TASK",
        python="task", example="detection"
    )] = "classification"  # fmt: skip
    format: Annotated[
        str,
        option(
            "Whose features are written: by default tfds, for detection object_detection.",
            short="whose features: tfds, imagenet, unet…",
            value="NAME",
            choices=tuple(FORMATS),
            python="format",
            example="object_detection",
        ),
    ] = None  # type: ignore[assignment] # found in `check`
    labels: Mapping[str, int] = msgspec.field(default_factory=dict)
    seed: int = 0
    decode: DecodeSpec = DecodeSpec()
    transform: TransformSpec = TransformSpec()
    augmentation: AugmentationSpec = AugmentationSpec()
    encode: EncodeSpec = EncodeSpec()
    channels: Literal[1, 3] = 3
    multilabel: Annotated[bool, option(
        "Classification: any number of labels an image.", python="multilabel=True"
    )] = False  # fmt: skip
    numbers: bool = False
    unlabeled: bool = False
    keep_fields: str = ""
    masks: Annotated[bool, option(
        "Detection: the pixels of each object too.", flag="include_masks", python="masks=True"
    )] = False  # fmt: skip
    mask_classes: MaskClassSpec = MaskClassSpec()
    write_augmentations: Annotated[bool, option(
        "Write drawn parameters as a feature.", group="augmentation", python="write_augmentations"
    )] = False  # fmt: skip
    drawn_on: DrawnOnOption = ""
    min_visible: Annotated[float, option(
        "Objects of which a smaller share is still visible are removed.", ge=0, le=1,
        group="augmentation", python="min_visible", example="0.3"
    )] = 0.1  # fmt: skip
    max_drawn_pixels: Annotated[int, option(
        "Images whose regions take more pixels to draw are rejected.", ge=1, group="pixels",
        value="N", example="500000000"
    )] = USUAL_DRAWN_PIXELS  # fmt: skip

    def check(self) -> None:
        """Finds what the format decides, and holds all parts against each other."""
        if not self.format:
            force_setattr(self, "format", _USUAL_FORMATS[self.task])
        usual, *_ = FORMATS[self.format].encodings
        if self.encode.format == "keep" and usual != "keep":
            force_setattr(self, "encode", replace(self.encode, format=usual))
        if self.write_augmentations and not self.augmentation:
            raise UsageError("--write_augmentations must go with --augmentations, got none")
        if self.mask_classes.flags and self.task != "segmentation":
            flag = self.mask_classes.flags[0]
            raise UsageError(f"{flag} must go with --task=segmentation, got {self.task}")
        self._check_format()
        own = {feature.name for feature in _schema(self.format, self.content).features}
        if taken := sorted(own & {field.name for field in self.kept_fields}):
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

    def _check_format(self) -> None:
        task, name, transform = self.task, self.format, self.transform
        record_format = FORMATS[name]
        is_classification = task == "classification"
        if task not in record_format.tasks:
            fitting = [other for other in FORMATS if task in FORMATS[other].tasks]
            raise UsageError(
                f"--format must be one of {', '.join(fitting)} for --task={task}, got {name!r}"
            )
        if self.encode.format not in record_format.encodings:
            raise UsageError(
                f"--encoding must be one of {', '.join(record_format.encodings)} for "
                f"--format={name}, got {self.encode.format!r}"
            )
        if record_format.needs_size and transform.fixed_size is None:
            raise UsageError(
                f"--format={name} must have images of one size: --image_size with "
                f"--resize=stretch, fit or crop, got --resize={transform.mode}"
                + ("" if transform.size else " without --image_size")
            )
        if self.multilabel and not (is_classification and record_format.multilabel):
            raise UsageError(
                "--multilabel must go with --task=classification and a format of several labels "
                f"({_formats_with('multilabel')}), got {task}, {name}"
            )
        several = ", --multilabel" if self.multilabel else ""
        if self.numbers and (not is_classification or several or not record_format.numbers):
            raise UsageError(
                "--labels=number must go with --task=classification, one label an image and a "
                f"format of numbers ({_formats_with('numbers')}), got {task}, {name}{several}"
            )
        if self.unlabeled and (not is_classification or several or not record_format.unlabeled):
            raise UsageError(
                "--labels=none must go with a format of images alone for --task=classification "
                f"({_formats_with('unlabeled')}), got {name}{several}"
            )
        if self.masks and not (task == "detection" and record_format.masks):
            raise UsageError(
                "--include_masks must go with --task=detection and a format of masks "
                f"({_formats_with('masks')}), got {task}, {name}"
            )

    @property
    def is_lossy(self) -> bool:
        """Whether an image may be written as JPEG or WebP by Pillow."""
        if self.encode.format == "keep":
            resized = self.transform.size is not None
            turns = self.decode.orientation == "upright"
            return turns or resized or bool(self.augmentation) or self.channels == 1
        return self.encode.format in ("JPEG", "WEBP")

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of class 0, 1, …; numbers that `labels` leaves out are called background."""
        names = {number: name for name, number in self.labels.items()}
        count = max(names, default=0) + 1
        return tuple(names.get(n, "background" if n == 0 else f"class_{n}") for n in range(count))

    @cached_property
    def kept_fields(self) -> tuple[KeptField, ...]:
        """The columns of `keep_fields`."""
        if not self.keep_fields:
            return ()
        from recordmill.transforms.sources.kept_fields import parse_fields

        return parse_fields(self.keep_fields)

    @cached_property
    def schema(self) -> Schema:
        """The records' features."""
        kept = (f.feature(f"the table's column {f.name}") for f in self.kept_fields)
        return Schema((*_schema(self.format, self.content).features, *kept))

    @cached_property
    def content(self) -> ImageContent:
        """What records hold, for the functions of formats."""
        height, width = self.transform.fixed_size or (None, None)
        return ImageContent(
            self.task, self.classes, (height, width, self.channels),
            multilabel=self.multilabel, masks=self.masks, augmentation=self.write_augmentations,
            numbers=self.numbers, unlabeled=self.unlabeled,
        )  # fmt: skip


def _schema(name: str, content: ImageContent) -> Schema:
    schema: Schema = getattr(image_formats, name)(content)
    return schema


def _formats_with(what: str) -> str:
    return ", ".join(name for name, each in FORMATS.items() if getattr(each, what))


_ORIGINAL_FORMATS = ("object_detection", "model_garden")
_ZERO_BASED = (
    ("classification", "tfds"), ("classification", "model_garden"), ("classification", "raw"),
    ("detection", "tfds"),
)  # fmt: skip

# Options of commands, which `WriteImages` has too.
_FirstLabel = Annotated[Literal[0, 1] | None, option(
    "The number of the first label: by default 1 for segmentation, imagenet and detection but "
    "tfds', else 0.", example="0"
)]  # fmt: skip
_Statistics = Annotated[Literal["none", "sample", "full"], option(
    "Mean and standard deviation of each channel, of images of the first split, by "
    "tensorflow_transform.", group="statistics", example="sample"
)]  # fmt: skip
_ImageCopies = Annotated[int, option(
    "Augmented copies of each image.", ge=1, group="augmentation",
    short="augmented copies of each image", value="N", example="4"
)]  # fmt: skip
_AugmentSplits = Annotated[tuple[str, ...] | None, option(
    "The splits whose images are augmented; the others get one copy of each image, as it is, "
    "because a model is measured on them. Unset: train, or without it trainval and training.",
    group="augmentation", value="all | NAME,…", split="comma", example="train,extra"
)]  # fmt: skip
_KeepOriginal = Annotated[
    bool, option("Write the untouched image too.", group="augmentation")
]  # fmt: skip


class LabelNumbering(Spec, frozen=True):
    """How labels get their numbers.

    Attributes:
      first_label: the number of the first one; None is the usual one of task and format.
      category_ids: "original", "contiguous", or "" for what is usual in the format.
    """

    group: ClassVar[str] = "task"

    first_label: _FirstLabel = None
    category_ids: Annotated[Literal["", "original", "contiguous"], option(
        "The numbers of COCO's labels: its own category ids, or ranks from --first_label on. "
        "Unset: original for --task=detection in the formats object_detection and model_garden, "
        "whose evaluators compare with COCO's JSON; else contiguous, because TFDS's ClassLabel "
        "counts all numbers up to the highest as classes.", group="input",
        value="original | contiguous", example="original"
    )] = ""  # fmt: skip

    def check(self) -> None:
        """Checks that ids are not numbered anew."""
        if self.first_label is not None and self.category_ids == "original":
            raise UsageError(
                "--first_label has no effect with --category_ids=original; leave one of them out"
            )

    def number(
        self, names: Sequence[str], categories: Mapping[str, object], task: str, record_format: str
    ) -> dict[str, int]:
        """Returns the number of each label.

        Args:
          names: the labels, in order.
          categories: COCO's ids of them; {} where there are none.
          task, record_format: of the job.

        Raises:
          UsageError: --category_ids is given, and the ids cannot be used or there are none.
        """
        if self.category_ids and not categories:
            raise UsageError(
                f"--category_ids={self.category_ids} must go with COCO's JSON, and without a file "
                "of --labels; leave it out"
            )
        ids, problem = _label_ids(categories)
        if self.category_ids == "original" and problem:
            raise UsageError(
                f"--category_ids=original must have {problem}; give --category_ids=contiguous"
            )
        is_usual = task == "detection" and record_format in _ORIGINAL_FORMATS and not problem
        by_default = not self.category_ids and self.first_label is None and is_usual
        if categories and (self.category_ids == "original" or by_default):
            return {name: ids[name] for name in names}
        first: int | None = self.first_label
        if first is None:
            first = 0 if (task, record_format) in _ZERO_BASED else 1
        return {name: number for number, name in enumerate(names, first)}


def _label_ids(categories: Mapping[str, object]) -> tuple[dict[str, int], str]:
    """Returns the ids that can be labels, and what all must be for it, "" where they are."""
    ids = {
        name: number
        for name, number in categories.items()
        if isinstance(number, int) and 1 <= number <= _HIGHEST_ID
    }
    for name, number in categories.items():
        if name not in ids:
            return ids, f"ids from 1 to {_HIGHEST_ID}, because 0 is the background; got {number!r}"
    return ids, ""


class ImageOutput(OutputSpec, frozen=True, kw_only=True):
    """The dataset of an image job; the input may name its splits, which --splits contradicts."""

    splits: Annotated[str | None, get_args(Splits)[1]] = None  # type: ignore[assignment]


class ImageMapOptions(MapOptions, frozen=True, kw_only=True):
    """Functions of users' own for each image."""

    group: ClassVar[str] = "input"


# Augmentations that move pixels, uncover what is beyond the edge, or cut objects.
_MOVING = {"crop", "scale", "shear", "rotate", "translate", "randaugment"}
_UNCOVERING = {"scale", "shear", "rotate", "translate", "randaugment", "cutout"}
_CUTTING = _MOVING | {"flip", "vertical_flip", "rot90"}


class ImagesSpec(Spec, frozen=True, kw_only=True):
    """`recordmill images`: all of its options.

    Attributes:
      source: where images are, and how they lie there.
      numbering, images, output, map: see there.
      channels: of images: None is 3, for the format unet 1.
      max_rejected: the share of images that may be rejected, in [0, 1].
      statistics: of channels: "none", "sample" or "full".
      statistics_sample: images of a sample; None is 1000.
      copies: augmented copies of each image.
      augment_splits: whose images are augmented, or ("all",); None is the usual ones.
      keep_original: write the untouched image too.
    """

    words: ClassVar[Mapping[str, str]] = {  # of images in a PCollection
        **ImageSpec.words,
        "input": "the input",
        "labels=FILE": "ImageSpec.labels",
        "masks": "Image.mask",
        "box_format": "Image.boxes",
        "box_units": "Image.boxes",
        "label_field": "Image.label",
        "label_folder": "Image.label",
        "split_by": "Image.group",
        "split_from": "Image.split",
    }

    source: SourceSpec = SourceSpec()
    numbering: LabelNumbering = LabelNumbering()
    limit: Limit = None
    max_rejected: MaxRejected = 0.0
    output: ImageOutput = ImageOutput()
    map: ImageMapOptions = ImageMapOptions()
    images: ImageSpec = ImageSpec()
    channels: Annotated[Literal[1, 3] | None, option(
        "1 is grey; by default 3, for --format=unet 1. With 3, unet's masks have 3 too.",
        group="task", example="1"
    )] = None  # fmt: skip
    statistics: _Statistics = "none"
    statistics_sample: Annotated[int | None, option(
        f"Images of a sample, {SAMPLE_IMAGES} by default.", ge=1, group="statistics", value="N",
        example="5000"
    )] = None  # fmt: skip
    copies: _ImageCopies = 1
    augment_splits: _AugmentSplits = None
    keep_original: _KeepOriginal = False

    def check(self) -> None:
        """Refuses options that have no effect beside those of other structs."""
        channels = self.channels or (1 if self.images.format == "unet" else 3)
        force_setattr(self, "images", replace(self.images, channels=channels))
        images, source = self.images, self.source
        labels, task = source.labels_from, images.task
        if self.augment_splits == ():
            raise UsageError("--augment_splits must be all, or names with commas between, got none")
        if self.statistics_sample is not None and self.statistics != "sample":
            raise UsageError(
                f"--statistics_sample={self.statistics_sample} must go with --statistics=sample"
            )
        if source.label_pattern and task != "classification":
            raise UsageError(f"--label_pattern must go with --task=classification, got {task}")
        for name in ("box_format", "box_units"):
            if getattr(source, name) and task != "detection":
                raise UsageError(
                    f"--{name} must go with --task=detection, got {task}; leave it out"
                )
        if task == "segmentation" and labels in ("folder", "field"):
            raise UsageError(
                f"--labels=from_{labels} has no effect with --task=segmentation, whose classes are "
                "those of the masks; leave it out"
            )
        if source.split_by and source.split_from not in ("", "none"):
            raise UsageError(
                f"--split_by={source.split_by} has no effect where --split_from names the split of "
                "each image; leave one of them out"
            )
        given = self.given_options()
        for names, has_effect, needs in self._effects():
            for name in names.split():
                if name in given and not has_effect:
                    raise UsageError(
                        f"--{name} has no effect on this job: it needs {needs}; leave it out"
                    )

    def _effects(self) -> Sequence[tuple[str, bool, str]]:
        """Returns options, whether they have an effect, and what they need for it."""
        images, labels = self.images, self.source.labels_from
        task, encoding, transform = images.task, images.encode.format, images.transform
        drawn, resizes = images.augmentation.names, transform.size is not None
        of_table = task == "detection" or (
            task == "classification" and labels not in ("folder", "none")
        )
        cuts = bool(drawn & _CUTTING) or (resizes and transform.mode == "crop")
        return (
            ("quality", images.is_lossy, "images that are encoded as JPEG or WebP"),
            ("float_range", encoding == "float", "--format=unet, whose pixels are floats"),
            ("resize", resizes, "--image_size"),
            (
                "resample", resizes or bool(drawn & _MOVING),
                f"--image_size, or --augmentations of {', '.join(sorted(_MOVING))}",
            ),
            (
                "reducing_gap", resizes and transform.resample != "nearest",
                "--image_size, and another --resample than nearest",
            ),
            (
                "fill", (resizes and transform.mode == "fit") or bool(drawn & _UNCOVERING),
                "--image_size with --resize=fit, or --augmentations of "
                f"{', '.join(sorted(_UNCOVERING))}",
            ),
            (
                "no_check", encoding == "keep" and not resizes,
                "images that are kept byte for byte: --encoding=keep without --image_size",
            ),
            (
                "min_visible", task == "detection" and cuts,
                "--task=detection, and --augmentations or --resize=crop that cut objects",
            ),
            (
                "drawn_on", task != "classification",
                "--task=detection or --task=segmentation, whose annotations are drawn",
            ),
            (
                "max_drawn_pixels", task != "classification",
                "--task=detection or --task=segmentation, whose annotations have regions",
            ),
            ("label_field label_delimiter", of_table, "a job whose labels are the table's"),
            (
                "label_folder", task == "classification" and labels not in ("field", "none"),
                "--task=classification with labels from folders",
            ),
        )  # fmt: skip

    def given_options(self) -> dict[str, Any]:
        """Returns flag -> value of all options about images that differ from their defaults."""
        images = self.images
        parts = (
            self, self.source, self.numbering, images, images.decode, images.transform,
            images.augmentation, images.encode, images.mask_classes,
        )  # fmt: skip
        return {name: value for part in parts for name, value in part.given().items()}

    @property
    def statistics_images(self) -> int | None:
        """Of how many images there are channel statistics; None for all, 0 for none."""
        sample = SAMPLE_IMAGES if self.statistics_sample is None else self.statistics_sample
        return {"none": 0, "full": None, "sample": sample}[self.statistics]


_SplitsOfImages = Annotated[SharesOrNames | None, option(
    "Name -> share, such as `{'train': 0.9, 'validation': 0.1}`; one split by default. Names "
    "alone, such as `['train', 'test']`, where each image names its split."
)]  # fmt: skip


class ImagesWriteSpec(WriteSpec, frozen=True, kw_only=True):
    """Arguments of a dataset of images, each of which may name its split."""

    splits: _SplitsOfImages = None  # type: ignore[assignment]


class WriteImagesSpec(Spec, frozen=True, kw_only=True):
    """The arguments of `WriteImages`."""

    first_label: _FirstLabel = None
    dataset: ImagesWriteSpec = ImagesWriteSpec()
    copies: _ImageCopies = 1
    keep_original: _KeepOriginal = False
    augment_splits: _AugmentSplits = None
    statistics: _Statistics = "none"
    statistics_sample: Annotated[int, option("Images of a sample.", ge=1)] = SAMPLE_IMAGES
    max_rejected: MaxRejected = 0.0
    warnings: WarningsOption = "print"
    pack_bytes: Annotated[int, option("Of a file in which images wait.", ge=1)] = 1 << 27
