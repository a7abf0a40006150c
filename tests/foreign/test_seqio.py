"""seqio: our datasets as the caches of its tasks, with `use_cached=True`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ..conftest import SharedFolder, run_text
from .conftest import Answer, Count, ForeignCalls, ForeignError, promised

LENGTH = 80  # more than any feature has
NAMING = "--naming=seqio"
SPLITS = ("--splits=train:0.8,validation:0.2", "--num_shards=3", "--dupe_factor=1")
FEATURES = {"t5": ["inputs", "targets"], "gpt": ["targets"], "t5_tokens": ["targets"]}
Write = Callable[..., Path]


def call(dataset: Path, task: str, split: str = "train", **others: Any) -> dict[str, Any]:
    """A seqio task is called as its folder."""
    return {
        "folder": str(dataset.parent), "task": dataset.name, "split": split,
        "features": FEATURES[task], "length": LENGTH, **others,
    }  # fmt: skip


@pytest.fixture(scope="module")
def cache(shared_folder: SharedFolder, corpus: Path, vocab_file: str) -> Write:
    """Writes the cache of a task, once."""

    def write(task: str) -> Path:
        def fill(folder: Path) -> None:
            source = (f"--input={corpus}/*.txt", f"--vocab_file={vocab_file}")
            form = ("--format=seqio",) if task == "gpt" else ()
            preset = ("--preset=seqio-t5",) if task == "t5" else (f"--task={task}", *form, NAMING)
            flags = (f"--output={folder}/{task}", *preset, *SPLITS)
            assert run_text(*source, "--max_seq_length=64", *flags) == 0

        return shared_folder(f"seqio-{task}", fill) / task

    return write


def written(dataset: Path, split: str, name: str) -> np.ndarray:
    """Returns `[rows, LENGTH]` of a feature by plain protobuf, in order of the shards."""
    rows = []
    paths = sorted(str(path) for path in dataset.glob(f"{split}.tfrecord-*"))
    for record in tf.data.TFRecordDataset(paths).as_numpy_iterator():
        values = tf.train.Example.FromString(record).features.feature[name].int64_list.value
        rows.append(np.pad(np.array(values), (0, LENGTH - len(values))))
    return np.stack(rows)


def keys(answer: Answer, names: list[str]) -> list[bytes]:
    rows = zip(*(answer[name].astype(np.int64) for name in names), strict=True)
    return sorted(b"".join(part.tobytes() for part in row) for row in rows)


@pytest.mark.parametrize("task", FEATURES)
def test_a_task_reads_every_record(
    task: str, seqio_folder: Path, foreign: ForeignCalls, cache: Write, count: Count
) -> None:
    dataset = cache(task)
    names, splits = FEATURES[task], ("train", "validation")
    answers = foreign.run(
        "seqio_task", *(call(dataset, task, split, counts=True) for split in splits),
        checkout=seqio_folder,
    )  # fmt: skip
    for split, answer in zip(splits, answers, strict=True):
        assert not isinstance(answer, ForeignError), answer
        count("seqio, use_cached=True", dataset, len(answer["targets"]), f"text {task}", split)
        assert answer["stats/examples"] == promised(dataset, split)
        cached, counted = (
            {name.removeprefix(by): n for name, n in answer.items() if name.startswith(by)}
            for by in ("stats/", "seqio/")
        )
        assert len(cached) == 1 + 2 * len(names)
        assert cached == counted
        assert {answer[name].dtype for name in names} == {np.dtype(np.int32)}
        ours = {name: written(dataset, split, name) for name in names}
        assert keys(answer, names) == keys(ours, names)


def test_hosts_share_the_shards_and_t5_gets_its_features(
    seqio_folder: Path, foreign: ForeignCalls, cache: Write
) -> None:
    """What a host of T5X is given: a part of the split, and what the model takes."""
    dataset = cache("t5")
    calls = [call(dataset, "t5", shard=[index, 3]) for index in range(3)]
    calls.append(call(dataset, "t5", converter="EncDecFeatureConverter"))
    *parts, model = foreign.run("seqio_task", *calls, checkout=seqio_folder)
    assert not isinstance(model, ForeignError), model
    names = FEATURES["t5"]
    assert all(len(part["inputs"]) for part in parts)
    found = {name: np.concatenate([part[name] for part in parts]) for name in names}
    ours = {name: written(dataset, "train", name) for name in names}
    assert keys(found, names) == keys(ours, names)
    renamed = {"inputs": model["encoder_input_tokens"], "targets": model["decoder_target_tokens"]}
    assert keys(renamed, names) == keys(ours, names)
