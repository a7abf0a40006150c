"""Comparing what a foreign reader gave with what ours gives, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

Columns = Mapping[str, npt.NDArray[np.generic]]


def our_columns(dataset: Path, split: str = "train") -> dict[str, np.ndarray]:
    """Returns `[records, ...]` of each feature of a split in written order, by our reader."""
    from recordmill.reader import load

    batches = list(load(dataset, split, batch_size=1, shuffle=False).as_numpy_iterator())
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def row_keys(columns: Columns, names: list[str]) -> list[bytes]:
    """Returns the bytes of each row, as float64, in order."""
    parts = [np.asarray(columns[name]) for name in names]
    flat = [part.reshape(len(part), -1).astype(np.float64) for part in parts]
    return [row.tobytes() for row in np.concatenate(flat, axis=1)]


def same_rows(found: Columns, ours: Columns, names: list[str]) -> bool:
    """Returns whether both hold the same rows, each as often, in any order."""
    return sorted(row_keys(found, names)) == sorted(row_keys(ours, names))
