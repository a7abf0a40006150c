"""Bringing images together with what tables, annotations and masks say of them, by name.

All goes through one sort, so that nothing is held but what one image has, whatever order it
comes in.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recordmill.transforms import files
from recordmill.transforms.external_sort import Row, cogroup
from recordmill.transforms.image_entries import Entry, Listing
from recordmill.transforms.image_files import find_entries
from recordmill.transforms.image_references import ImageReference, ListedReject

Listed = ImageReference | ListedReject
# Takes the images of one key, and the other contents by tag.
Maker = Callable[[list[Entry], dict[str, list[Any]]], Iterator[Listed]]


def stem(name: str) -> str:
    """Returns a name without its ending."""
    return posixpath.splitext(name)[0]


def reject_row(reject: ListedReject) -> Row:
    """Returns the row that carries a reject through a join."""
    return reject.source, "reject", (reject.source, reject.reason, reject.detail)


def image_rows(
    patterns: Sequence[str], listing: Listing, key: Callable[[str], str] = str
) -> Iterator[Row]:
    """Yields the images that match, by name below the input root or in the archive."""
    for item in find_entries(patterns, listing):
        if isinstance(item, ListedReject):
            yield reject_row(item)
        else:
            yield key(item.name[item.inner :]), "image", tuple(item)


def join(rows: Iterator[Row], listing: Listing, make: Maker) -> Iterator[Listed]:
    """Yields what `make` returns for each key, in order, and the rejects among the rows."""
    for _, contents in cogroup(rows, scratch=listing.scratch):
        for reject in contents.pop("reject", ()):
            yield ListedReject(*reject)
        images = [Entry(*content) for content in dict.fromkeys(contents.pop("image", ()))]
        if images or contents:
            yield from make(images[:1], contents)
        for other in images[1:]:
            detail = f"{images[0].name} has that name too, but for folder or ending"
            yield ListedReject(other.name, "duplicate", detail)


def without_image(source: str, path: str, listing: Listing) -> Iterator[ListedReject]:
    """Yields the reject of what is said of an image that is not listed.

    Where the image is there and a glob leaves it out, that is on purpose, and counted.
    """
    if files.exists(path):
        listing.filtered["not_in_input"] += 1
    else:
        yield ListedReject(source, "no_image", f"there is no {path}")


class NameResolver:
    """Turns the paths of a table into names below the input root.

    Relative ones are meant from the input root, or from the table's own folder: from where the
    first of them are found.

    Args:
      root: the input root.
      table_folder: the folder of the table.
      samples: the first paths.
    """

    def __init__(self, root: str, table_folder: str, samples: Sequence[str] = ()) -> None:
        self._root = _absolute(root)
        relative = [path for path in samples if not path.startswith("/") and "://" not in path]
        bases = dict.fromkeys((self._root, _absolute(table_folder)))
        candidates = ((base, path) for base in bases for path in relative if len(bases) > 1)
        self._base = next(
            (base for base, path in candidates if files.exists(_join(base, path))), self._root
        )

    def path(self, path: str) -> str:
        """Returns the whole path."""
        return _join(self._base, path)

    def name(self, path: str) -> str:
        """Returns the name below the input root; the whole path where it is not below it."""
        whole = self.path(path)
        return whole.removeprefix(self._root.rstrip("/") + "/")


def _absolute(path: str) -> str:
    return os.path.abspath(path) if files.is_local(path) else path.rstrip("/")


def _join(base: str, path: str) -> str:
    if "://" in path:
        return path
    scheme, _, place = base.rpartition("://")
    whole = posixpath.normpath(posixpath.join(f"/{place}" if scheme else place, path))
    return f"{scheme}:/{whole}" if scheme else whole
