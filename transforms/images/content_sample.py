"""The contents of a sample of images, which show whether splits share some of them.

An image is in the sample if the checksum of its bytes is, so all splits sample the same contents:
what two splits share shows up in both, and the sample of all shards together has a bounded size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import google_crc32c

_SAMPLED_IMAGES = 20_000  # of a dataset, about
_HASHES = 1 << 32


@dataclass(slots=True)
class ContentSample:
    """Contents by a checksum of their bytes.

    Attributes:
      images: that were added.
      first, last: the least and the greatest key; equal where all images are alike.
      names: checksum and size, as text -> how many sampled images have it, and the least of
        their names.
    """

    images: int = 0
    first: str = ""
    last: str = ""
    names: dict[str, tuple[int, str]] = field(default_factory=dict)

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

    def merge(self, other: ContentSample) -> None:
        """Adds the images of others."""
        if not other.images:
            return
        self.first = min(self.first or other.first, other.first)
        self.last = max(self.last, other.last)
        self.images += other.images
        for key, (count, name) in other.names.items():
            known, first = self.names.get(key, (0, name))
            self.names[key] = (known + count, min(first, name))

    @property
    def sampled(self) -> int:
        """The images in the sample."""
        return sum(count for count, _ in self.names.values())

    @property
    def all_alike(self) -> bool:
        """Whether there are several images, and the bytes of all are the same."""
        return self.images > 1 and self.first == self.last

    def to_json(self) -> list[Any]:
        """Returns what `from_json` reads."""
        return [self.images, self.first, self.last, self.names]

    @classmethod
    def from_json(cls, content: list[Any]) -> ContentSample:
        """Reads what `to_json` returned."""
        images, first, last, names = content
        return cls(images, first, last, {key: (count, n) for key, (count, n) in names.items()})


def shared_contents(samples: Mapping[str, ContentSample]) -> list[dict[str, Any]]:
    """Returns for each two splits how many images of the smaller one are also in the other.

    Args:
      samples: of each split, made with the same `of_images`.
    """
    shared = []
    for names in combinations(samples, 2):
        larger, smaller = sorted(names, key=lambda name: samples[name].images, reverse=True)
        here, there = samples[smaller].names, samples[larger].names
        both = sorted((here[key][1], there[key][1]) for key in here.keys() & there.keys())
        if both:
            count = sum(here[key][0] for key in here.keys() & there.keys())
            shared.append(
                {
                    "splits": [smaller, larger],
                    "images": count,
                    "of_sampled": samples[smaller].sampled,
                    "first": list(both[0]),
                }
            )
    return shared
