"""PyPI's `tfrecord` package, and through it the form of DALI's index files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from .conftest import Count, ForeignCalls, ForeignError
from .rows import our_columns, same_rows
from .trees import COUNT, SIZE

READER = "tfrecord package, with index files"


def shards_with_index(dataset: Path) -> list[tuple[str, str]]:
    index = dataset / "_meta/index/train"
    paths = sorted((dataset / "train").iterdir())
    return [(str(path), str(index / f"{path.stem}.idx")) for path in paths]


def test_text(foreign: ForeignCalls, bert_dataset: Path, count: Count) -> None:
    ours = our_columns(bert_dataset)
    features = {
        name: "float" if column.dtype == np.float32 else "int" for name, column in ours.items()
    }
    call = {"shards": shards_with_index(bert_dataset), "features": features, "parts": 3}
    (found,) = foreign.run("tfrecord_package", call)
    assert not isinstance(found, ForeignError), found
    count(READER, bert_dataset, len(found["input_ids"]), "text bert")
    assert same_rows(found, ours, list(ours))


def test_images(foreign: ForeignCalls, write_images: Callable[..., Path], count: Count) -> None:
    size = f"--image_size={SIZE[0]}x{SIZE[1]}"
    dataset = write_images("classification", "--format=raw", size)
    features = {"image": "byte", "label": "int"}
    call = {"shards": shards_with_index(dataset), "features": features, "parts": 2}
    (found,) = foreign.run("tfrecord_package", call)
    assert not isinstance(found, ForeignError), found
    count(READER, dataset, len(found["label"]), "classes, raw pixels")
    assert found["image"].reshape(len(found["image"]), -1).shape == (COUNT, SIZE[0] * SIZE[1] * 3)
    assert sorted(found["label"].reshape(-1).tolist()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
