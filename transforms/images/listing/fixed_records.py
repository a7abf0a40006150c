"""Files of records of a fixed length, each a label and raw pixels, as CIFAR's .bin.

Krizhevsky: Learning multiple layers of features from tiny images (2009); the binary version of
CIFAR-10 and CIFAR-100 has planes of red, green and blue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Entry, Listing, make_reference
from recordmill.transforms.images.listing.image_files import find_files, outside_reject
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import OUTSIDE

_BLOCK_BYTES = 1 << 22


def fixed_images(spec: SourceSpec, listing: Listing) -> Iterator[ImageReference | ListedReject]:
    """Yields the images of files of records, `data_batch_1.bin#17` by name.

    The split is "train" or "test", by the file's name.

    Raises:
      UsageError: a file holds no whole number of records.
    """
    form = spec.records
    if form is None:
        raise UsageError("--layout=fixed needs --record_shape, such as 3x32x32 for CIFAR")
    record_bytes = form.record_bytes or form.pixel_bytes + (spec.labels_from != "none")
    for name, file in find_files(spec.patterns, listing):
        if not name.lower().endswith(".bin"):
            listing.pass_over("no_image_extension", name)
            continue
        if file.size == OUTSIDE:
            yield outside_reject(name, file.path)
            continue
        if not file.size or file.size % record_bytes:
            raise UsageError(
                f"--input {file.path} has {file.size} bytes, which are not records of "
                f"{record_bytes}: the file is cut, or --record_shape or --record_bytes is wrong"
            )
        listing.on_file(*file)
        split = _split(name)
        labels = _labels(file.path, record_bytes, spec)
        for number, label in enumerate(labels):
            entry = Entry(
                f"{name}#{number}", file.path, "idx",
                (number + 1) * record_bytes - form.pixel_bytes, form.pixel_bytes,
                shape=form.shape, modified_ns=file.modified_ns,
            )  # fmt: skip
            if label is not None and spec.labels and label >= len(spec.labels):
                detail = f"{label}, and --labels has {len(spec.labels)}"
                yield ListedReject(entry.name, "unknown_label", detail)
                continue
            text = () if label is None else (spec.labels[label] if spec.labels else str(label),)
            item = make_reference(spec, entry, labels=text, split=split)
            if isinstance(item, ImageReference) and form.is_planar:
                item = replace(item, image=replace(item.image, is_planar=True))
            yield item


def _split(name: str) -> str:
    stem = name.rpartition("/")[2].lower()
    return "test" if "test" in stem else "train" if re.search("train|data_batch", stem) else ""


def _labels(path: str, record_bytes: int, spec: SourceSpec) -> Iterator[int | None]:
    """Yields the label of each record, None where labels are not asked for."""
    step = max(1, _BLOCK_BYTES // record_bytes) * record_bytes
    at = spec.records.label_offset if spec.records else 0
    try:
        with files.open_read(path) as handle:
            while block := handle.read(step):
                if spec.labels_from == "none":
                    yield from [None] * (len(block) // record_bytes)
                else:
                    yield from block[at::record_bytes]
    except OSError as error:
        raise UsageError(f"--input {path} cannot be read: {error}") from error
