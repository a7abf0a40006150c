"""The options of an image job's input: where images and their annotations are, how they lie there.

One struct has the options of all layouts, because --layout=auto takes every option first and finds
the layout afterwards; `_OF_LAYOUTS` says which layouts an option is for. Nothing heavy is imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

from recordmill.records.errors import UsageError
from recordmill.records.spec import Spec, option
from recordmill.transforms.sources.input_spec import SOURCE_ARGUMENTS, AllowOutside, SkipFiles

if TYPE_CHECKING:
    from recordmill.transforms.sources.kept_fields import KeptField

USUAL_OBJECTS = 100_000  # of an image: some seconds
LabelsFrom = Literal["auto", "folder", "field", "number", "none"]
LABELS_FROM = get_args(LabelsFrom)
_LABELS_IN_PYTHON = (("from_folder", "labels_from='folder'"), ("from_field", "labels_from='field'"))
BoxFormat = Literal["", "xyxy", "xywh", "cxcywh"]
BoxUnits = Literal["", "pixels", "fraction"]
DrawnOn = Literal["", "stored", "shown"]
DrawnOnOption = Annotated[DrawnOn, option(
    "What boxes, regions and masks were drawn on: pictures as they are stored, or as programs show "
    "them, which EXIF's orientation may turn. Unset: stored, with a warning where it matters.",
    value="stored | shown", example="shown"
)]  # fmt: skip
Layout = Literal[
    "auto", "coco", "dagm", "fixed", "flat", "folders", "idx", "pairs", "severstal", "table", "voc",
    "webdataset", "yolo",
]  # fmt: skip
# Those of encoded images in files or archives.
_ENCODED = ("coco", "dagm", "flat", "folders", "pairs", "severstal", "table", "voc", "yolo")
LAYOUTS_OF_PATTERNS = ("flat", "folders", "pairs")
# Option -> the layouts that it says something of; other options are for all of them.
_OF_LAYOUTS = {
    "annotations": ("coco", "severstal", "table", "voc"),
    "masks": ("coco", "flat", "folders", "pairs", "table", "voc", "yolo"),
    "record_shape": ("fixed",),
    "only_defective": ("dagm",),
    "path_field": ("table",),
    "label_field": ("table", "webdataset"),
    "label_delimiter": ("table",),
    "label_pattern": LAYOUTS_OF_PATTERNS,
    "label_folder": ("folders", "table"),
    "keep_fields": ("table", "webdataset"),
    "box_format": ("table",),
    "box_units": ("coco", "table", "voc"),
    "max_objects": ("coco", "table", "voc", "yolo"),
    # Raw pixels are written as PNG, and no EXIF turns them.
    **dict.fromkeys(("drawn_on", "orientation", "quality"), (*_ENCODED, "webdataset")),
    **dict.fromkeys(("gif", "max_scans", "max_metadata_bytes", "max_pixels", "no_check"), _ENCODED),
}
_NEEDED = {
    "coco": "annotations", "fixed": "record_shape", "pairs": "masks", "severstal": "annotations",
    "voc": "annotations",
}  # fmt: skip
# Where labels can come from, except "auto" and "none".
_LABELS_OF_LAYOUTS = {
    "auto": ("folder", "field", "number"), "dagm": ("folder", "field"),
    "table": ("folder", "field", "number"), "folders": ("folder",),
}  # fmt: skip
_WITHOUT_SPLITS = ("flat", "pairs", "severstal", "table")


@dataclass(frozen=True, slots=True)
class RecordForm:
    """What a record of a fixed length is: a label somewhere, and raw pixels at the end.

    Attributes:
      shape: of the pixels, `(height, width, channels)`.
      is_planar: they are stored channel by channel.
      record_bytes: 0 is the pixels, and a byte before them for the label unless there are none.
      label_offset: where the byte of the label is.

    Raises:
      UsageError: a number has no sense.
    """

    shape: tuple[int, int, int]
    is_planar: bool
    record_bytes: int = 0
    label_offset: int = 0

    def __post_init__(self) -> None:
        if self.record_bytes and self.record_bytes < self.pixel_bytes:
            raise UsageError(
                f"--record_bytes must be at least the {self.pixel_bytes} of the pixels of "
                f"--record_shape={self}, got {self.record_bytes}"
            )
        most = max(1, (self.record_bytes or self.pixel_bytes + 1) - self.pixel_bytes)
        if not 0 <= self.label_offset < most:
            raise UsageError(
                f"--label_offset must be in [0, {most}), before the pixels at the end of a record, "
                f"got {self.label_offset}; see --record_bytes"
            )

    @property
    def pixel_bytes(self) -> int:
        """The bytes of the pixels."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        height, width, channels = self.shape
        sides = (channels, height, width) if self.is_planar else self.shape
        return "x".join(map(str, sides))

    @classmethod
    def parse(cls, text: str, record_bytes: int, label_offset: int) -> RecordForm:
        """Reads 3x32x32 (planes) or 32x32x3.

        Raises:
          UsageError: it is neither, or another number has no sense.
        """
        sides = [int(part) if part.isascii() and part.isdigit() else 0 for part in text.split("x")]
        if len(sides) == 3 and all(sides):
            first, second, third = sides
            if first in (1, 3):
                return cls((second, third, first), True, record_bytes, label_offset)
            if third in (1, 3):
                return cls((first, second, third), False, record_bytes, label_offset)
        raise UsageError(
            "--record_shape must be CHANNELSxHEIGHTxWIDTH where pixels are stored channel by "
            f"channel, as 3x32x32, else HEIGHTxWIDTHxCHANNELS, of 1 or 3 channels; got {text!r}"
        )


class SourceSpec(Spec, frozen=True, dict=True):
    """The location of images and of their annotations.

    Attributes:
      patterns: globs of images, archives or idx files, or folders for all below them; or tables
        that name images.
      layout: how they are arranged.
      annotations: the table, the folder of Pascal VOC's XML, or COCO's JSON, of which there may be
        one for each split, whose name the file's own has.
      masks: a glob or folder of mask images, paired with images by name.
      mask_suffix: what a mask's name has behind the image's, such as "_mask".
      labels_from: "folder", "field" (a table's column, DAGM's defect flag), "number" (the
        same, which is no class), "none", or "auto"; of a command also the path of a file of labels.
      label_folder: which folder is the label: 1 the first below the input root, or below the
        split's; -1 the image's own; None the first below the folders common to all images.
      path_field, label_field: columns; "" is the first usual name that is there.
      label_delimiter: between labels in one field; "" where there is one.
      split_from: "" uses the splits of the layout, "folder" the first folder below the root, "none"
        no splits; else a column.
      split_by: images share a split that have the same value of a column, or the same "folder".
      only_defective: of DAGM, images without a defect are left out.
      max_objects: of an image; those with more are rejected.
      box_format: what the four numbers of a table's boxes are; "" is xyxy in the columns xmin,
        ymin, xmax, ymax.
      box_units: "pixels", "fraction" of the image's sides; "" is pixels, unless they look like
        fractions, which is refused.
      keep_fields: columns that are carried into the records, such as "caption,year:int".
      label_pattern: a regular expression with one group, which is the label, searched in the names
        of image files; "" where labels are not in the names.
      record_shape, record_bytes, label_offset: of the layout "fixed", what a record is.
      allow_outside: folders beyond those of the flags that links and annotations may name.
      skip_files: files, folders and globs that are not read.
      labels: all labels in order, where they are given: any other is rejected.
      common_folders: how many leading folders all images share that name neither labels nor
        splits; `list_images` finds it.

    Raises:
      UsageError: a value is not valid, or it has no meaning for the layout.
    """

    group: ClassVar[str] = "input"
    words: ClassVar[Mapping[str, str]] = {"overwrite": "another run of the pipeline"}

    patterns: Annotated[tuple[str, ...], option(
        "Images, archives (.tar, .zip) or idx files, as globs or folders, local or gs://…; or "
        "tables that name or hold images.", flag="input",
        short="images, folders, archives or idx files", value="GLOB", split="words", path="file",
        picker="GCS_READ_FILE", default="required", example="'photos/*/*.jpg'"
    )] = ()  # fmt: skip
    layout: Annotated[Layout, option(
        "How the input is arranged; auto goes by names that a layout has by definition.",
        short="how they are arranged: coco, yolo, voc…", value="LAYOUT", example="coco"
    )] = "auto"  # fmt: skip
    annotations: Annotated[tuple[str, ...], option(
        "A table (.csv, .tsv, .jsonl, .parquet), COCO's .json, or the folder of Pascal VOC's XML. "
        "COCO's may be given several times, one file for each split.",
        short="a table, COCO's .json, Pascal VOC's folder", value="PATH", split="repeat",
        path="file", example="instances_train2017.json"
    )] = ()  # fmt: skip
    masks: Annotated[str, option(
        "Mask images, paired with images by name below the roots of the two globs.",
        short="mask images, paired with images by name", value="GLOB", path="folder",
        example="'masks/*.png'"
    )] = ""  # fmt: skip
    mask_suffix: Annotated[str, option(
        "What masks have behind the image's name, such as _mask.", needs="masks", example="_mask"
    )] = ""  # fmt: skip
    labels_from: Annotated[
        str,
        option(
            "Where labels come from; number: a table's field is a number to be predicted, and no "
            "class; or a file of all labels, one a line in order of their ids: images with others "
            "are rejected.",
            flag="labels",
            value="from_folder | from_field | number | none | FILE",
            path="file",
            parse=lambda text: (
                text.removeprefix("from_") if text in ("from_folder", "from_field") else text
            ),
            python_values=_LABELS_IN_PYTHON,
            example="labels.txt",
        ),
    ] = "auto"
    label_folder: Annotated[int | None, option(
        "The folder that is the label: 1 the first below the input root or below the split's, -1 "
        "the image's own. Unset: the first below the folders that all images share.", example="-1"
    )] = None  # fmt: skip
    path_field: Annotated[
        str, option("The table's column of images or paths.", example="filename")
    ] = ""
    label_field: Annotated[str, option(
        "The table's column of labels.", value="NAME", example="category"
    )] = ""  # fmt: skip
    label_delimiter: Annotated[
        str, option("Between several labels of an image in one field.", example="';'")
    ] = ""
    split_from: Annotated[str, option(
        "Take the splits that the input names: the first folder below the input root, or a "
        "column; none ignores those of DAGM, MNIST and Pascal VOC.", value="folder | none | COLUMN",
        example="folder"
    )] = ""  # fmt: skip
    split_by: Annotated[str, option(
        "Images of one folder, or with the same value in a column, share a split.",
        value="folder | COLUMN", example="patient"
    )] = ""  # fmt: skip
    only_defective: Annotated[
        bool, option("DAGM: leave out the images that Labels.txt marks as free of defects.")
    ] = False
    max_objects: Annotated[
        int, option("Images with more objects are rejected.", ge=1, value="N", example="1000")
    ] = USUAL_OBJECTS
    box_format: Annotated[BoxFormat, option(
        "What the four numbers of a table's boxes are: corners; corner and size; centre and size. "
        "Usual names of columns are found, or one column bbox. Unset: corners in the columns "
        "xmin, ymin, xmax, ymax.", value="xyxy | xywh | cxcywh", example="xywh"
    )] = ""  # fmt: skip
    box_units: Annotated[BoxUnits, option(
        "Of boxes in tables, COCO's JSON and Pascal VOC's XML; fraction of the image's width and "
        "height. Unset: pixels, and boxes that look like fractions are refused.",
        value="pixels | fraction", example="fraction"
    )] = ""  # fmt: skip
    keep_fields: Annotated[str, option(
        "Columns of the table of images that are carried into the records, as features of their "
        "names: text as bytes, or numbers, as caption,year:int,score:float.",
        value="COLUMN[:int|:float],…", example="caption,year:int"
    )] = ""  # fmt: skip
    label_pattern: Annotated[str, option(
        "A regular expression with one group, which is the label, searched in the names of image "
        "files, as '^(cat|dog)' for cat.17.jpg.", value="REGEX", example="'^(cat|dog)'"
    )] = ""  # fmt: skip
    record_shape: Annotated[str, option(
        "--layout=fixed: the shape of the raw pixels at the end of each record of .bin files, "
        "3x32x32 for CIFAR, whose channels are stored one after the other, else as 32x32x3.",
        value="CxHxW | HxWxC", example="3x32x32"
    )] = ""  # fmt: skip
    record_bytes: Annotated[int, option(
        "--layout=fixed: the bytes of a record; 0 for its pixels and a byte before them, the "
        "label, unless --labels=none.", value="N", needs="record_shape", example="3074"
    )] = 0  # fmt: skip
    label_offset: Annotated[int, option(
        "--layout=fixed: which byte of a record is the label: its number, or with a file of labels "
        "the position in it.", value="N", needs="record_shape", example="1"
    )] = 0  # fmt: skip
    allow_outside: AllowOutside = ()
    skip_files: SkipFiles = ()
    labels: tuple[str, ...] = ()
    common_folders: int = 0

    def check(self) -> None:
        """Holds the options against the layout, and against each other."""
        if not all(self.patterns):
            raise UsageError(
                "--input must be a glob or folder of images, or a table that names them"
            )
        if self.label_folder == 0:
            raise UsageError("--label_folder must be 1 or more, or -1 or less, got 0")
        if len(set(self.labels)) != len(self.labels):
            twice = next(name for name in self.labels if self.labels.count(name) > 1)
            raise UsageError(f"--labels must name each label once, got {twice!r} twice")
        check_layout(self.layout, self.given())
        needed = _NEEDED.get(self.layout)
        if needed and not getattr(self, needed):
            raise UsageError(f"--layout={self.layout} needs --{needed}; give it, or no --layout")
        if len(self.annotations) > 1 and self.layout not in ("auto", "coco"):
            raise UsageError(
                "--annotations may be given several times for COCO's JSON, one file for each "
                f"split; --layout={self.layout} takes one, got {', '.join(self.annotations)}"
            )
        if self.record_shape:
            if self.layout != "fixed":  # which auto does not find
                raise UsageError(f"--record_shape={self.record_shape} needs --layout=fixed")
            _ = self.records
        self._check_labels()
        self._check_pattern()
        self._check_splits()

    def _check_labels(self) -> None:
        fitting = _LABELS_OF_LAYOUTS.get(self.layout, ())
        if self.labels_from in LABELS_FROM and self.labels_from not in ("auto", "none", *fitting):
            from_ = "" if self.labels_from == "number" else "from_"
            raise UsageError(
                f"--labels={from_}{self.labels_from} has no effect with --layout={self.layout}, "
                "which has no such labels; leave it out"
            )
        if (
            self.label_folder is not None
            and self.layout == "table"
            and self.labels_from != "folder"
        ):
            raise UsageError(
                f"--label_folder={self.label_folder} has no effect on a table's labels; give "
                "--labels=from_folder too, or leave it out"
            )

    def _check_pattern(self) -> None:
        if not self.label_pattern:
            return
        try:
            groups = re.compile(self.label_pattern).groups
        except re.error as error:
            raise UsageError(
                f"--label_pattern must be a regular expression, got {self.label_pattern!r}: {error}"
            ) from error
        if groups != 1:
            raise UsageError(
                f"--label_pattern must have one group, which is the label, got {groups} in "
                f"{self.label_pattern!r}"
            )
        if self.annotations:
            raise UsageError(
                "--label_pattern has no effect with --annotations, which give the labels; leave "
                "one of them out"
            )
        if self.labels_from in LABELS_FROM and self.labels_from != "auto":
            raise UsageError("--label_pattern says where labels come from; leave --labels out")
        if self.label_folder is not None:
            raise UsageError("--label_folder has no effect with --label_pattern; leave it out")

    def _check_splits(self) -> None:
        if self.layout not in ("auto", "table"):
            for name, words in (
                ("split_from", ("", "folder", "none")),
                ("split_by", ("", "folder")),
            ):
                value = getattr(self, name)
                if value not in words:
                    raise UsageError(
                        f"--{name}={value} needs a table of images, and --layout={self.layout} has "
                        "none"
                    )
        if self.split_from == "none" and self.layout in _WITHOUT_SPLITS:
            raise UsageError(
                f"--split_from=none has no effect with --layout={self.layout}, which names no "
                "splits; leave it out"
            )

    @property
    def annotation(self) -> str:
        """The first file of annotations, or the folder; "" for none."""
        return self.annotations[0] if self.annotations else ""

    @property
    def records(self) -> RecordForm:
        """What a record of a fixed length is."""
        return RecordForm.parse(self.record_shape, self.record_bytes, self.label_offset)

    @cached_property
    def kept_fields(self) -> tuple[KeptField, ...]:
        """The columns of `keep_fields`."""
        if not self.keep_fields:
            return ()
        from recordmill.transforms.sources.kept_fields import parse_fields

        return parse_fields(self.keep_fields)

    @property
    def boxes_are_fractions(self) -> bool:
        """Whether numbers of boxes are fractions of the image's sides."""
        return self.box_units == "fraction"

    def split_labels(self, texts: list[str]) -> list[str]:
        """Returns the labels in the texts of a field; some may be empty."""
        if not self.label_delimiter:
            return texts
        return [part.strip() for text in texts for part in text.split(self.label_delimiter)]

    @property
    def split_field(self) -> str:
        """The column of the split, "" where there is none."""
        return "" if self.split_from in ("folder", "none") else self.split_from

    @property
    def group_field(self) -> str:
        """The column of the group, "" where there is none."""
        return "" if self.split_by == "folder" else self.split_by


class ReadImagesSpec(SourceSpec, frozen=True, kw_only=True):
    """The arguments of `ReadImages`: those of the command's input, but for what needs its job.

    Attributes:
      split: of which images are read; "" is all, and each then names its own.
      drawn_on: see `ImageSpec`, which needs the same value: elements do not carry it. Boxes in
        fractions become pixels of that picture.
      skip_rejected: what cannot be used is counted.
    """

    words: ClassVar[Mapping[str, str]] = SOURCE_ARGUMENTS

    # No arguments: globs are given without a name, and an `Image` carries no fields.
    patterns: tuple[str, ...] = ()
    keep_fields: str = ""
    annotations: Annotated[tuple[str, ...], "a path, or a list of paths", option(
        "A table, the folder of Pascal VOC's XML, or COCO's JSON, of which there may be several, "
        "one for each split."
    )] = ()  # fmt: skip
    labels_from: Annotated[LabelsFrom, option(
        "Where labels come from; number: a table's field is a number to be predicted, and no "
        "class.", flag="labels", python_values=_LABELS_IN_PYTHON
    )] = "auto"  # fmt: skip
    split: Annotated[str, option(
        'Read this split of those that the input names; "" reads all, and then each image names '
        "its own, which `WriteImages(splits=[…])` takes."
    )] = ""  # fmt: skip
    drawn_on: DrawnOnOption = ""
    skip_rejected: Annotated[bool, option(
        "Count what cannot be used (`rejected_<reason>`) instead of failing."
    )] = False  # fmt: skip


def check_layout(layout: str, given: Mapping[str, Any]) -> None:
    """Refuses options that say nothing of a layout; "auto" takes all, until it is found.

    Args:
      layout: of the input.
      given: flag -> value of options that do not have their default value.

    Raises:
      UsageError: names the option and the layouts that it is for.
    """
    for name, layouts in _OF_LAYOUTS.items():
        if name == "quality" and "encoding" in given:
            continue  # then the encoding decides, whatever the layout
        if name in given and layout not in ("auto", *layouts):
            raise UsageError(
                f"--{name} has no effect with --layout={layout}; it is for {', '.join(layouts)}; "
                "leave it out"
            )
