"""Plan the shards of images: references in order of their hash, cut into equal parts.

An example slot is the position of one record in a split: it holds one copy of one image. In a split
of N images in C copies, slot t holds copy t % C of the image of rank
(t // C + (t % C) * N // C) % N. So the copies of an image are spread evenly over the split, and any
range of slots is a random sample of it. Shards are ranges of slots, and work items are parts of
shards, so neither the number of shards nor the number of workers changes the order of the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.state import MAX_INT64, Count
from recordmill.transforms.dataset.rejects import RejectFile
from recordmill.transforms.images.reference_files import ReferenceFiles
from recordmill.transforms.images.references import ImageReference

_TOLERANCE = 0.05  # how much shards may differ in bytes


class ImageSplit(msgspec.Struct, frozen=True):
    """The shards of a split.

    Attributes:
      name: of the split.
      images: the number of its images.
      copies: records of each image.
      bounds: `[num_shards + 1]`: the first slot of each shard, and the end.
    """

    name: str
    images: Count
    copies: Annotated[int, msgspec.Meta(ge=1, le=MAX_INT64)]
    bounds: tuple[Count, ...]

    @property
    def num_shards(self) -> int:
        """The number of shards."""
        return len(self.bounds) - 1

    def part_slots(self, shard: int, part: int, parts: int) -> range:
        """Returns the slots of one of the equal parts of a shard."""
        begin, end = self.bounds[shard], self.bounds[shard + 1]
        return range(
            begin + (end - begin) * part // parts, begin + (end - begin) * (part + 1) // parts
        )

    def locate(self, slot: int) -> tuple[int, int]:
        """Returns the rank of the image in a slot, and which copy of it, in [0, copies)."""
        group, copy = divmod(slot, self.copies)
        return (group + copy * self.images // self.copies) % self.images, copy

    def read_slots(self, references: ReferenceFiles, slots: range) -> Iterator[ImageCopy]:
        """Yields what each slot holds."""
        for slot in slots:
            rank, copy = self.locate(slot)
            yield references.read(rank, copy), copy


ImageCopy = tuple[ImageReference, int]  # an image, and which copy of it, in [0, copies)


class ImageShardPlan(msgspec.Struct, frozen=True):
    """The shards of all splits and the counts of listing: the file `ImageJob.shard_plan_path`.

    Attributes:
      splits: the shards of each split.
      rejected: inputs that listing rejected, by reason.
      rejected_file: their lines; None where nothing was rejected.
      passed_over: files of the input that are no images, by reason.
      passed_over_kinds: the same by extension or reason: their number and one of their names.
      parts: how many work items share a shard, where the stages do not say it.
    """

    splits: tuple[ImageSplit, ...]
    rejected: Mapping[str, Count] = {}
    rejected_file: RejectFile | None = None
    passed_over: Mapping[str, Count] = {}
    passed_over_kinds: Mapping[str, tuple[Count, str]] = {}
    parts: Annotated[int, msgspec.Meta(ge=1, le=MAX_INT64)] = 1


def choose_bounds(record_bytes: Int64s, copies: int, shards: int) -> list[int]:
    """Returns the first slot of each shard, and the end.

    Shards get equal numbers of slots, so that they differ by one record at most; where that would
    let them differ by more than 5 % in bytes, they get equal bytes.

    Args:
      record_bytes: `[num_images] int64`: the expected bytes of a record of each image, by rank.
      copies: of each image.
      shards: their number, at most the number of slots.
    """
    images = len(record_bytes)
    by_count = [images * copies * shard // shards for shard in range(shards + 1)]
    slot_bytes = _SlotBytes(record_bytes, copies)
    sizes = np.diff([slot_bytes.before(slot) for slot in by_count])
    total = slot_bytes.total
    if not total or sizes.max() - sizes.min() <= _TOLERANCE * total / shards:
        return by_count
    by_size = [slot_bytes.slot_at(total * shard // shards) for shard in range(shards)]
    by_size.append(images * copies)
    for shard in range(1, shards):  # every shard gets a slot, however large its neighbours' are
        low, high = by_size[shard - 1] + 1, images * copies - (shards - shard)
        by_size[shard] = min(max(by_size[shard], low), high)
    return by_size


class _SlotBytes:
    """The bytes before each slot, in memory for the images only, not for all of their copies.

    A group is `copies` neighbouring slots, one of each copy; group g holds the ranks g + start.

    Args:
      record_bytes: `[num_images] int64`, by rank.
      copies: of each image.
    """

    def __init__(self, record_bytes: Int64s, copies: int) -> None:
        images = len(record_bytes)
        self._record_bytes = record_bytes
        self._starts = [copy * images // copies for copy in range(copies)]
        groups = sum(
            (np.roll(record_bytes, -start) for start in self._starts), np.zeros(images, np.int64)
        )
        self._group_ends = np.cumsum(groups)

    @property
    def total(self) -> int:
        """The bytes of all slots."""
        return int(self._group_ends[-1])

    def before(self, slot: int) -> int:
        """Returns the bytes before a slot."""
        group, copy = divmod(slot, len(self._starts))
        return self._group_begin(group) + (int(self._within(group)[copy]) if copy else 0)

    def slot_at(self, wanted_bytes: int) -> int:
        """Returns the slot that begins nearest to so many bytes."""
        copies = len(self._starts)
        group = int(np.searchsorted(self._group_ends, wanted_bytes, side="right"))
        if group == len(self._group_ends):
            return group * copies
        offset = wanted_bytes - self._group_begin(group)
        return group * copies + int(np.abs(self._within(group) - offset).argmin())

    def _group_begin(self, group: int) -> int:
        return int(self._group_ends[group - 1]) if group else 0

    def _within(self, group: int) -> Int64s:
        """Returns `[copies + 1] int64`: the bytes before each slot of a group, and its end."""
        ranks = [(group + start) % len(self._record_bytes) for start in self._starts]
        return np.concatenate([[0], np.cumsum(self._record_bytes[ranks])])
