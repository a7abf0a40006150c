"""The input of an image job as planning needs it: images in order of their hash, and sums."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from recordmill.pipelines.planning.planner import Inventory
from recordmill.records.hashing import fingerprint64, mix64
from recordmill.transforms.dataset.error_budget import RejectList
from recordmill.transforms.dataset.rejects import Reject, RejectFile
from recordmill.transforms.images.extensions import has_image_extension
from recordmill.transforms.images.image_job import ImageJob
from recordmill.transforms.images.listing.joins import Listed
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.shard_cutting import UNKNOWN_BYTES
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage.external_sort import Row, sort_rows

BATCH_ROWS = 1024  # rows whose hashes are computed at a time
_MOST_LISTED_SOURCES = 1000  # the manifest names the images of inputs up to this size


class RankedImage(NamedTuple):
    """An image of the input; its position in the order of hashes is its rank.

    Attributes:
      name: see `ImageReference`.
      line: its reference as JSON.
      split: the split that the input names, "" where it names none.
      group: the hash that a drawn split depends on.
      record_bytes: the expected size of one of its records.
    """

    name: str
    line: str
    split: str
    group: int
    record_bytes: int


class RejectLog(RejectList):
    """Rejects of listing, with an example of each reason.

    Listing goes on over the budget: its table bounds it, the plan needs all, and what is over the
    budget is listed once there is a workspace.
    """

    def __init__(self, job: ImageJob) -> None:
        super().__init__(replace(job, max_rejected=1.0), 0)
        self.first: dict[str, str] = {}  # reason -> the least of the names
        self._details: dict[str, str] = {}  # reason -> what was found there

    def __enter__(self) -> RejectLog:
        return self

    def describe(self) -> str:
        """Returns the reasons with their numbers, and one name with what was found for each."""
        return "; ".join(
            f"{reason} {count} (such as {self.first[reason]}"
            + (f": {self._details[reason]})" if self._details[reason] else ")")
            for reason, count in self.reasons.items()
        )

    def add_listed(self, item: ListedReject) -> None:
        """Adds a reject."""
        if item.reason not in self.first or item.source < self.first[item.reason]:
            self.first[item.reason], self._details[item.reason] = item.source, item.detail
        self.add([Reject(item.source, item.position, "list", item.reason, item.detail)])

    def write_for(self, job: ImageJob) -> RejectFile | None:
        """Writes the list to the workspace of the planned job; None without rejects."""
        self._workspace = job.workspace
        return self.write() if self.reasons else None


@dataclass
class InputSummary:
    """Sums over the listed images.

    Attributes:
      task: of the job; it decides which names are labels.
      digest: of names, sizes and annotations, without paths: the input's part of the fingerprint.
      stamps: of the sizes and modification times of all files used.
      paths: of their paths.
      labels: all that occur.
      splits: split that the input names -> images; "" for those without.
      names: name -> bytes of the first images.
      segmented: images whose segmentation is known.
      mask_images: of these, images with a mask image.
      regions: of these, images with regions.
      same_stem: images whose names differ from another's in the extension only.
      images: their number.
      image_bytes: of image files whose size is known.
      input_bytes: the same, with a guess for those of unknown size.
    """

    task: str
    digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    stamps: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    paths: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    labels: set[str] = field(default_factory=set)
    splits: Counter[str] = field(default_factory=Counter)
    names: dict[str, int] = field(default_factory=dict)
    segmented: int = 0
    mask_images: int = 0
    regions: int = 0
    same_stem: int = 0
    images: int = 0
    image_bytes: int = 0
    input_bytes: int = 0
    _last_stem: str = ""

    def add_file(self, path: str, size: int, modified: int) -> None:
        """Adds a file that the listing uses."""
        self.stamps.update(f"{size}\t{modified}\n".encode())
        self.paths.update(f"{path}\n".encode("utf-8", "surrogateescape"))

    def add(self, image: ImageReference, line_without_paths: bytes) -> None:
        """Adds an image, in order of the listing."""
        size = max(image.image.size, 0)
        self.input_bytes += size if image.image.size >= 0 else UNKNOWN_BYTES
        self.digest.update(f"{image.name}\t{size}\t".encode() + line_without_paths + b"\n")
        if self.task == "classification":
            self.labels.update(image.labels)
            if has_image_extension(image.name):
                stem = image.name.rpartition(".")[0]
                self.same_stem += stem == self._last_stem
                self._last_stem = stem
        elif self.task == "detection":
            self.labels.update(item.label for item in image.objects if item.label)
        else:
            drawn = {name for name, _ in image.regions}
            drawn |= {item.label for item in image.objects if item.region}
            self.labels.update(drawn)
            self.segmented += image.has_mask or image.mask is not None or bool(drawn)
            self.mask_images += image.mask is not None
            self.regions += bool(drawn)
        self.splits[image.split] += 1
        self.images += 1
        self.image_bytes += size
        if len(self.names) <= _MOST_LISTED_SOURCES:
            self.names[image.name] = size

    def sources(self) -> dict[str, Any]:
        """Returns the manifest's description of the input; it names the images where few."""
        content = {
            "images": self.images,
            "bytes": self.image_bytes,
            "checksum": self.digest.hexdigest(),
        }
        few = self.images <= _MOST_LISTED_SOURCES
        return content | ({"names": self.names} if few else {})


@dataclass(frozen=True, slots=True)
class ImageInventory(Inventory):
    """The images of an input, and its rejects.

    Attributes:
      images: in order of their hash; can be iterated once.
      rejects: of listing.
      summary: sums over the images.
      passed_over: files that are no input, by reason.
      passed_over_kinds: the same by extension or reason: their number and one of their names.
      packs: the ranges of rows that each pack of images in columns is of.
    """

    images: Iterator[RankedImage]
    rejects: RejectLog
    summary: InputSummary
    passed_over: dict[str, int]
    passed_over_kinds: dict[str, tuple[int, str]]
    packs: list[list[SourceRange]] = field(default_factory=list)

    @property
    def paths(self) -> str:
        """See `Inventory`."""
        return self.summary.paths.hexdigest()


def rank_images(
    listed: Iterable[Listed],
    summary: InputSummary,
    rejects: RejectLog,
    *,
    seed: int,
    record_bytes: Callable[[ImageReference], int],
) -> Iterator[RankedImage]:
    """Yields the listed images in order of their hash, through temporary files where many.

    The first item is yielded once everything is listed: then `summary` and `rejects` are complete.

    Args:
      listed: images and rejects.
      summary: images are added to it.
      rejects: rejects are added to it.
      seed: of the order.
      record_bytes: returns the expected size of a record of an image.
    """

    def rows() -> Iterator[Row]:
        images = _without_rejects(listed, rejects)
        while batch := list(islice(images, BATCH_ROWS)):
            names = [fingerprint64(image.name.encode()) for image in batch]
            keys = mix64(np.array(names, np.uint64) ^ np.uint64(seed)).tolist()
            for image, name, key in zip(batch, names, keys, strict=True):
                lines = image.to_lines()
                summary.add(image, lines.without_paths)
                group = fingerprint64(image.group.encode()) if image.group else name
                content = (lines.line, image.split, group, record_bytes(image))
                yield f"{key:016x}", image.name, content

    for _, name, content in sort_rows(rows()):
        yield RankedImage(name, *content)


def _without_rejects(listed: Iterable[Listed], rejects: RejectLog) -> Iterator[ImageReference]:
    for item in listed:
        if isinstance(item, ListedReject):
            rejects.add_listed(item)
        else:
            yield item


class AssignedImage(NamedTuple):
    """An image with its split.

    Attributes:
      split: the number of its split.
      record_bytes: the expected size of one of its records.
      line: its reference as JSON.
    """

    split: int
    record_bytes: int
    line: str
