"""The contents of a sample of images or documents, which tell whether splits share some of them.

Whether a content is in the sample follows from its checksum or hash, so all splits sample the same
contents: what two splits share shows up in both. The sample has a bounded size. For images their
number is known before, and with it how many checksums to take; of documents those with the least
hashes are kept, a bottom-k sketch (Cohen and Kaplan 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import google_crc32c
import msgspec
import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import U64
from recordmill.records.state import Count

_SAMPLED_IMAGES = 20_000  # of a dataset, about
_HASHES = 1 << 32
_KEPT_HASHES = 8192  # of documents, in each split


class ContentSample(msgspec.Struct):
    """Contents by a checksum of their bytes.

    Attributes:
      items: images or documents that were added.
      first, last: the least and the greatest key of images; equal where all are alike.
      names: checksum and size, or hash, as text -> how many sampled items have it, and the least
        of their names.
      limit: keys above it were left out; "" for none.
    """

    items: Count = 0
    first: str = ""
    last: str = ""
    names: dict[str, tuple[Count, str]] = {}
    limit: str = ""

    def add(self, name: str, data: bytes, *, of_images: int) -> None:
        """Adds an image of a dataset of so many."""
        # Of 20,000 contents, two have one checksum and one size once in 100,000 datasets. It takes
        # some microseconds, where a hash without collisions would take a twentieth of the job.
        checksum = google_crc32c.value(data)
        key = f"{checksum:08x}{len(data):x}"
        names = {}
        if checksum * of_images < _SAMPLED_IMAGES * _HASHES:
            names[key] = (1, name)
        self.merge(ContentSample(1, key, key, names))

    def add_documents(self, hashes: U64, source: str, positions: Int64s) -> None:
        """Adds documents; those with the least hashes are kept.

        Args:
          hashes: `[num_documents] uint64`, of their texts.
          source: the name of the file that they are in.
          positions: `[num_documents] int64`: bytes from its beginning.
        """
        self.add_named(hashes, lambda i: f"{source} at position {positions[i]}")

    def add_named(self, hashes: U64, name: Callable[[int], str]) -> None:
        """Adds documents as `add_documents` does; `name` is asked of those that are kept."""
        self.items += len(hashes)
        chosen = np.arange(len(hashes))
        if self.limit:
            chosen = np.flatnonzero(hashes <= np.uint64(int(self.limit, 16)))
        for number in chosen.tolist():
            self._add_name(f"{hashes[number]:016x}", 1, name(number))
        if len(self.names) > 2 * _KEPT_HASHES:
            self.keep_least()

    def keep_least(self) -> None:
        """Leaves out all but the least hashes of documents; the result is that of any order."""
        if len(self.names) > _KEPT_HASHES:
            keys = sorted(self.names)[:_KEPT_HASHES]
            self.limit = keys[-1]
            self.names = {key: self.names[key] for key in keys}

    def _add_name(self, key: str, count: int, name: str) -> None:
        known, first = self.names.get(key, (0, name))
        self.names[key] = (known + count, min(first, name))

    def merge(self, other: ContentSample) -> None:
        """Adds the items of others."""
        if not other.items:
            return
        self.first = min(self.first or other.first, other.first)
        self.last = max(self.last, other.last)
        self.items += other.items
        self.limit = min(self.limit or other.limit, other.limit or self.limit)
        for key, (count, name) in other.names.items():
            self._add_name(key, count, name)
        if self.limit:
            self.names = {key: found for key, found in self.names.items() if key <= self.limit}

    def sampled(self, limit: str = "") -> int:
        """Returns the number of items in the sample with a key up to a limit."""
        names = self.names.items()
        return sum(count for key, (count, _) in names if not limit or key <= limit)

    @property
    def all_alike(self) -> bool:
        """Whether there are several images, and the bytes of all are the same."""
        return self.items > 1 and self.first == self.last


def shared_contents(
    samples: Mapping[str, ContentSample], kind: str = "images"
) -> list[dict[str, Any]]:
    """Returns for each two splits how many items of the smaller one are also in the other.

    Args:
      samples: of each split: of images with the same `of_images`, of documents any.
      kind: "images" or "documents".
    """
    found = []
    for names in combinations(samples, 2):
        larger, smaller = sorted(names, key=lambda name: samples[name].items, reverse=True)
        here, there = samples[smaller].names, samples[larger].names
        both = sorted((here[key][1], there[key][1]) for key in here.keys() & there.keys())
        if both:
            # Beyond the least limit one of the two lacks what it may have.
            limits = (samples[smaller].limit, samples[larger].limit)
            count = sum(here[key][0] for key in here.keys() & there.keys())
            found.append(
                {
                    "splits": [smaller, larger],
                    kind: count,
                    "of_sampled": samples[smaller].sampled(min(filter(None, limits), default="")),
                    "first": list(both[0]),
                }
            )
    return found
