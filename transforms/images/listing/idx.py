"""MNIST's idx files: raw pixels in one file, labels in another beside it.

LeCun, Cortes, Burges: The MNIST database of handwritten digits (format at the end of its page).
"""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Iterator
from dataclasses import replace

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Entry, Listing, make_reference
from recordmill.transforms.images.listing.image_files import find_files, outside_reject
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import OUTSIDE

_IMAGES = re.compile(r"images[-.]?idx[34]", re.IGNORECASE)
_UINT8 = 8
_BLOCK = 1 << 16


def is_idx_images(path: str) -> bool:
    """Returns whether a file has MNIST's name for images, as `train-images-idx3-ubyte.gz`."""
    return bool(_IMAGES.search(path.rpartition("/")[2]))


def idx_shape(path: str) -> tuple[int, ...]:
    """Returns the shape that an idx file of uint8 states.

    Raises:
      UsageError: it is no such file.
    """
    try:
        with files.open_read(path) as handle:
            stream = gzip.GzipFile(fileobj=handle) if path.endswith(".gz") else handle
            magic = stream.read(4)
            if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != _UINT8:
                raise UsageError(f"--input {path} must be an idx file of unsigned bytes")
            size = stream.read(4 * magic[3])
            return struct.unpack(f">{magic[3]}I", size)
    except (OSError, EOFError, struct.error) as error:
        raise UsageError(f"--input {path} cannot be read as an idx file: {error}") from error


def idx_images(spec: SourceSpec, listing: Listing) -> Iterator[ImageReference | ListedReject]:
    """Yields the images of idx files with their labels, `images#17` by name.

    The split is "train" or "test", by the file's name; `t10k` is MNIST's test.

    Raises:
      UsageError: labels are missing, of another number, or a file is no idx file.
    """
    for name, file in find_files(spec.patterns, listing):
        if not is_idx_images(name):
            if not re.search(r"idx1", name):
                listing.pass_over("no_image_extension", name)
            continue
        if file.size == OUTSIDE:
            yield outside_reject(name, file.path)
            continue
        listing.on_file(*file)
        for item in _file_images(name, file.path, spec, listing):
            if isinstance(item, ImageReference):
                item = replace(item, image=replace(item.image, modified_ns=file.modified_ns))
            yield item


def _file_images(
    name: str, path: str, spec: SourceSpec, listing: Listing
) -> Iterator[ImageReference | ListedReject]:
    shape = idx_shape(path)
    if len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] not in (1, 3, 4)):
        raise UsageError(
            f"--input {path} must have the shape [n, height, width] or [n, height, width, 1|3|4], "
            f"got {list(shape)}"
        )
    count, height, width = shape[:3]
    channels = shape[3] if len(shape) == 4 else 1
    size = height * width * channels
    limit = listing.limits.unpacked_bytes
    if path.endswith(".gz") and count * size > limit:
        raise UsageError(
            f"--input {path} must be unpacked (gunzip): it holds {count * size >> 20} MiB of "
            f"pixels, and at most {limit >> 20} MiB are read from a .gz"
        )
    stem = name.rpartition("/")[2]
    split = "train" if "train" in stem else "test" if re.search("t10k|test", stem) else ""
    start = 4 + 4 * len(shape)
    for number, label in enumerate(_labels(_labels_path(path), path, count, listing)):
        entry = Entry(
            f"{name}#{number}", path, "idx", start + number * size, size,
            shape=(height, width, channels),
        )  # fmt: skip
        labels = () if spec.labels_from == "none" else (str(label),)
        yield make_reference(spec, entry, labels=labels, split=split)


def _labels_path(path: str) -> str:
    folder, slash, stem = path.rpartition("/")
    stem = re.sub("images", "labels", stem, flags=re.IGNORECASE)
    stem = re.sub("idx[34]", "idx1", stem, flags=re.IGNORECASE)
    packed = stem.removesuffix(".gz")
    for candidate in (stem, packed, f"{packed}.gz"):
        if files.exists(folder + slash + candidate):
            return folder + slash + candidate
    raise UsageError(f"--input {path} must have its labels beside it, in {stem}")


def _labels(path: str, images: str, count: int, listing: Listing) -> Iterator[int]:
    listing.check_inside(path)
    shape = idx_shape(path)
    if shape != (count,):
        raise UsageError(
            f"--input {path} must hold a label for each of the {count} images of {images}, got the "
            f"shape {list(shape)}"
        )
    listing.report_file(path)
    try:
        with files.open_read(path) as handle:
            stream = gzip.GzipFile(fileobj=handle) if path.endswith(".gz") else handle
            stream.read(8)
            missing = count
            while missing and (block := stream.read(min(missing, _BLOCK))):
                yield from block
                missing -= len(block)
    except (OSError, EOFError) as error:
        raise UsageError(f"--input {path} cannot be read: {error}") from error
    if missing:
        raise UsageError(f"--input {path} ends {missing} labels too early; copy it again")
