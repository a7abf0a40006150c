"""Statistics that builders collect of the images they write: counts, sizes and classes, by shard.

Means and deviations of pixels are another pass, `channel_statistics.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from recordmill.records.state import Count
from recordmill.transforms.dataset.content_sample import ContentSample
from recordmill.transforms.dataset.rejects import RejectFile
from recordmill.transforms.images.columns import Prepared
from recordmill.transforms.images.image_spec import NO_CLASS
from recordmill.transforms.images.mask_classes import class_name
from recordmill.transforms.images.masks import Mask


class ImageStatistics(msgspec.Struct, kw_only=True):
    """Sums over images; those of parts add up to those of the whole.

    Attributes:
      counts: name -> a number to add.
      classes: class -> images that have it; for detection, objects.
      mask_images: number of a class in masks -> images that have it.
      mask_pixels: the same -> its pixels.
      pixels: log2 of the pixels of an image, rounded down -> images.
      sides: name -> least and most, of height and width.
      rejected: reason -> images.
      rejected_files: the files that hold them.
      contents: of the images, each once however many of its copies are written.
    """

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    classes: Counter[str] = msgspec.field(default_factory=Counter)
    mask_images: Counter[str] = msgspec.field(default_factory=Counter)
    mask_pixels: Counter[str] = msgspec.field(default_factory=Counter)
    pixels: Counter[str] = msgspec.field(default_factory=Counter)
    sides: dict[str, tuple[Count, Count]] = {}
    rejected: Counter[str] = msgspec.field(default_factory=Counter)
    rejected_files: list[RejectFile] = []
    contents: ContentSample = msgspec.field(default_factory=ContentSample)

    def add(self, image: Prepared) -> None:
        """Adds a record."""
        self.counts.update(image.counts)
        size = image.data.nbytes if isinstance(image.data, np.ndarray) else len(image.data)
        self.counts.update(height_sum=image.height, width_sum=image.width, image_bytes=size)
        if image.objects:
            self.counts["objects"] += len(image.objects)
        self.classes.update(name for name, _ in image.labels if name)
        self.classes.update(item.label for item in image.objects)
        if image.mask is not None:
            self.counts["masks"] += 1
            self._add_mask(image.mask)
        self.pixels[str(max(image.height * image.width, 1).bit_length() - 1)] += 1
        for name, side in (("height", image.height), ("width", image.width)):
            self._widen(name, side, side)

    def _add_mask(self, mask: Mask) -> None:
        pixels = Image.fromarray(mask).histogram()  # a third of the time of numpy's bincount
        present = {str(number): count for number, count in enumerate(pixels) if count}
        self.mask_pixels.update(present)
        self.mask_images.update(present.keys())
        self.counts["masks_without_object"] += not present.keys() - {"0", str(NO_CLASS)}

    @property
    def last_mask_class(self) -> int:
        """The highest class in masks, 0 without any."""
        return max((int(n) for n in self.mask_pixels if int(n) != NO_CLASS), default=0)

    def _widen(self, name: str, least: int, most: int) -> None:
        known = self.sides.get(name, (least, most))
        self.sides[name] = min(known[0], least), max(known[1], most)

    def merge(self, other: ImageStatistics) -> None:
        """Adds the sums of others."""
        self.counts.update(other.counts)
        self.classes.update(other.classes)
        self.mask_images.update(other.mask_images)
        self.mask_pixels.update(other.mask_pixels)
        self.pixels.update(other.pixels)
        for name, (least, most) in other.sides.items():
            self._widen(name, least, most)
        self.rejected.update(other.rejected)
        self.rejected_files += other.rejected_files
        self.contents.merge(other.contents)

    def summarize(self, examples: int, names: Sequence[str] = ()) -> dict[str, Any]:
        """Returns the content of `statistics.json` for a split.

        Args:
          examples: their number.
          names: of the classes 0, 1, …, for those of masks.
        """
        counts = dict(self.counts)
        content: dict[str, Any] = {
            "examples": examples,
            "images": self.contents.items,
            "images_all_alike": self.contents.all_alike,
            "classes": dict(sorted(self.classes.items())),
        }
        if self.mask_pixels:
            numbers = sorted(self.mask_pixels, key=int)
            for key, sums in (("classes", self.mask_images), ("class_pixels", self.mask_pixels)):
                content[key] = {class_name(names, int(n)): sums[n] for n in numbers}
        content["bytes_per_image"] = round(counts.pop("image_bytes", 0) / max(examples, 1), 1)
        for name, (least, most) in sorted(self.sides.items()):
            mean = counts.pop(f"{name}_sum") / max(examples, 1)
            content[name] = {"min": least, "max": most, "mean": round(mean, 1)}
        content["log2_pixels"] = dict(sorted(self.pixels.items(), key=lambda item: int(item[0])))
        return content | dict(sorted(counts.items()))
