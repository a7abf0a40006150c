"""What the user says about where images are and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass

from recordmill.records.errors import UsageError, one_of
from recordmill.transforms.image_entries import Entry
from recordmill.transforms.image_references import (
    ImageObject,
    ImageReference,
    ListedReject,
    Region,
    StoredBytes,
)

LAYOUTS = (
    "auto", "coco", "dagm", "flat", "folders", "idx", "pairs", "severstal", "table", "voc",
)  # fmt: skip
_NEEDS_ANNOTATIONS = ("coco", "severstal", "voc")
# Where labels can come from, beside "auto" and "none".
_LABELS_FROM = {
    "auto": ("folder", "field"), "dagm": ("folder", "field"), "table": ("folder", "field"),
    "folders": ("folder",),
}  # fmt: skip
_SPLIT_NAMES = {
    "training": "train", "testing": "test", "val": "validation", "valid": "validation",
    "dev": "validation",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where images are and what is known of them.

    Attributes:
      patterns: globs of images, archives or idx files, or folders for all below them; or tables
        that name images.
      layout: one of `LAYOUTS`.
      annotations: the table, COCO's JSON, or the folder of Pascal VOC's XML.
      masks: a glob or folder of mask images, paired with images by name.
      mask_suffix: what a mask's name has behind the image's, as "_mask".
      labels_from: "folder", "field" (a table's column, DAGM's defect flag), "none", or "auto".
      label_folder: which folder is the label: 1 the first below the input root, or below the
        split's; -1 the image's own.
      labels: all labels in order, where they are given: any other is rejected.
      path_field, label_field: columns; "" is the first usual name that is there.
      label_delimiter: between labels in one field; "" where there is one.
      split_from: "" is what the layout says, "folder" the first below the root, "none" nothing, or
        a column.
      split_by: images share a split that have the same value of a column, or the same "folder".
    """

    patterns: tuple[str, ...]
    layout: str = "auto"
    annotations: str = ""
    masks: str = ""
    mask_suffix: str = ""
    labels_from: str = "auto"
    label_folder: int = 1
    labels: tuple[str, ...] = ()
    path_field: str = ""
    label_field: str = ""
    label_delimiter: str = ""
    split_from: str = ""
    split_by: str = ""

    def __post_init__(self) -> None:
        if not self.patterns or not all(self.patterns):
            raise UsageError(
                "--input must be a glob or folder of images, or a table that names them"
            )
        one_of("--layout", self.layout, LAYOUTS)
        one_of("--labels_from", self.labels_from, ("auto", "folder", "field", "none"))
        if self.label_folder == 0:
            raise UsageError("--label_folder must be 1 or more, or -1 or less, got 0")
        if len(set(self.labels)) != len(self.labels):
            twice = next(name for name in self.labels if self.labels.count(name) > 1)
            raise UsageError(f"--labels must name each label once, got {twice!r} twice")
        if self.layout in _NEEDS_ANNOTATIONS and not self.annotations:
            raise UsageError(
                f"--layout={self.layout} needs --annotations; leave --layout out to search"
            )
        if self.annotations and self.layout not in ("auto", "table", *_NEEDS_ANNOTATIONS):
            raise UsageError(
                f"--annotations has no meaning for --layout={self.layout}; leave one of them out"
            )
        if self.labels_from not in ("auto", "none", *_LABELS_FROM.get(self.layout, ())):
            raise UsageError(
                f"--labels=from_{self.labels_from} has no meaning for --layout={self.layout}, "
                "where labels are not there"
            )
        if self.layout == "pairs" and not self.masks:
            raise UsageError("--layout=pairs needs --masks, a glob or folder of mask images")
        if self.mask_suffix and not self.masks:
            raise UsageError("--mask_suffix has no meaning without --masks; leave it out")
        if self.masks and self.layout in ("dagm", "severstal", "idx"):
            raise UsageError(f"--masks has no meaning for --layout={self.layout}; leave it out")
        self._check_fields()

    def _check_fields(self) -> None:
        if self.layout in ("auto", "table"):
            return
        for flag, value, words in (
            ("--path_field", self.path_field, ("",)),
            ("--label_field", self.label_field, ("",)),
            ("--label_delimiter", self.label_delimiter, ("",)),
            ("--split_from", self.split_from, ("", "folder", "none")),
            ("--split_by", self.split_by, ("", "folder")),
        ):
            if value not in words:
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
    ) -> ImageReference | ListedReject:
        """Returns an image, with the split and group that its folders or the source give."""
        folders = entry.folders
        if self.split_from == "folder":
            split = folders[0] if folders else ""
        if self.split_from == "none":
            split = ""
        elif self.split_from and not split:
            place = "it lies in no folder" if self.split_field == "" else "the field is empty"
            return ListedReject(entry.name, "no_split", place)
        if self.split_by == "folder":
            group = "/".join(folders)
        return ImageReference(
            entry.name, entry.stored, labels, objects, mask, regions, has_mask,
            split_name(split), group,
        )  # fmt: skip

    def folder_label(self, entry: Entry) -> tuple[str, ...]:
        """Returns the label that the image's folders give, () where they give none."""
        folders = entry.folders[1:] if self.split_from == "folder" else entry.folders
        at = self.label_folder - 1 if self.label_folder > 0 else self.label_folder
        return (folders[at],) if -len(folders) <= at < len(folders) else ()


def split_name(text: str) -> str:
    """Returns a split's usual name: "Training" is train, "val" validation."""
    text = text.lower()
    return _SPLIT_NAMES.get(text, text)


def is_split_name(text: str) -> bool:
    """Tells whether a folder's name looks like a split's."""
    return split_name(text) in ("train", "test", "validation")
