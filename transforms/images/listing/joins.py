"""Joining images with their table rows, annotations and masks, by name.

All rows go through one sort, so that only the rows of one image are in memory, in whatever order
the input has them.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recordmill.transforms.images.listing.entries import Entry, Listing
from recordmill.transforms.images.listing.image_files import find_entries
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.storage import files
from recordmill.transforms.storage.boundary import leaves
from recordmill.transforms.storage.external_sort import Row, cogroup

Listed = ImageReference | ListedReject
# Takes the images of one key, and the other contents by tag.
Maker = Callable[[list[Entry], dict[str, list[Any]]], Iterator[Listed]]


def stem(name: str) -> str:
    """Returns a name without its extension."""
    return posixpath.splitext(name)[0]


def reject_row(reject: ListedReject) -> Row:
    """Returns the row that carries a reject through a join."""
    return reject.source, "reject", (reject.source, reject.reason, reject.detail, reject.position)


def image_rows(
    patterns: Sequence[str], listing: Listing, key: Callable[[str], str] = str
) -> Iterator[Row]:
    """Yields the images that match, by name below the input root or in the archive."""
    for item in find_entries(patterns, listing):
        if isinstance(item, ListedReject):
            yield reject_row(item)
        else:
            yield key(item.name[item.inner :]), "image", tuple(item)


def join(
    rows: Iterator[Row], listing: Listing, make: Maker, *, only_clear: bool = False
) -> Iterator[Listed]:
    """Yields what `make` returns for each key, in order, and the rejects among the rows.

    Args:
      rows: of all sides.
      listing: what is reported.
      make: makes the image of a key.
      only_clear: images of one key are all rejected, because the key is an id that names several.
    """
    for _, contents in cogroup(rows, scratch=listing.scratch):
        for reject in contents.pop("reject", ()):
            yield ListedReject(*reject)
        images = [Entry(*content) for content in dict.fromkeys(contents.pop("image", ()))]
        if only_clear and len(images) > 1:
            for image in images:
                detail = f"{len(images)} images are called {stem(image.name)}; give the extension"
                yield ListedReject(image.name, "duplicate", detail)
            continue
        if images or contents:
            yield from make(images[:1], contents)
        for other in images[1:]:
            detail = f"{images[0].name} has that name too, except for folder or extension"
            yield ListedReject(other.name, "duplicate", detail)


def without_annotation(image: str, why: str) -> ListedReject:
    """Returns the reject of an image that annotations do not name."""
    detail = f"{why}; a narrower --input leaves out images without annotations"
    return ListedReject(image, "no_label", detail)


def without_image(
    source: str, path: str, listing: Listing, *, inside: bool | None = None
) -> Iterator[ListedReject]:
    """Yields a reject for the annotation of an image that is not listed.

    Where the image exists, the globs exclude it on purpose: then it is only counted. Outside of the
    input nothing is looked for.

    Args:
      source: of the annotation, for messages.
      path: of the image.
      listing: what is reported; its boundary decides what is inside.
      inside: whether the path is in a folder that flags name; None asks the boundary alone.
    """
    if not inside and not listing.holds(path):
        yield ListedReject(source, "outside_input", leaves(path))
    elif files.exists(path):
        listing.pass_over("not_in_input", source)
    else:
        yield ListedReject(source, "no_image", f"there is no {path}")


class NameResolver:
    """Turns the paths of a table into names below the input root.

    Relative paths start at the input root or at the table's own folder, or at one of some others:
    at the first of these in which a sample exists.

    Args:
      root: the input root.
      table_folder: the folder of the table.
      samples: the first paths.
      folders: further ones.
    """

    def __init__(
        self,
        root: str,
        table_folder: str,
        samples: Sequence[str] = (),
        folders: Sequence[str] = (),
    ) -> None:
        self._root = _absolute(root)
        self._below_root = self._root.rstrip("/") + "/"
        relative = [path for path in samples if not path.startswith("/") and "://" not in path]
        bases = dict.fromkeys((self._root, _absolute(table_folder), *map(_absolute, folders)))
        candidates = ((base, path) for base in bases for path in relative if len(bases) > 1)
        self._base = next(
            (base for base, path in candidates if files.exists(_join(base, path))), self._root
        )

    def path(self, path: str) -> str:
        """Returns the whole path."""
        return _join(self._base, path)

    def is_below(self, path: str) -> bool:
        """Tells whether a whole path is below the folder that relative ones start at, by name."""
        return path.startswith(f"{self._base.rstrip('/')}/")

    def name(self, path: str) -> str:
        """Returns the name below the input root; the whole path where it is not below it."""
        return self.name_of(self.path(path))

    def name_of(self, whole: str) -> str:
        """Returns the same of a path that `path` has returned."""
        return whole.removeprefix(self._below_root)


def _absolute(path: str) -> str:
    return os.path.abspath(path) if files.is_local(path) else path.rstrip("/")


def _join(base: str, path: str) -> str:
    if "://" in path:
        return path
    scheme, _, folder = base.rpartition("://")
    whole = posixpath.normpath(posixpath.join(f"/{folder}" if scheme else folder, path))
    return f"{scheme}:/{whole}" if scheme else whole
