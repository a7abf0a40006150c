"""Datasets with planted faults, and the same ones without, for tests of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recordmill.records.codec.encoding import Strings
from recordmill.records.schema import Feature, Schema
from recordmill.records.text_formats import bert

from ...pictures import jpeg
from ...reader.small_datasets import write_dataset

BERT = bert(max_seq_length=64, max_predictions_per_seq=10)
PHOTOS = Schema(
    (
        Feature("image", "bytes", (), "the image", kind="image", image_shape=(None, None, 3)),
        Feature("label", "int64", (), "the class", kind="classes", classes=("cat", "dog", "owl")),
    )
)


def rows(first: int, count: int, *, shift: int = 0, empty: bool = False) -> dict[str, Any]:
    """Rows of 60 tokens, of which every sixth is predicted: 80 % hold token 4, 10 % are kept.

    Args:
      first, count: which rows.
      shift: added to the positions of masks.
      empty: every other row has two tokens.
    """
    draws = np.random.default_rng(first)
    ids = draws.integers(10, 1000, (count, 64))
    ids[:, 60:] = 0
    positions = np.tile(np.arange(1, 60, 6), (count, 1))
    hidden = np.take_along_axis(ids, positions, 1)
    kinds = np.tile(np.arange(10), (count, 1))
    masked = np.select([kinds < 8, kinds == 8], [4, 5], hidden)
    np.put_along_axis(ids, positions, masked, 1)
    weights = np.ones(hidden.shape, np.float32)
    if empty:
        weights[::2, 1:] = 0
        ids[::2, 2:] = 0
    return {
        "input_ids": ids,
        "input_mask": (ids > 0).astype(np.int64),
        "segment_ids": np.zeros_like(ids),
        "masked_lm_positions": positions + shift,
        "masked_lm_ids": hidden,
        "masked_lm_weights": weights,
        "next_sentence_labels": np.zeros((count, 1), np.int64),
    }


def photos(first: int, count: int, *, swapped: int = 0) -> dict[str, Any]:
    """Photos of three classes, each with colours of its own under noise.

    Args:
      first, count: which photos.
      swapped: so many have the label of the next class.
    """
    labels = np.arange(first, first + count) % 3
    images = [jpeg_of(i, int(label)) for i, label in enumerate(labels, first)]
    labels[:swapped] = (labels[:swapped] + 1) % 3
    return {"image": Strings.from_list(images), "label": labels}


def jpeg_of(number: int, label: int) -> bytes:
    """A photo whose upper part has the colour of its class."""
    import io

    from PIL import Image

    draws = np.random.default_rng(number)
    pixels = draws.integers(0, 150, (48, 40 + number % 9, 3))
    pixels[:24, :, label] += 90
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(out, "JPEG")
    return out.getvalue()


def right_text(folder: Path) -> Path:
    """Without a fault."""
    return _text(folder, [rows(0, 300), rows(1, 300)], [rows(2, 200)])


def shifted_masks(folder: Path) -> Path:
    """Masks one position too far."""
    return _text(folder, [rows(0, 300, shift=1), rows(1, 300, shift=1)], [rows(2, 200, shift=1)])


def empty_rows(folder: Path) -> Path:
    """Half of the rows are padding."""
    return _text(folder, [rows(0, 300, empty=True), rows(1, 300, empty=True)], [rows(2, 200)])


def twin_shards(folder: Path) -> Path:
    """A shard is there twice."""
    return _text(folder, [rows(0, 300), rows(0, 300)], [rows(2, 200)])


def leak(folder: Path) -> Path:
    """1 % of validation are records of train."""
    train, validation = rows(1, 300), rows(2, 200)
    for name, values in validation.items():
        values[50:52] = train[name][7:9]
    return _text(folder, [rows(0, 300), train], [validation])


def _text(folder: Path, train: list[dict[str, Any]], validation: list[dict[str, Any]]) -> Path:
    return write_dataset(folder, {"train": train, "validation": validation}, BERT)


def right_images(folder: Path) -> Path:
    """Without a fault."""
    return write_dataset(folder, {"train": [photos(0, 150)], "test": [photos(150, 50)]}, PHOTOS)


def swapped_labels(folder: Path) -> Path:
    """A tenth of the images has another label."""
    shards = {"train": [photos(0, 150, swapped=15)], "test": [photos(150, 50, swapped=5)]}
    return write_dataset(folder, shards, PHOTOS)


def two_labels(folder: Path) -> Path:
    """Images are there twice, with another label: in their split, and in the other one."""
    train, test = photos(0, 150), photos(150, 50)
    images = [jpeg(seed=i, width=50) for i in range(50)]
    return write_dataset(
        folder,
        {
            "train": [train, photos(0, 4, swapped=4)],
            "test": [test, {"image": Strings.from_list(images), "label": np.arange(50) % 3}],
        },
        PHOTOS,
    )
