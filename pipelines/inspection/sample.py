"""Sums over some records of a dataset, for what its statistics do not hold."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.pipelines.inspection.contents import IMAGES, LABELS, label_of
from recordmill.pipelines.inspection.example_lines import is_image
from recordmill.pipelines.inspection.feature_sums import FeatureSums, add_features
from recordmill.pipelines.inspection.image_sheet import boxes_of
from recordmill.pipelines.inspection.label_check import image_features
from recordmill.pipelines.inspection.record_files import Record, RecordFiles
from recordmill.pipelines.inspection.record_values import record_values
from recordmill.pipelines.inspection.token_form import UNKNOWN_FORM, TokenForm, form_of
from recordmill.pipelines.inspection.token_lines import row_length, token_features

HEAT_CELLS = 32
_DECODED_IMAGES = 300  # of a split; decoding is what takes time
_THUMBNAIL = 160
_AROUND = range(-3, 4)  # positions beside a predicted one, where masks may be instead
_NEARLY_EMPTY = 8  # a row is, with at most so small a part of its tokens
_OBJECT_LABELS = ("objects/label", "image/object/class/label")


@dataclass(frozen=True, slots=True)
class Look:
    """What an image with one label looks like: the label, the name of its record,
    `image_features`, and a small picture."""

    label: int
    name: str
    features: npt.NDArray[np.float32]
    picture: Image.Image


@dataclass(slots=True)
class SplitSample:
    """Sums over some records of a split.

    Attributes:
      records: that were read.
      lengths: number of tokens -> records.
      row_lengths: positions in all rows, padding included.
      tokens: token id, or text -> how often it is there.
      row_bounds: the shortest and the longest row.
      nearly_empty: rows of which at most an eighth is tokens.
      predicted: positions to predict; `kept` of them hold the token to predict.
      around: -3 to 3 -> the tokens that many positions after a predicted one.
      classes: class number -> records, or objects.
      objects: number of objects -> images.
      boxes: `[num_boxes, 4]`, (ymin, xmin, ymax, xmax) in [0, 1].
      sizes: (width, height) of each image whose header was read.
      channels: mean and standard deviation of each channel, in [0, 1], of each decoded image.
      looks: label, record name, features and a small picture of images with one label.
      form: of the rows of tokens.
      features: name -> sums over its values.
    """

    records: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    row_lengths: int = 0
    tokens: Counter[Any] = field(default_factory=Counter)
    row_bounds: tuple[int, int] = (0, 0)
    nearly_empty: int = 0
    predicted: int = 0
    kept: int = 0
    around: dict[int, Counter[int]] = field(default_factory=dict)
    classes: Counter[int] = field(default_factory=Counter)
    objects: Counter[int] = field(default_factory=Counter)
    boxes: list[npt.NDArray[np.float32]] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    channels: list[npt.NDArray[np.float32]] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    form: TokenForm = UNKNOWN_FORM
    features: dict[str, FeatureSums] = field(default_factory=dict)

    def add(self, record: Record, values: Mapping[str, Any]) -> None:
        """Adds a record."""
        self.records += 1
        add_features(self.features, values)
        rows = token_features(values, self.form)
        if rows:
            self._add_tokens(values, rows[0])
        for name in LABELS:
            given = values.get(name, ())
            if len(given) and not isinstance(given, list):
                # What each token predicts is no class of the record.
                of_tokens = any(len(given) == len(values[row]) > 1 for row in rows)
                if given.dtype.kind == "i" and not of_tokens:
                    self.classes.update(given.tolist())
                break
        self._add_image(record, values)

    def _add_tokens(self, values: Mapping[str, Any], name: str) -> None:
        row = values[name]
        length = row_length(values, name)
        self.lengths[length] += 1
        self.row_lengths += len(row)
        self.tokens.update(row[:length] if isinstance(row, list) else row[:length].tolist())
        shortest, longest = self.row_bounds
        self.row_bounds = (min(shortest or len(row), len(row)), max(longest, len(row)))
        self.nearly_empty += length * _NEARLY_EMPTY <= len(row)
        if not isinstance(row, list):
            self._add_masks(values, row)

    def _add_masks(self, values: Mapping[str, Any], row: npt.NDArray[np.int64]) -> None:
        hidden = values.get("masked_lm_ids", ())
        weights = values.get("masked_lm_weights", np.ones(len(hidden)))
        positions = values.get("masked_lm_positions", ())
        for position, expected, weight in zip(positions, hidden, weights, strict=False):
            if not weight or not 0 <= position < len(row):
                continue
            self.predicted += 1
            self.kept += int(row[position]) == int(expected)
            for offset in _AROUND:
                if 0 <= position + offset < len(row):
                    found = self.around.setdefault(offset, Counter())
                    found[int(row[position + offset])] += 1

    def mask_token(self, mask_id: int | None) -> tuple[int | None, dict[int, float]]:
        """Returns the id of [MASK], and its share of the tokens -3 to 3 after predicted positions.

        Args:
          mask_id: of the vocabulary; None takes the token that is on half of the positions at one
            of these distances, as no word is.

        Returns:
          None and {} where no token is so frequent, or nothing is predicted.
        """
        if not self.predicted:
            return None, {}
        if mask_id is None:
            best = max(self.around.values(), key=lambda some: max(some.values()))
            mask_id, count = best.most_common(1)[0]
            if 2 * count < self.predicted:
                return None, {}
        shares = {o: some[mask_id] / self.predicted for o, some in self.around.items()}
        return mask_id, dict(sorted(shares.items()))

    def _add_image(self, record: Record, values: Mapping[str, Any]) -> None:
        stored = next((values[name] for name in IMAGES if name in values), None)
        if isinstance(stored, list) and stored and is_image(stored[0]):
            try:
                with Image.open(io.BytesIO(stored[0])) as image:
                    self.sizes.append(image.size)
                    if len(self.channels) < _DECODED_IMAGES:
                        image.draft("RGB", (_THUMBNAIL, _THUMBNAIL))
                        self._add_pixels(record, image.convert("RGB"), label_of(values))
            except Exception:
                pass
        boxes = boxes_of(values)
        for name in _OBJECT_LABELS:
            if name in values:
                self.classes.update(int(number) for number in values[name])
                self.objects[len(values[name])] += 1
                self.boxes.append(boxes)

    def _add_pixels(self, record: Record, image: Image.Image, label: int | None) -> None:
        image.thumbnail((2 * _THUMBNAIL, 2 * _THUMBNAIL), Image.Resampling.BOX)
        pixels = np.asarray(image, np.float32) / 255
        self.channels.append(np.stack([pixels.mean((0, 1)), pixels.std((0, 1))]))
        if label is not None:
            features = image_features(image)
            image.thumbnail((_THUMBNAIL, _THUMBNAIL))
            self.looks.append(Look(label, record.name, features, image))

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
    records: RecordFiles, count: int
) -> tuple[dict[str, SplitSample], list[tuple[Record, dict[str, Any]]]]:
    """Returns sums over about `count` records from all over the dataset, and 24 of them.

    Args:
      records: of a dataset.
      count: of the records that are read, in all splits; 0 reads the 24 alone.

    Raises:
      RunError: a record is broken.
    """
    samples: dict[str, SplitSample] = {}
    shown: list[tuple[Record, dict[str, Any]]] = []
    form = form_of(records.manifest, None)
    for split in records.splits:
        sample = samples[split] = SplitSample(form=form)
        wanted = max(SHOWN, count // len(records.splits))
        spread: list[tuple[Record, dict[str, Any]]] = []
        every = 1
        for i, record in enumerate(records.some_records(split, wanted)):
            values = record_values(record, any_form=records.any_form)
            sample.add(record, values)
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
