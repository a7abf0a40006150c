"""Images of a PCollection to files: their bytes one after the other, and a row for each image.

A bundle of images appends their bytes to packs, files of bounded size, and a row to a file of rows:
where the bytes are, and the annotations. From then on such images are like those of a listing, and
the shards of both are built alike: they are decoded once, while shards are built, and whatever an
image becomes (copies, other sizes) is made of bytes that are stored once.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
import orjson

from recordmill.records.errors import RunError
from recordmill.records.hashing import fingerprint64, mix64, seed_for
from recordmill.records.state import Count, decode, encode
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.bundles import (
    BundleWriter,
    Written,
    bundle_path,
    runs_folder,
)
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
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row

PACK_BYTES = 1 << 28
ORDER_PURPOSE = "images"
_BLOCK_BYTES = 1 << 20
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


class ImageCollector(BundleWriter):
    """Writes the images of bundles. Memory: those that it is given at once.

    Args:
      job: the job.
      pack_bytes: a pack is ended before it has more bytes, unless one image alone has.
      need_splits: an image that names no split is a reject.
    """

    def __init__(
        self, job: ImageJob, pack_bytes: int = PACK_BYTES, *, need_splits: bool = False
    ) -> None:
        self._job = job
        self._spec = job.images
        self._seed = np.uint64(seed_for(job.seed, ORDER_PURPOSE))
        self._pack_bytes = pack_bytes
        self._need_splits = need_splits

    def begin(self) -> None:
        """Begins a bundle, in files of its own."""
        self._base = bundle_path(self._job)
        self._opened_rows, self._opened_pack = ExitStack(), ExitStack()
        self._rows = self._opened_rows.enter_context(files.writing(rows_path(self._base)))
        self._pack: IO[bytes] | None = None
        self._pack_path = ""
        self._packs = self._at = self._images = 0

    def add(self, elements: list[Any]) -> None:
        """Writes images.

        Raises:
          TypeError: one is none, or its label is of the wrong kind for the task.
        """
        try:
            for image in elements:
                self._rows.write(orjson.dumps(self._row(image)) + b"\n")
        except BaseException as error:
            for opened in (self._opened_pack, self._opened_rows):  # which removes the files
                opened.__exit__(type(error), error, error.__traceback__)
            raise
        self._images += len(elements)

    def end(self) -> Written:
        """Ends the files of the bundle."""
        self._opened_pack.close()
        self._opened_rows.close()
        counters.count("images_read", self._images)
        return describe(self._base, self._images)

    def _row(self, image: Image) -> list[object]:
        if not isinstance(image, Image):
            raise TypeError(
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
        if self._pack is not None and self._at + len(data) > self._pack_bytes:
            self._opened_pack.close()
            self._pack = None
        if self._pack is None:
            self._at, self._pack_path = 0, f"{self._base}-{self._packs}.bin"
            self._packs += 1
            self._pack = self._opened_pack.enter_context(files.writing(self._pack_path))
        self._pack.write(data)
        at, self._at = self._at, self._at + len(data)
        storage: Storage = "idx" if stored.storage == "idx" else "range"
        return replace(stored, path=self._pack_path, storage=storage, offset=at, size=len(data))


class _Rows(msgspec.Struct, frozen=True):
    """What a bundle has written: its files without extension, and its images."""

    base: str
    images: Count


def rows_path(base: str) -> str:
    """Returns the file of rows of a bundle."""
    return f"{base}.rows"


def describe(base: str, images: int) -> Written:
    """Returns the description of what a bundle has written."""
    return Written(images, encode(_Rows(base.rpartition("/")[2], images), indent=None).decode())


def described_rows(job: ImageJob, text: str) -> tuple[str, int]:
    """Returns the file of rows of a description, and the number of rows."""
    found = decode(text, _Rows)
    return rows_path(files.join(runs_folder(job), found.base)), found.images


def merge_rows(job: ImageJob, texts: Sequence[str]) -> Written:
    """Writes the rows of several files to one; the packs stay where they are."""
    base = bundle_path(job)
    paths, counts = zip(*(described_rows(job, text) for text in texts), strict=True)
    with files.writing(rows_path(base)) as out:
        for path in paths:
            with files.open_read(path) as handle:
                shutil.copyfileobj(handle, out, _BLOCK_BYTES)
    return describe(base, sum(counts))


def read_rows(job: ImageJob, texts: Iterable[str]) -> Iterator[Row]:
    """Yields the rows of all bundles; `parse_row` reads their contents."""
    for text in texts:
        path, count = described_rows(job, text)
        with files.open_read(path) as handle:
            for line in handle:
                count -= 1
                key, tag, *content = orjson.loads(line)
                yield key, tag, content
        if count:
            raise RunError(f"{path} is cut short; check the storage and run the pipeline again")


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
        raise TypeError(
            f"Image.key and Image.group must be text that UTF-8 can hold, got {name!r}"
        ) from error
    return name


def _annotated(reference: ImageReference, image: Image, spec: ImageSpec) -> ImageReference:
    """Returns a reference with the annotations of an image that the task asks for.

    Raises:
      UnusableImageError: they are not known, or cannot be used.
      TypeError: the label is of the wrong kind for the task.
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
