"""PyPI's `tfrecord` (vahidk), without TensorFlow: it reads by DALI's index files."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from exchange import serve, stack


def prepare(_: str) -> None:
    pass


def read(shards: list[tuple[str, str]], features: dict[str, str], parts: int) -> dict[str, Any]:
    """Returns the rows of pairs of shard and index, each read in several parts."""
    from tfrecord import reader

    rows = stack(
        {name: _array(row[name]) for name in features}
        for shard, index in shards
        for part in range(parts)
        for row in reader.tfrecord_loader(shard, index, features, shard=(part, parts))
    )
    if "tensorflow" in sys.modules:
        raise RuntimeError("the package must do without TensorFlow")
    return rows


def _array(value: Any) -> np.ndarray:
    return np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)


if __name__ == "__main__":
    serve(prepare, read)
