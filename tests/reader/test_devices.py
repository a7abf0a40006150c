from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.reader import distribute, load, prefetch_to_device
from recordmill.records.errors import UsageError

from .small_datasets import ids, write_numbers


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("ds"), [25, 15])


def numbers_only(features, keys):
    return {"id": features["id"]}


def test_one_device(path: Path) -> None:
    dataset = load(path, "train", batch_size=8, shuffle=False, transform=numbers_only)
    batches = list(prefetch_to_device(dataset))
    assert ids(batches) == list(range(40))
    assert "CPU:0" in batches[0]["id"].device


def test_a_strategy(path: Path) -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    batches = distribute(
        strategy, path, "train", global_batch_size=8, shuffle=False, transform=numbers_only
    )
    found = [strategy.experimental_local_results(batch["id"]) for batch in batches]
    assert [i for values in found for i in values[0].numpy()] == list(range(40))


def test_replicas_share_equally(path: Path) -> None:
    strategy = tf.distribute.get_strategy()

    class Three:
        num_replicas_in_sync = 3

        def __getattr__(self, name: str) -> object:
            return getattr(strategy, name)

    with pytest.raises(UsageError, match="must be a multiple of the 3 replicas, got 8"):
        distribute(Three(), path, "train", global_batch_size=8)
