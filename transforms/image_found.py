"""What builders find in images, in sums that can be added up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recordmill.transforms.image_columns import Prepared


@dataclass(slots=True)
class ImageFound:
    """Sums over images; those of parts add up to those of the whole.

    Attributes:
      sums: name -> a number to add.
      classes: class -> images that have it; for detection, objects.
      pixels: log2 of the pixels of an image, rounded down -> images.
      sides: name -> least and most, of height and width.
      rejected: reason -> images.
      rejected_files: number, bytes and crc32c of each file of rejects.
    """

    sums: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    pixels: Counter[str] = field(default_factory=Counter)
    sides: dict[str, list[int]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    rejected_files: list[list[int]] = field(default_factory=list)

    def add(self, image: Prepared) -> None:
        """Adds a record."""
        self.sums.update(image.counts)
        size = image.data.nbytes if isinstance(image.data, np.ndarray) else len(image.data)
        self.sums.update(height_sum=image.height, width_sum=image.width, image_bytes=size)
        self.classes.update(name for name, _ in image.labels)
        self.classes.update(item.label for item in image.objects)
        self.pixels[str(max(image.height * image.width, 1).bit_length() - 1)] += 1
        for name, side in (("height", image.height), ("width", image.width)):
            self._widen(name, side, side)

    def _widen(self, name: str, least: int, most: int) -> None:
        known = self.sides.setdefault(name, [least, most])
        known[:] = [min(known[0], least), max(known[1], most)]

    def merge(self, other: ImageFound) -> None:
        """Adds the sums of others."""
        self.sums.update(other.sums)
        self.classes.update(other.classes)
        self.pixels.update(other.pixels)
        for name, (least, most) in other.sides.items():
            self._widen(name, least, most)
        self.rejected.update(other.rejected)
        self.rejected_files += other.rejected_files

    def to_json(self) -> dict[str, Any]:
        """Returns what `from_json` reads."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> ImageFound:
        """Reads what `to_json` returned."""
        counted = {name: Counter(content[name]) for name in ("sums", "classes", "pixels")}
        return cls(
            **counted,
            sides=content["sides"],
            rejected=Counter(content["rejected"]),
            rejected_files=content["rejected_files"],
        )

    def statistics(self, examples: int) -> dict[str, Any]:
        """Returns what `statistics.json` says of a split."""
        sums = dict(self.sums)
        found: dict[str, Any] = {
            "examples": examples,
            "classes": dict(sorted(self.classes.items())),
        }
        found["bytes_per_image"] = round(sums.pop("image_bytes", 0) / max(examples, 1), 1)
        for name, (least, most) in sorted(self.sides.items()):
            mean = sums.pop(f"{name}_sum") / max(examples, 1)
            found[name] = {"min": least, "max": most, "mean": round(mean, 1)}
        found["log2_pixels"] = dict(sorted(self.pixels.items(), key=lambda item: int(item[0])))
        return found | dict(sorted(sums.items()))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Counter) else value
