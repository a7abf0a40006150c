"""The input of an image job as flags describe it: where images and their annotations are."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from recordmill.records.errors import UsageError, at_least, one_of
from recordmill.transforms.images.listing.boxes import BOX_FORMATS, BOX_UNITS
from recordmill.transforms.images.listing.entries import Entry
from recordmill.transforms.images.references import (
    ImageObject,
    ImageReference,
    ListedReject,
    Region,
    StoredBytes,
)
from recordmill.transforms.sources.kept_fields import KeptField

USUAL_OBJECTS = 100_000  # of an image: some seconds
LAYOUTS = (
    "auto", "coco", "dagm", "fixed", "flat", "folders", "idx", "pairs", "severstal", "table", "voc",
    "webdataset", "yolo",
)  # fmt: skip
_PIXEL_BOXES = ("coco", "voc")
_NEEDS_ANNOTATIONS = ("coco", "severstal", "voc")
# Where labels can come from, except "auto" and "none".
_LABELS_FROM = {
    "auto": ("folder", "field", "number"), "dagm": ("folder", "field"),
    "table": ("folder", "field", "number"), "folders": ("folder",),
}  # fmt: skip
_SPLIT_NAMES = {
    "training": "train", "testing": "test", "val": "validation", "valid": "validation",
    "dev": "validation",
}  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """The location of images and of their annotations.

    Attributes:
      patterns: globs of images, archives or idx files, or folders for all below them; or tables
        that name images.
      layout: one of `LAYOUTS`.
      annotations: the table, COCO's JSON, or the folder of Pascal VOC's XML.
      more_annotations: COCO's JSON of further splits; each file's name says its split.
      masks: a glob or folder of mask images, paired with images by name.
      mask_suffix: what a mask's name has behind the image's, such as "_mask".
      labels_from: "folder", "field" (a table's column, DAGM's defect flag), "number" (the
        same, which is no class), "none", or "auto".
      label_folder: which folder is the label: 1 the first below the input root, or below the
        split's; -1 the image's own; None the first below the folders common to all images.
      common_folders: how many leading folders all images share that name neither labels nor
        splits; `list_images` finds it.
      labels: all labels in order, where they are given: any other is rejected.
      label_pattern: a regular expression with one group, which is the label, searched in the names
        of image files; "" where labels are not in the names.
      keep_fields: columns that are carried into the records.
      path_field, label_field: columns; "" is the first usual name that is there.
      label_delimiter: between labels in one field; "" where there is one.
      box_format: what the four numbers of a table's boxes are, one of `BOX_FORMATS`; "" is xyxy in
        the columns xmin, ymin, xmax, ymax.
      box_units: "pixels", "fraction" of the image's sides; "" is pixels, unless they look like
        fractions, which is refused.
      split_from: "" uses the splits of the layout, "folder" the first folder below the root, "none"
        no splits; else a column.
      only_defective: of DAGM, images without a defect are left out.
      allow_outside: folders beyond those of the flags that links and annotations may name.
      records: of the layout "fixed", what a record is.
      max_objects: of an image; those with more are rejected.
      split_by: images share a split that have the same value of a column, or the same "folder".

    Raises:
      UsageError: a value is not valid, or it has no meaning for the layout.
    """

    patterns: tuple[str, ...]
    layout: str = "auto"
    annotations: str = ""
    more_annotations: tuple[str, ...] = ()
    masks: str = ""
    mask_suffix: str = ""
    labels_from: str = "auto"
    label_folder: int | None = None
    common_folders: int = 0
    labels: tuple[str, ...] = ()
    label_pattern: str = ""
    keep_fields: tuple[KeptField, ...] = ()
    path_field: str = ""
    label_field: str = ""
    label_delimiter: str = ""
    box_format: str = ""
    box_units: str = ""
    split_from: str = ""
    split_by: str = ""
    only_defective: bool = False
    allow_outside: tuple[str, ...] = ()
    records: RecordForm | None = None
    max_objects: int = USUAL_OBJECTS

    def __post_init__(self) -> None:
        if not self.patterns or not all(self.patterns):
            raise UsageError(
                "--input must be a glob or folder of images, or a table that names them"
            )
        one_of("--layout", self.layout, LAYOUTS)
        one_of("--labels_from", self.labels_from, ("auto", "folder", "field", "number", "none"))
        one_of("--box_format", self.box_format, ("", *BOX_FORMATS))
        one_of("--box_units", self.box_units, ("", *BOX_UNITS))
        at_least("--max_objects", self.max_objects, 1)
        if self.label_folder == 0:
            raise UsageError("--label_folder must be 1 or more, or -1 or less, got 0")
        if len(set(self.labels)) != len(self.labels):
            twice = next(name for name in self.labels if self.labels.count(name) > 1)
            raise UsageError(f"--labels must name each label once, got {twice!r} twice")
        if self.layout in _NEEDS_ANNOTATIONS and not self.annotations:
            raise UsageError(
                f"--layout={self.layout} needs --annotations; remove --layout to search"
            )
        if self.annotations and self.layout not in ("auto", "table", *_NEEDS_ANNOTATIONS):
            raise UsageError(
                f"--annotations has no meaning for --layout={self.layout}; remove one of them"
            )
        if self.more_annotations and self.layout not in ("auto", "coco"):
            raise UsageError(
                f"--annotations may be given several times for COCO's JSON, one file for each "
                f"split; --layout={self.layout} takes one, got "
                f"{', '.join((self.annotations, *self.more_annotations))}"
            )
        if self.labels_from not in ("auto", "none", *_LABELS_FROM.get(self.layout, ())):
            from_ = "" if self.labels_from == "number" else "from_"
            raise UsageError(
                f"--labels={from_}{self.labels_from} has no meaning for --layout={self.layout}, "
                "which has no such labels"
            )
        if self.layout == "pairs" and not self.masks:
            raise UsageError("--layout=pairs needs --masks, a glob or folder of mask images")
        if self.mask_suffix and not self.masks:
            raise UsageError("--mask_suffix has no meaning without --masks; remove it")
        if self.masks and self.layout in ("dagm", "severstal", "fixed", "idx", "webdataset"):
            raise UsageError(f"--masks has no meaning for --layout={self.layout}; remove it")
        if self.records and self.layout != "fixed":
            raise UsageError(
                f"--record_shape={self.records} needs --layout=fixed, got --layout={self.layout}"
            )
        if self.only_defective and self.layout not in ("auto", "dagm"):
            raise UsageError(
                f"--only_defective has no meaning for --layout={self.layout}: DAGM alone marks "
                "images with a defect; remove it"
            )
        self._check_fields()
        self._check_pattern()

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
        if self.layout not in ("auto", "flat", "folders", "pairs") or self.annotations:
            raise UsageError(
                "--label_pattern has no meaning where annotations give the labels "
                f"(--layout={self.layout}); remove it"
            )
        if self.labels_from != "auto":
            raise UsageError("--label_pattern says where labels come from; remove --labels")
        if self.label_folder is not None:
            raise UsageError("--label_folder has no meaning with --label_pattern; remove it")

    def _check_fields(self) -> None:
        if self.layout in ("auto", "table"):
            return
        for flag, value, words in (
            ("--path_field", self.path_field, ("",)),
            ("--label_field", self.label_field, ("",)),
            ("--label_delimiter", self.label_delimiter, ("",)),
            ("--box_format", self.box_format, ("",)),
            ("--keep_fields", ",".join(field.name for field in self.keep_fields), ("",)),
            ("--box_units", self.box_units, BOX_UNITS if self.layout in _PIXEL_BOXES else ("",)),
            ("--split_from", self.split_from, ("", "folder", "none")),
            ("--split_by", self.split_by, ("", "folder")),
        ):
            in_samples = self.layout == "webdataset" and flag in ("--label_field", "--keep_fields")
            if value and value not in words and not in_samples:
                raise UsageError(
                    f"{flag}={value} needs a table of images, and --layout={self.layout} has none"
                )

    @property
    def split_field(self) -> str:
        """The column of the split, "" where there is none."""
        return "" if self.split_from in ("folder", "none") else self.split_from

    @property
    def group_field(self) -> str:
        """The column of the group, "" where there is none."""
        return "" if self.split_by == "folder" else self.split_by

    def reference(
        self,
        entry: Entry,
        *,
        labels: tuple[str, ...] = (),
        objects: tuple[ImageObject, ...] = (),
        mask: StoredBytes | None = None,
        regions: tuple[tuple[str, Region], ...] = (),
        has_mask: bool = False,
        split: str = "",
        group: str = "",
        source_id: str = "",
    ) -> ImageReference | ListedReject:
        """Returns an image, with the split and group that its folders or the source give."""
        folders = entry.folders
        if len(objects) > self.max_objects:
            detail = f"{len(objects)} objects, at most {self.max_objects}, see --max_objects"
            return ListedReject(entry.name, "too_many_objects", detail)
        if self.split_from == "folder":
            split = next(iter(folders[self.common_folders :]), "")
        if self.split_from == "none":
            split = ""
        elif self.split_from and not split:
            detail = "it is in no folder" if self.split_field == "" else "the field is empty"
            return ListedReject(entry.name, "no_split", detail)
        if self.split_by == "folder":
            group = "/".join(folders)
        return ImageReference(
            entry.name, entry.stored, labels, objects, mask, regions, has_mask,
            split_name(split), group, source_id,
        )  # fmt: skip

    def image_label(self, entry: Entry) -> tuple[str, ...]:
        """Returns the label in an image's name, or else of its folders; () where there is none."""
        if not self.label_pattern:
            return self.folder_label(entry)
        match = re.search(self.label_pattern, entry.name.rpartition("/")[2])
        return (match[1],) if match and match[1] else ()

    def folder_label(self, entry: Entry) -> tuple[str, ...]:
        """Returns the label that the image's folders give, () where they give none."""
        folders = entry.folders[self.common_folders :]
        if self.split_from == "folder":
            folders = folders[1:]
        number = 1 if self.label_folder is None else self.label_folder
        at = number - 1 if number > 0 else number
        return (folders[at],) if -len(folders) <= at < len(folders) else ()


def split_name(text: str) -> str:
    """Returns a split's usual name: "Training" is train, "val" validation."""
    text = text.lower()
    return _SPLIT_NAMES.get(text, text)


def is_split_name(text: str) -> bool:
    """Returns whether a folder's name looks like a split's."""
    return split_name(text) in ("train", "test", "validation")
