"""Which images go into which shard: references in order of their hash, cut into equal parts.

A unit is one copy of one image. References stand in files of some hundred lines, by rank; unit t of
a split with N images in C copies is copy t % C of rank (t // C + (t % C) * N // C) % N: the copies
of an image are spread evenly over the split, and any range of units is a random sample of it.
Shards are ranges of units, and tasks parts of shards, so neither their number nor the workers show
in the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from recordmill.transforms import files
from recordmill.transforms.image_references import ImageReference
from recordmill.transforms.lines import Int64s

ROWS_PER_FILE = 512
_TOLERANCE = 0.05  # how much shards may differ in bytes


@dataclass(frozen=True, slots=True)
class ImageSplit:
    """The shards of a split.

    Attributes:
      name: of the split.
      images: in it.
      copies: records of each image.
      bounds: `[num_shards + 1]`: the unit that each shard begins with, and the end.
    """

    name: str
    images: int
    copies: int
    bounds: tuple[int, ...]

    @property
    def shards(self) -> int:
        """Their number."""
        return len(self.bounds) - 1

    def part(self, shard: int, part: int, parts: int) -> range:
        """Returns the units of one of the equal parts of a shard."""
        begin, end = self.bounds[shard], self.bounds[shard + 1]
        return range(
            begin + (end - begin) * part // parts, begin + (end - begin) * (part + 1) // parts
        )

    def place(self, unit: int) -> tuple[int, int]:
        """Returns the rank of a unit's image, and which copy of it the unit is."""
        slot, copy = divmod(unit, self.copies)
        return (slot + copy * self.images // self.copies) % self.images, copy


def _path(work: str, split: int, number: int) -> str:
    return files.join(work, "images", f"split-{split}", f"images-{number:06d}.jsonl")


def write_references(work: str, split: int, number: int, lines: Iterable[str]) -> None:
    """Writes a file of references: those from rank `number * ROWS_PER_FILE` on."""
    text = "".join(f"{line}\n" for line in lines)
    files.write_bytes(_path(work, split, number), text.encode())


class ReferenceFiles:
    """Reads references by rank; one file per copy is held, for each copy walks on by itself."""

    def __init__(self, work: str, split: int) -> None:
        self._work = work
        self._split = split
        self._held: dict[int, tuple[int, list[bytes]]] = {}

    def read(self, rank: int, copy: int) -> ImageReference:
        """Returns the reference of a rank."""
        number, row = divmod(rank, ROWS_PER_FILE)
        if self._held.get(copy, (-1, []))[0] != number:
            content = files.read_bytes(_path(self._work, self._split, number))
            self._held[copy] = (number, content.split(b"\n"))
        return ImageReference.from_line(self._held[copy][1][row].decode())


def read_units(
    work: str, split: int, plan: ImageSplit, units: range
) -> Iterator[tuple[ImageReference, int]]:
    """Yields the image of each unit, and which copy of it is meant, in [0, copies)."""
    references = ReferenceFiles(work, split)
    for unit in units:
        rank, copy = plan.place(unit)
        yield references.read(rank, copy), copy


def choose_bounds(weights: Int64s, copies: int, shards: int) -> list[int]:
    """Returns the units that shards begin with, and the end.

    By number, so that shards differ by one unit at most; by weight where that would let them differ
    by more than 5 % in bytes.

    Args:
      weights: `[num_images]`: the expected bytes of a record of each, by rank.
      copies: of each image.
      shards: their number, at most the number of units.
    """
    images = len(weights)
    by_number = [images * copies * shard // shards for shard in range(shards + 1)]
    starts = [copy * images // copies for copy in range(copies)]
    slots = sum((np.roll(weights, -start) for start in starts), np.zeros(images, np.int64))
    ends = np.cumsum(slots)
    bytes_at = _Cumulated(weights, starts, ends)
    sizes = np.diff([bytes_at(unit) for unit in by_number])
    total = int(ends[-1])
    if not total or sizes.max() - sizes.min() <= _TOLERANCE * total / shards:
        return by_number
    by_weight = [bytes_at.unit(total * shard // shards) for shard in range(shards)]
    by_weight.append(images * copies)
    for shard in range(1, shards):  # every shard gets a unit, however large its neighbours' are
        low, high = by_weight[shard - 1] + 1, images * copies - (shards - shard)
        by_weight[shard] = min(max(by_weight[shard], low), high)
    return by_weight


class _Cumulated:
    """The bytes before a unit, and the unit at so many bytes."""

    def __init__(self, weights: Int64s, starts: list[int], ends: Int64s) -> None:
        self._weights = weights
        self._starts = starts
        self._ends = ends

    def _inside(self, slot: int) -> Int64s:
        ranks = [(slot + start) % len(self._weights) for start in self._starts]
        return np.concatenate([[0], np.cumsum(self._weights[ranks])])

    def __call__(self, unit: int) -> int:
        slot, copy = divmod(unit, len(self._starts))
        before = int(self._ends[slot - 1]) if slot else 0
        return before + (int(self._inside(slot)[copy]) if copy else 0)

    def unit(self, wanted: int) -> int:
        """Returns the unit whose beginning is nearest."""
        slot = int(np.searchsorted(self._ends, wanted, side="right"))
        if slot == len(self._ends):
            return slot * len(self._starts)
        before = int(self._ends[slot - 1]) if slot else 0
        copy = int(np.abs(self._inside(slot) - (wanted - before)).argmin())
        return slot * len(self._starts) + copy


def splits_to_json(splits: Iterable[ImageSplit]) -> list[dict[str, Any]]:
    """Returns what `splits_from_json` reads."""
    return [{n: getattr(s, n) for n in ("name", "images", "copies", "bounds")} for s in splits]


def splits_from_json(content: list[dict[str, Any]]) -> list[ImageSplit]:
    """Reads what `splits_to_json` returned."""
    return [ImageSplit(**{**split, "bounds": tuple(split["bounds"])}) for split in content]
