"""Images of a PCollection to files: their bytes one after the other, and a row for each image.

A bundle of images appends their bytes to a pack, and a row to a file of rows beside it: where the
bytes are, and the annotations. From then on such images are like those of a listing, and
the shards of both are built alike: they are decoded once, while shards are built, and whatever an
image becomes (copies, other sizes) is made of bytes that are stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import orjson

from recordmill.records.errors import RunError, WrongElementError
from recordmill.records.hashing import fingerprint64, mix64, seed_for
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.element_sink import ElementSpool, SpoolFile
from recordmill.transforms.elements import Image
from recordmill.transforms.images.image_elements import read_label, read_object, store_data
from recordmill.transforms.images.image_job import ImageJob
from recordmill.transforms.images.image_spec import ImageSpec
from recordmill.transforms.images.references import (
    ImageObject,
    ImageReference,
    Storage,
    StoredBytes,
    box_sides,
)
from recordmill.transforms.images.shard_cutting import expected_record_bytes
from recordmill.transforms.sources.item_cutting import gather
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row

ORDER_PURPOSE = "images"
_READ_BYTES = 1 << 26
_REJECT = ""  # the key of rows of rejects: they sort before all images


class CollectedImage(NamedTuple):
    """An image in a file of rows.

    Attributes:
      name: the key of the image.
      labels: the names of classes that occur in it.
      regions, masks: whether it has objects with pixels, or a mask image.
      record_bytes: the expected size of one of its records.
      line: its reference as JSON.
      split, group: of the element, "" for none.
    """

    name: str
    labels: list[str]
    regions: bool
    masks: bool
    record_bytes: int
    line: str
    split: str
    group: str


class CollectedReject(NamedTuple):
    """An image that cannot be used: its key, the reason and what was found."""

    name: str
    reason: str
    detail: str


class UnusableImageError(Exception):
    """An image lacks the annotation that the task needs.

    Attributes:
      reason: a key of `rejects.REASONS`.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class ImageSpool(ElementSpool):
    """Writes images: rows to a file, and their bytes to a pack beside it.

    Args:
      job: the job.
      need_splits: an image that names no split is a reject.
    """

    def __init__(self, job: ImageJob, *, need_splits: bool = False) -> None:
        self._job = job
        self._spec = job.images
        self._seed = np.uint64(seed_for(job.seed, ORDER_PURPOSE))
        self._need_splits = need_splits

    def begin(self, path: str, opened: ExitStack) -> None:
        """Begins a file and its pack."""
        self._rows = opened.enter_context(files.writing(path))
        self._pack_path, self._at = f"{path}.bin", 0
        self._pack = opened.enter_context(files.writing(self._pack_path))

    def add(self, elements: list[Any]) -> int:
        """Writes images.

        Raises:
          WrongElementError: one is none, or its label is of the wrong kind for the task.
        """
        before = self._at
        for image in elements:
            self._rows.write(orjson.dumps(self._row(image)) + b"\n")
        counters.count("images_read", len(elements))
        return self._at - before

    def _row(self, image: Image) -> list[object]:
        if not isinstance(image, Image):
            raise WrongElementError(
                "WriteImages takes recordmill.transforms.Image, got "
                f"{type(image).__name__}; map elements to Image(data, key=..., label=...) first"
            )
        stored, data = store_data(image.data)
        content = hashlib.blake2b(data, digest_size=16)
        content.update(repr(stored.shape).encode())
        name = _name(image, content.hexdigest())
        try:
            self._check_split(image)
            reference = ImageReference(
                name, stored, split=image.split or "", group=_storable(image.group or "")
            )
            reference = _annotated(reference, image, self._spec)
        except UnusableImageError as error:
            return [_REJECT, name, error.reason, str(error)]
        content.update(reference.to_line().encode())
        reference = replace(reference, image=self._store(stored, data))
        if image.mask is not None and self._spec.task == "segmentation":
            stored, data = store_data(image.mask)
            content.update(data)
            reference = reference.with_mask(self._store(stored, data))
        key = int(mix64(np.array([fingerprint64(name.encode())], np.uint64) ^ self._seed)[0])
        labels, regions = _class_names(reference, self._spec)
        row = CollectedImage(
            name, labels, regions, reference.mask is not None,
            expected_record_bytes(self._spec, reference), reference.to_line(),
            reference.split, reference.group,
        )  # fmt: skip
        # Images of one key are in order of their content, not of the bundles that wrote them.
        return [f"{key:016x}", f"{name}\0{content.hexdigest()}", *row]

    def _check_split(self, image: Image) -> None:
        """Checks that an image is of a split of the dataset.

        Raises:
          UnusableImageError: it is not.
        """
        if image.split is None and not self._need_splits:
            return
        names = [split.name for split in self._job.splits]
        if image.split not in names:
            detail = f"split={image.split!r:.80}, where WriteImages has {', '.join(names)}"
            raise UnusableImageError("no_split", detail)

    def _store(self, stored: StoredBytes, data: bytes) -> StoredBytes:
        """Appends bytes to the pack; returns where they are."""
        self._pack.write(data)
        at, self._at = self._at, self._at + len(data)
        storage: Storage = "idx" if stored.storage == "idx" else "range"
        return replace(stored, path=self._pack_path, storage=storage, offset=at, size=len(data))


def read_rows(job: ImageJob, spooled: Iterable[SpoolFile]) -> Iterator[Row]:
    """Yields the rows of all bundles; `parse_row` reads their contents. Memory: some megabytes.

    Raises:
      RunError: a file is missing or cut.
    """
    for group in gather(spooled, lambda each: each.size_bytes, _READ_BYTES):
        for each, lines in zip(group, _lines_of(job, group), strict=True):
            count = 0
            for line in lines:
                count += 1
                key, tag, *content = orjson.loads(line)
                yield key, tag, content
            if count != each.elements:
                raise RunError(
                    f"{each.path(job)} is cut short; check the storage and run the pipeline again"
                )


def _lines_of(job: ImageJob, group: list[SpoolFile]) -> Iterator[Iterable[bytes]]:
    """Yields the lines of each file: of a large one as it is read, small ones are read at once."""
    try:
        if len(group) == 1:
            with files.open_read(group[0].path(job)) as handle:
                yield handle
            return
        for data in files.map_files(files.read_bytes, (each.path(job) for each in group)):
            yield data.splitlines()
    except FileNotFoundError as error:
        raise RunError(
            f"{error.filename} is missing; check the storage and run the pipeline again"
        ) from error


def parse_row(row: Row) -> CollectedImage | CollectedReject:
    """Returns what a row is of."""
    key, name, content = row
    if key == _REJECT:
        return CollectedReject(name, *content)
    return CollectedImage(*content)


def _name(image: Image, content: str) -> str:
    """Returns the key of an image, or what stands for it: the hash of its data."""
    return content if image.key is None else _storable(image.key)


def _storable(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise WrongElementError(
            f"Image.key and Image.group must be text that UTF-8 can hold, got {name!r}"
        ) from error
    return name


def _annotated(reference: ImageReference, image: Image, spec: ImageSpec) -> ImageReference:
    """Returns a reference with the annotations of an image that the task asks for.

    Raises:
      UnusableImageError: they are not known, or cannot be used.
      WrongElementError: the label is of the wrong kind for the task.
    """
    if spec.task == "classification":
        return replace(reference, labels=() if spec.unlabeled else _labels(image, spec))
    objects = _objects(image)
    if spec.task == "detection":
        if image.boxes is None:
            detail = "boxes=None: they are not known; () is an image without objects"
            raise UnusableImageError("no_label", detail)
        return replace(reference, objects=objects)
    # Boxes without pixels say nothing of a segmentation; no box at all is an image of background.
    drawn = tuple(item for item in objects if item.region)
    known = image.mask is not None or (image.boxes is not None and len(drawn) == len(objects))
    return replace(reference, objects=drawn, has_mask=known)


def _labels(image: Image, spec: ImageSpec) -> tuple[str, ...]:
    if image.label is None:
        raise UnusableImageError("no_label", "label=None")
    return tuple(dict.fromkeys(read_label(image.label, numbers=spec.numbers)))


def _objects(image: Image) -> tuple[ImageObject, ...]:
    objects = tuple(map(read_object, image.boxes or ()))
    for item in objects:
        try:
            box_sides(item.box or ())
        except ValueError as error:
            raise UnusableImageError("bad_row", f"the box {item.box}: {error}") from error
    return objects


def _class_names(reference: ImageReference, spec: ImageSpec) -> tuple[list[str], bool]:
    """Returns the names of classes, and whether there are objects with pixels."""
    if spec.task == "classification":
        return ([] if spec.numbers else list(reference.labels)), False
    names = dict.fromkeys(item.label for item in reference.objects if item.label)
    return list(names), any(item.region for item in reference.objects)
