"""Sums over some records of a dataset, for what its statistics do not hold."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.pipelines.inspection.example_lines import is_image
from recordmill.pipelines.inspection.image_sheet import boxes_of
from recordmill.pipelines.inspection.record_files import Record, RecordFiles
from recordmill.pipelines.inspection.token_lines import row_length, token_features
from recordmill.reader.examples import parse_any
from recordmill.records.errors import RunError

HEAT_CELLS = 32
_DECODED_IMAGES = 100  # of a split; decoding is what takes time
_IMAGES = ("image", "image/encoded")
_LABELS = ("label", "labels", "image/class/label", "label_ids")
_OBJECT_LABELS = ("objects/label", "image/object/class/label")


@dataclass(slots=True)
class SplitSample:
    """Sums over some records of a split.

    Attributes:
      records: that were read.
      lengths: number of tokens -> records.
      row_lengths: positions in all rows, padding included.
      tokens: token id, or text -> how often it is there.
      hidden: how often a predicted position holds [MASK], another token, or the token to predict.
      classes: class number -> records, or objects.
      objects: number of objects -> images.
      boxes: `[num_boxes, 4]`, (ymin, xmin, ymax, xmax) in [0, 1].
      sizes: (width, height) of each image whose header was read.
      channels: mean and standard deviation of each channel, in [0, 1], of each decoded image.
      contents: digest of each record's image, or of its bytes -> the number of its first record.
      repeated: records whose content another one before them has.
    """

    records: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    row_lengths: int = 0
    tokens: Counter[Any] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    classes: Counter[int] = field(default_factory=Counter)
    objects: Counter[int] = field(default_factory=Counter)
    boxes: list[npt.NDArray[np.float32]] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    channels: list[npt.NDArray[np.float64]] = field(default_factory=list)
    contents: dict[bytes, int] = field(default_factory=dict)
    repeated: int = 0

    def add(self, record: Record, values: Mapping[str, Any], mask_id: int | None) -> None:
        """Adds a record."""
        self.records += 1
        self._add_content(record, values)
        rows = token_features(values)
        if rows:
            self._add_tokens(values, rows[0], mask_id)
        for name in _LABELS:
            if len(values.get(name, ())) and not isinstance(values[name], list):
                if values[name].dtype.kind == "i":
                    self.classes.update(values[name].tolist())
                break
        self._add_image(values)

    def _add_content(self, record: Record, values: Mapping[str, Any]) -> None:
        stored = next((values[name] for name in _IMAGES if name in values), None)
        content = stored[0] if isinstance(stored, list) and stored else record.data
        digest = hashlib.blake2b(content, digest_size=16).digest()
        self.repeated += digest in self.contents
        self.contents.setdefault(digest, record.number)

    def _add_tokens(self, values: Mapping[str, Any], name: str, mask_id: int | None) -> None:
        row = values[name]
        length = row_length(values, name)
        self.lengths[length] += 1
        self.row_lengths += len(row)
        self.tokens.update(row[:length] if isinstance(row, list) else row[:length].tolist())
        hidden = values.get("masked_lm_ids", ())
        weights = values.get("masked_lm_weights", np.ones(len(hidden)))
        positions = values.get("masked_lm_positions", ())
        if mask_id is None or isinstance(row, list):
            return
        for position, expected, weight in zip(positions, hidden, weights, strict=False):
            if weight and position < len(row):
                found = int(row[position])
                kind = "masked" if found == mask_id else "replaced"
                self.hidden["kept" if found == expected else kind] += 1

    def _add_image(self, values: Mapping[str, Any]) -> None:
        stored = next((values[name] for name in _IMAGES if name in values), None)
        if isinstance(stored, list) and stored and is_image(stored[0]):
            try:
                with Image.open(io.BytesIO(stored[0])) as image:
                    self.sizes.append(image.size)
                    if len(self.channels) < _DECODED_IMAGES:
                        image.draft("RGB", (128, 128))
                        pixels = np.asarray(image.convert("RGB"), np.float64) / 255
                        self.channels.append(np.stack([pixels.mean((0, 1)), pixels.std((0, 1))]))
            except Exception:
                pass
        boxes = boxes_of(values)
        for name in _OBJECT_LABELS:
            if name in values:
                self.classes.update(int(number) for number in values[name])
                self.objects[len(values[name])] += 1
                self.boxes.append(boxes)

    @property
    def all_boxes(self) -> npt.NDArray[np.float32]:
        """All boxes, `[num_boxes, 4]`."""
        return np.concatenate([*self.boxes, np.zeros((0, 4), np.float32)])

    def heat_map(self) -> npt.NDArray[np.int64]:
        """Returns how many boxes cover each of 32 x 32 cells of the image."""
        heat = np.zeros((HEAT_CELLS + 1, HEAT_CELLS + 1), np.int64)
        cells = np.clip(np.round(self.all_boxes * HEAT_CELLS), 0, HEAT_CELLS).astype(int)
        for top, left, bottom, right in cells:  # corners of a two-dimensional running sum
            heat[top, left] += 1
            heat[bottom, right] += 1
            heat[top, right] -= 1
            heat[bottom, left] -= 1
        return heat.cumsum(0).cumsum(1)[:-1, :-1]


def read_sample(
    records: RecordFiles, count: int, mask_id: int | None
) -> tuple[dict[str, SplitSample], list[tuple[Record, dict[str, Any]]]]:
    """Returns sums over about `count` records from all over the dataset, and 24 of them.

    Args:
      records: of a dataset.
      count: of the records that are read, in all splits; 0 reads the 24 alone.
      mask_id: the id of [MASK], None where it is not known.

    Raises:
      RunError: a record is broken.
    """
    samples: dict[str, SplitSample] = {}
    shown: list[tuple[Record, dict[str, Any]]] = []
    for split in records.splits:
        sample = samples[split] = SplitSample()
        wanted = max(SHOWN, count // len(records.splits))
        spread: list[tuple[Record, dict[str, Any]]] = []
        every = 1
        for i, record in enumerate(records.some_records(split, wanted)):
            try:
                values = parse_any(record.data)
            except ValueError as error:
                raise RunError(
                    f"{record.file}: record {record.position} cannot be read: {error}; see what "
                    "else is broken with `recordmill verify`"
                ) from error
            sample.add(record, values, mask_id)
            if i % every == 0:
                spread.append((record, values))
            if len(spread) == 2 * SHOWN:  # so few are kept, however many there will be
                spread, every = spread[::2], 2 * every
        most = min(_shown_of(records, split), len(spread))
        shown += [spread[i * len(spread) // most] for i in range(most)]
    return samples, shown


SHOWN = 24


def _shown_of(records: RecordFiles, split: str) -> int:
    """Returns how many of the records that are shown are of a split: half of them of the first."""
    splits = list(records.splits)
    if len(splits) == 1:
        return SHOWN
    first = max(records.splits, key=lambda name: sum(f.file_bytes for f in records.splits[name]))
    return SHOWN // 2 if split == first else SHOWN // 2 // (len(splits) - 1)


def shared_contents(samples: Mapping[str, SplitSample]) -> list[tuple[str, str, int]]:
    """Returns pairs of splits, and how many contents of their samples both have."""
    names = list(samples)
    shared = []
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            both = len(samples[one].contents.keys() & samples[other].contents.keys())
            if both:
                shared.append((one, other, both))
    return shared
