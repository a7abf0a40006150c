"""One image file or member of an archive, as listing finds it, and which names are passed over."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from recordmill.transforms import files
from recordmill.transforms.image_references import Storage, StoredBytes

IMAGE_ENDINGS = (
    ".bmp", ".dib", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp",
)  # fmt: skip
# Why files are passed over, which are no rejects.
FILTERS = {
    "hidden": "hidden files and folders (a folder counts once), Thumbs.db, desktop.ini, __MACOSX",
    "no_image_ending": "files whose names do not end like an image's",
    "mask": "masks among the input",
    "no_mask_suffix": "files among the masks without --mask_suffix",
    "not_in_input": "rows and annotations of images that the globs leave out",
    "in_no_set": "images that no list in Pascal VOC's ImageSets names",
}


class Entry(NamedTuple):
    """A file, or a member of an archive.

    Attributes:
      name: its place below the input root; a member's begins with its archive's.
      path, storage, offset, size, shape: as in `StoredBytes`.
      inner: where in `name` its folders begin that can mean something: 0, or behind the archive's.
    """

    name: str
    path: str
    storage: Storage = "file"
    offset: int = 0
    size: int = -1
    inner: int = 0
    shape: tuple[int, ...] = ()

    @property
    def stored(self) -> StoredBytes:
        """Where its bytes are."""
        return StoredBytes(self.path, self.storage, self.offset, self.size, self.shape)

    @property
    def folders(self) -> list[str]:
        """The folders below the input root, or below the archive's."""
        return self.name[self.inner :].split("/")[:-1]


@dataclass
class Listing:
    """What a listing tells beside its images.

    Attributes:
      saw: called with path, bytes and modification stamp (ns; 0 unknown) of each file that is used.
      filtered: how many files were passed over, by reason: a key of `FILTERS`.
      scratch: a local folder for temporary files.
    """

    saw: Callable[[str, int, int], None] = lambda path, size, modified: None
    filtered: Counter[str] = field(default_factory=Counter)
    scratch: str = ""

    def use(self, path: str) -> None:
        """Tells of a file that is used without having been listed."""
        if files.is_local(path):
            status = os.stat(path)
            self.saw(path, status.st_size, status.st_mtime_ns)
        else:
            self.saw(path, files.size(path), 0)


def has_image_ending(path: str) -> bool:
    """Tells whether a file may be an image, by its name."""
    return path.lower().endswith(IMAGE_ENDINGS)


def is_encodable(name: str) -> bool:
    """Tells whether a name is text: Linux allows any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: str) -> str:
    """Returns a name that can be written, whatever bytes are in it."""
    return name.encode("utf-8", "backslashreplace").decode()


def is_hidden(name: str) -> bool:
    """Tells whether a file or folder is a system's, not the user's."""
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db", "desktop.ini")
