"""TensorFlow Datasets over what it did not write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Count, ForeignCalls, ForeignError
from .rows import our_columns, same_rows
from .trees import COUNT, SIZE, mask_of, objects_of

READER = "TFDS builder_from_directory"
Write = Callable[..., Path]


def test_text(foreign: ForeignCalls, bert_dataset: Path, count: Count) -> None:
    splits = ("train", "validation")
    calls = [{"folder": str(bert_dataset), "split": split} for split in splits]
    for split, found in zip(splits, foreign.run("tfds_reader", *calls), strict=True):
        assert not isinstance(found, ForeignError), found
        ours = our_columns(bert_dataset, split)
        count(READER, bert_dataset, len(found["input_ids"]), "text bert", split)
        assert same_rows(found, ours, list(ours))


def test_classified_text(foreign: ForeignCalls, write_rows: Write, count: Count) -> None:
    """As a supervised pair too: the input is a dict of what BERT reads."""
    dataset = write_rows("--text_pair_field=other")
    call: dict[str, Any] = {"folder": str(dataset), "split": "train"}
    found, pair = foreign.run("tfds_reader", call, {**call, "as_supervised": True})
    assert not isinstance(found, ForeignError), found
    assert not isinstance(pair, ForeignError), pair
    count(READER, dataset, len(found["input_ids"]), "text classify, pairs")
    ours = our_columns(dataset)
    assert same_rows(found, ours, list(ours))
    inputs = ["input_ids", "input_mask", "segment_ids"]
    assert set(pair) == {*(f"0/{name}" for name in inputs), "1"}
    named = {name: pair[f"0/{name}"] for name in inputs} | {"label_ids": pair["1"]}
    assert same_rows(named, ours, [*inputs, "label_ids"])


@pytest.fixture
def datasets(write_images: Write) -> dict[str, Path]:
    tasks = {"classification": (), "detection": ("--format=tfds",), "segmentation": ()}
    return {task: write_images(task, *flags) for task, flags in tasks.items()}


def test_images(foreign: ForeignCalls, datasets: dict[str, Path], count: Count) -> None:
    calls = [{"folder": str(dataset), "split": "train"} for dataset in datasets.values()]
    found = dict(zip(datasets, foreign.run("tfds_reader", *calls), strict=True))
    for task, rows in found.items():
        assert not isinstance(rows, ForeignError), rows
        count(READER, datasets[task], len(rows["image"]), f"{task}, tfds")
        assert rows["image"].shape == (COUNT, *SIZE, 3)
    assert sorted(found["classification"]["label"].tolist()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    boxes = found["detection"]["objects/bbox"] * [*SIZE, *SIZE]
    assert Counter(tuple(np.round(box).tolist()) for row in boxes for box in row if box.any()) == (
        Counter(
            (y0, x0, y1, x1)
            for number in range(COUNT)
            for (x0, y0, x1, y1), _ in objects_of(number)
        )
    )
    masks = {"m": np.stack([mask_of(number) for number in range(COUNT)])}
    assert same_rows({"m": found["segmentation"]["segmentation_mask"]}, masks, ["m"])


@pytest.mark.parametrize("task", ["classification", "segmentation"])
def test_as_supervised(foreign: ForeignCalls, datasets: dict[str, Path], task: str) -> None:
    """The recipe of most tutorials: pairs for Keras."""
    call: dict[str, Any] = {"folder": str(datasets[task]), "split": "train", "as_supervised": True}
    (found,) = foreign.run("tfds_reader", call)
    assert not isinstance(found, ForeignError), found
    assert len(found["0"]) == len(found["1"]) == COUNT


def test_load_by_name(foreign: ForeignCalls, datasets: dict[str, Path], tmp_path: Path) -> None:
    """`tfds.load(name, data_dir=…)` finds the folder NAME/VERSION, as NAME and NAME:VERSION."""
    from recordmill.pipelines.command_line import main

    source = datasets["classification"].parent / "classification"
    output = tmp_path / "creatures/3.0.1"
    line = [f"--input={source}", f"--output={output}", "--direct_num_workers=1"]
    assert main(["images", *line]) == 0
    call = {"folder": str(tmp_path), "split": "train", "as_supervised": True}
    names = ("creatures", "creatures:3.0.1", "creatures/3.0.1")
    *read, refused = foreign.run("tfds_reader", *({**call, "name": name} for name in names))
    for found in read:
        assert not isinstance(found, ForeignError), found
        assert len(found["0"]) == COUNT
    assert isinstance(refused, ForeignError)
