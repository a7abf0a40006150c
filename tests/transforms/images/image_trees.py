"""Trees of files for tests of listing: the bytes do not matter, only names do."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import apache_beam.io.filesystem as beam_files

from recordmill.transforms.dataset.rejects import REASONS
from recordmill.transforms.images.listing.list_images import Listing, SourceSpec, list_images
from recordmill.transforms.images.references import ImageReference, ListedReject


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def listed(*patterns: str, listing: Listing | None = None, **options):
    """Returns the images by name, and the rejects as (source, reason)."""
    items = list(list_images(SourceSpec(patterns=patterns, **options), listing))
    images = {item.name: item for item in items if isinstance(item, ImageReference)}
    rejects = [(item.source, item.reason) for item in items if isinstance(item, ListedReject)]
    assert len(images) + len(rejects) == len(items)
    assert {reason for _, reason in rejects} <= REASONS.keys()
    for image in images.values():
        assert ImageReference.from_line(image.to_line()) == image
    return images, rejects


class Shelf(beam_files.FileSystem):
    """A file system without folders, as an object store is, that lists in no order."""

    objects: dict[str, bytes] = {}  # noqa: RUF012

    @classmethod
    def scheme(cls):
        return "shelf"

    def join(self, base, *parts):
        return "/".join([base, *parts])

    def split(self, path):
        return tuple(path.rsplit("/", 1))

    def has_dirs(self):
        return False

    def _list(self, prefix):
        for path in self.objects:
            if path.startswith(prefix):
                yield self.metadata(path)

    def exists(self, path):
        return path in self.objects

    def size(self, path):
        return len(self.objects[path])

    def metadata(self, path):
        return beam_files.FileMetadata(path, len(self.objects[path]), 7.5)

    def open(self, path, *_, **__):
        if path not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return io.BytesIO(self.objects[path])

    def _none(self, *_, **__):
        raise NotImplementedError

    mkdirs = create = copy = rename = last_updated = checksum = delete = _none
