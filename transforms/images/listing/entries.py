"""One image file or archive member of a listing, what its names say, and which are passed over."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from recordmill.records.errors import UsageError
from recordmill.transforms.images.references import (
    ImageObject,
    ImageReference,
    ListedReject,
    Region,
    Storage,
    StoredBytes,
)
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.images.stored_bytes import DEFAULT_LIMITS, ReadLimits
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.boundary import Boundary, leaves
from recordmill.transforms.storage.external_sort import HELD_BYTES

# Why files are passed over, which are no rejects.
FILTERS = {
    "hidden": "hidden files and folders (a folder counts once), Thumbs.db, desktop.ini, __MACOSX",
    "no_image_extension": "files whose names do not end like an image's",
    "mask": "masks among the input",
    "no_mask_suffix": "files among the masks without --mask_suffix",
    "not_defective": "images that DAGM's Labels.txt marks as free of defects",
    "not_in_input": "rows and annotations of images that the globs do not match",
    "not_regular": "fifos, sockets, devices and files of the kernel",
    "skip_files": "files that --skip_files leaves out",
    "in_no_set": "images that no list in Pascal VOC's ImageSets names",
}

_SPLIT_NAMES = {
    "training": "train", "testing": "test", "val": "validation", "valid": "validation",
    "dev": "validation",
}  # fmt: skip
_MOST_EXTENSIONS = 20  # that are counted each for itself


class Entry(NamedTuple):
    """A file, or a member of an archive.

    Attributes:
      name: its path below the input root; a member's begins with its archive's.
      path, storage, offset, size, shape, crc32, modified_ns: as in `StoredBytes`.
      inner: where in `name` the folders begin that may be labels or splits: 0, or for members
        behind the archive's name.
    """

    name: str
    path: str
    storage: Storage = "file"
    offset: int = 0
    size: int = -1
    inner: int = 0
    shape: tuple[int, ...] = ()
    crc32: int | None = None
    modified_ns: int = 0

    @property
    def stored(self) -> StoredBytes:
        """Where its bytes are."""
        return StoredBytes(
            self.path, self.storage, self.offset, self.size, self.shape, self.crc32,
            self.modified_ns,
        )  # fmt: skip

    @property
    def folders(self) -> list[str]:
        """The folders below the input root, or below the archive's."""
        return self.name[self.inner :].split("/")[:-1]


@dataclass
class Listing:
    """The reports of a listing beside its images, and its limits.

    Attributes:
      on_file: called with path, bytes and modification time (ns; 0 unknown) of each file used.
      filtered: how many files were passed over, by reason: a key of `FILTERS`.
      passed_over: the same, those without an image's extension by extension: their number and the
        first of their names.
      scratch: a local folder for temporary files.
      held_bytes: about how much of a folder is held in memory; what is more goes through files.
      limits: what readers of the listed images can hold; larger inputs are refused here.
      is_annotation: tells by its name whether a file below the input is one of annotations, which
        is not passed over.
      packs: the ranges of rows that are to be unpacked to each pack, see `byte_rows.py`.
      boundary: what links and annotations may name; None: anything.
    """

    on_file: Callable[[str, int, int], None] = lambda path, size, modified: None
    filtered: Counter[str] = field(default_factory=Counter)
    passed_over: dict[str, tuple[int, str]] = field(default_factory=dict)
    scratch: str = ""
    held_bytes: int = HELD_BYTES
    limits: ReadLimits = DEFAULT_LIMITS
    is_annotation: Callable[[str], bool] = lambda name: False
    packs: list[list[SourceRange]] = field(default_factory=list)
    boundary: Boundary | None = None

    def holds(self, path: str, *, is_link: bool | None = None) -> bool:
        """Tells whether a path lies inside of the input; see `Boundary.holds`."""
        return self.boundary is None or self.boundary.holds(path, is_link=is_link)

    def check_inside(self, path: str, folder: str = "") -> None:
        """Checks a file of annotations that was found by its name.

        Args:
          path: of the file.
          folder: the input's, where it is not that of a flag.

        Raises:
          UsageError: it is a link that leads outside of the input.
        """
        if not self.holds(path) and not (folder and Boundary([folder]).holds(path)):
            raise UsageError(f"{path} must lie in the input: {leaves(path)}")

    def pass_over(self, reason: str, name: str, number: int = 1) -> None:
        """Counts files that are passed over.

        Args:
          reason: a key of `FILTERS`.
          name: of one of them.
          number: of them.
        """
        if self.is_annotation(name):
            return
        self.filtered[reason] += number
        kind = reason
        if reason == "no_image_extension":
            kind = os.path.splitext(name)[1].lower() or "no extension"
            if kind not in self.passed_over and len(self.passed_over) >= _MOST_EXTENSIONS:
                kind = "other extensions"
        shown = printable(name)
        known, first = self.passed_over.get(kind, (0, shown))
        self.passed_over[kind] = (known + number, min(first, shown))

    def report_file(self, path: str) -> None:
        """Reports a file that is used without having been listed."""
        if files.is_local(path):
            status = os.stat(path)
            self.on_file(path, status.st_size, status.st_mtime_ns)
        else:
            self.on_file(path, files.size(path), 0)


def is_encodable(name: str) -> bool:
    """Returns whether a name is text: Linux allows any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: str) -> str:
    """Returns a name that can be written, whatever bytes are in it."""
    return name.encode("utf-8", "backslashreplace").decode()


def make_reference(
    spec: SourceSpec,
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
    if len(objects) > spec.max_objects:
        detail = f"{len(objects)} objects, at most {spec.max_objects}, see --max_objects"
        return ListedReject(entry.name, "too_many_objects", detail)
    if spec.split_from == "folder":
        split = next(iter(folders[spec.common_folders :]), "")
    if spec.split_from == "none":
        split = ""
    elif spec.split_from and not split:
        detail = "it is in no folder" if spec.split_field == "" else "the field is empty"
        return ListedReject(entry.name, "no_split", detail)
    if spec.split_by == "folder":
        group = "/".join(folders)
    return ImageReference(
        entry.name, entry.stored, labels, objects, mask, regions, has_mask,
        split_name(split), group, source_id,
    )  # fmt: skip


def image_label(spec: SourceSpec, entry: Entry) -> tuple[str, ...]:
    """Returns the label in an image's name, or else of its folders; () where there is none."""
    if not spec.label_pattern:
        return folder_label(spec, entry)
    match = re.search(spec.label_pattern, entry.name.rpartition("/")[2])
    return (match[1],) if match and match[1] else ()


def folder_label(spec: SourceSpec, entry: Entry) -> tuple[str, ...]:
    """Returns the label that the image's folders give, () where they give none."""
    folders = entry.folders[spec.common_folders :]
    if spec.split_from == "folder":
        folders = folders[1:]
    number = 1 if spec.label_folder is None else spec.label_folder
    at = number - 1 if number > 0 else number
    return (folders[at],) if -len(folders) <= at < len(folders) else ()


def split_name(text: str) -> str:
    """Returns a split's usual name: "Training" is train, "val" validation."""
    text = text.lower()
    return _SPLIT_NAMES.get(text, text)


def is_split_name(text: str) -> bool:
    """Returns whether a folder's name looks like a split's."""
    return split_name(text) in ("train", "test", "validation")
