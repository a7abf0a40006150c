"""Datasets of numbers, read as trainers do."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader import as_numpy, load
from recordmill.records.codec.encoding import Strings
from recordmill.records.errors import UsageError
from recordmill.records.schema import Feature, Schema

from .small_datasets import UNEVEN, ids, write_dataset, write_numbers


@pytest.mark.parametrize("shuffle", [True, False])
def test_shapes_and_cardinality_are_known(uneven: Path, shuffle: bool) -> None:
    dataset = load(uneven, "train", batch_size=16, shuffle=shuffle, epochs=2)
    assert dataset.element_spec == {
        "id": tf.TensorSpec([16], tf.int32),
        "row": tf.TensorSpec([16, 3], tf.int32),
        "text": tf.TensorSpec([16], tf.string),
    }
    assert int(dataset.cardinality()) == sum(1 for _ in dataset) == 12
    endless = load(uneven, "train", batch_size=16, epochs=None)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    assert len(ids(endless.take(20))) == 320


def test_unshuffled_is_the_written_order(uneven: Path) -> None:
    batches = list(load(uneven, "train", batch_size=8, shuffle=False, remainder="keep"))
    assert ids(batches) == list(range(107))
    assert [len(batch["id"]) for batch in batches] == [8] * 13 + [3]
    for batch in batches:
        assert batch["row"].numpy().tolist() == [[i, i + 1, i + 2] for i in batch["id"].numpy()]
        assert batch["text"].numpy().tolist() == [b"record %d" % i for i in batch["id"].numpy()]


@pytest.mark.parametrize("remainder", ["drop", "keep", "pad", "repeat"])
def test_seven_uneven_shards_three_workers(uneven: Path, remainder: Any) -> None:
    workers = [
        list(
            load(
                uneven, "train", batch_size=5, remainder=remainder,
                num_workers=3, worker_index=w, window_records=40,
            )
        )
        for w in range(3)
    ]  # fmt: skip
    assert len({len(batches) for batches in workers}) == 1
    assert len(workers[0]) == (7 if remainder == "drop" else 8)
    rows = Counter(i for batches in workers for i in ids(batches))
    if remainder == "drop":
        assert len(rows) == rows.total() == 105
    elif remainder == "repeat":
        assert set(rows) == set(range(107))
        assert rows.total() == 120
    elif remainder == "keep":
        assert rows == Counter(range(107))
    else:
        real = Counter(
            int(i)
            for batches in workers
            for batch in batches
            for i in np.asarray(batch["id"])[np.asarray(batch["row_mask"]) == 1]
        )
        assert real == Counter(range(107))
        assert rows.total() == 120
        assert workers[2][-1]["text"].numpy().tolist() == [b""] * 5


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(lambda s: sum(s) >= 30),
    batch=st.integers(1, 7),
    count=st.integers(1, 4),
    shuffle=st.booleans(),
    window=st.integers(1, 100),
)
def test_workers_share_an_epoch(
    tmp_path_factory: pytest.TempPathFactory, sizes, batch, count, shuffle, window
) -> None:
    path = write_numbers(tmp_path_factory.mktemp("shared"), sizes)
    more = {"shuffle": shuffle, "window_records": window, "parallel_calls": 1}
    workers = [
        ids(load(path, "train", batch_size=batch, num_workers=count, worker_index=w, **more))
        for w in range(count)
    ]
    together = [
        row
        for step in range(len(workers[0]) // batch)
        for rows in workers
        for row in rows[step * batch : (step + 1) * batch]
    ]
    assert together == ids(load(path, "train", batch_size=batch * count, **more))
    assert len(together) == len(set(together)) == sum(sizes) // (batch * count) * batch * count


def test_two_shards_on_three_workers(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "two", [10, 20])
    found = [
        ids(load(path, "train", batch_size=2, num_workers=3, worker_index=w)) for w in range(3)
    ]
    assert [len(rows) for rows in found] == [10, 10, 10]
    assert sorted(chain(*found)) == list(range(30))


def test_the_order_does_not_depend_on_parallel_calls(many: Path) -> None:
    def order(calls: int | None) -> list[int]:
        return ids(load(many, "train", batch_size=32, window_records=512, parallel_calls=calls))

    assert order(1) == order(2) == order(8) == order(None)


def test_each_epoch_and_seed_has_another_order(many: Path) -> None:
    def epoch(seed: int, start: int) -> list[int]:
        return ids(
            load(many, "train", batch_size=100, seed=seed, epochs=2, start_step=start).take(50)
        )

    first, second = epoch(1, 0), epoch(1, 50)
    assert sorted(first) == sorted(second) == list(range(5000))
    assert first != second
    assert first == epoch(1, 0)
    assert first != epoch(2, 0)
    whole = ids(load(many, "train", batch_size=100, seed=1, epochs=2))
    assert whole == first + second


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[:10]", range(10)),
        ("train[100:]", range(100, 107)),
        ("train[-5:]", range(102, 107)),
        ("train[:10%]", range(11)),
        ("train[10%:20%]", range(11, 21)),
        ("validation", range(107, 127)),
        ("train[104:]+validation[:2]", [104, 105, 106, 107, 108]),
        ("train[3:8]", range(3, 8)),
    ],
)
def test_parts_of_splits(uneven: Path, split: str, expected: Any) -> None:
    found = ids(load(uneven, split, batch_size=3, shuffle=False, remainder="keep"))
    assert found == list(expected)


def test_parts_of_splits_are_shuffled(uneven: Path) -> None:
    found = ids(load(uneven, "train[90:]+validation[:5]", batch_size=3, remainder="keep"))
    assert sorted(found) == [*range(90, 112)]
    assert found != sorted(found)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_shards(tmp_path: Path, uneven: Path, compression: str) -> None:
    path = write_numbers(tmp_path / "packed", UNEVEN, compression)
    assert ids(load(path, "train", batch_size=8, shuffle=False, remainder="keep")) == list(
        range(107)
    )
    more = {"window_records": 30, "epochs": 2, "seed": 3}
    whole = ids(load(path, "train", batch_size=6, **more))
    assert sorted(set(whole)) == list(range(107))
    late = ids(load(path, "train", batch_size=6, start_step=10, **more))
    assert late == whole[60:]
    workers = [
        ids(load(path, "train", batch_size=2, num_workers=3, worker_index=w, **more))
        for w in range(3)
    ]
    assert sorted(chain(*workers)) == sorted(whole)


def test_transforms_know_epoch_and_record(many: Path) -> None:
    def keep_keys(features: dict[str, Any], keys: tf.Tensor) -> dict[str, Any]:
        return {**features, "keys": keys}

    def double(features: dict[str, Any], keys: tf.Tensor) -> dict[str, Any]:
        return {**features, "twice": features["id"] * 2, "record": keys[:, 1]}

    dataset = load(
        many, "train", batch_size=32, epochs=2, num_workers=2, worker_index=1,
        transform=[keep_keys, double],
    )  # fmt: skip
    assert dataset.element_spec["keys"] == tf.TensorSpec([32, 2], tf.int64)
    for step, batch in enumerate(dataset):
        assert (batch["record"].numpy() == batch["id"].numpy()).all()
        assert (batch["twice"].numpy() == 2 * batch["id"].numpy()).all()
        assert set(batch["keys"].numpy()[:, 0]) == {step // 78}


def test_ragged_features_and_sequence_examples(tmp_path: Path) -> None:
    rows = [[], [5], [6, 7]] * 7
    splits = np.cumsum([0, *map(len, rows)])
    column = np.array([value for row in rows for value in row])
    from recordmill.records.codec.encoding import Ragged

    schema = Schema((Feature("id", "int64", (), ""), Feature("values", "int64", (None,), "")))
    path = write_dataset(
        tmp_path / "ragged",
        {"train": [{"id": np.arange(21), "values": Ragged(column, splits)}]},
        schema,
    )
    batches = list(as_numpy(load(path, "train", batch_size=4, shuffle=False, remainder="keep")))
    found = [
        batch["values"].values[low:high].tolist()
        for batch in batches
        for low, high in zip(
            batch["values"].row_splits[:-1], batch["values"].row_splits[1:], strict=True
        )
    ]
    assert found == rows
    schema = Schema((Feature("tokens", "bytes", (None,), "", sequence=True),))
    letters = Strings(
        np.frombuffer(b"abc", np.uint8), np.arange(3), np.ones(3, np.int64), np.array([0, 1, 3])
    )
    path = write_dataset(tmp_path / "sequence", {"train": [{"tokens": letters}]}, schema)
    padded = next(iter(load(path, "train", batch_size=4, shuffle=False, remainder="pad")))
    assert padded["tokens"].to_list() == [[b"a"], [b"b", b"c"], [], []]
    assert padded["row_mask"].numpy().tolist() == [1, 1, 0, 0]


def test_tensorflow_s_own_file_systems(uneven: Path) -> None:
    remote = f"ram://numbers/{uneven.name}"
    for path in uneven.rglob("*"):
        if path.is_file():
            name = f"{remote}/{path.relative_to(uneven)}"
            tf.io.gfile.makedirs(name.rpartition("/")[0])
            with tf.io.gfile.GFile(name, "wb") as handle:
                handle.write(path.read_bytes())
    for shuffle in (True, False):
        here = load(uneven, "train", batch_size=7, shuffle=shuffle)
        there = load(f"{remote}/", "train", batch_size=7, shuffle=shuffle)
        assert ids(there) == ids(here)
    with pytest.raises(UsageError, match="must have _SUCCESS"):
        load("ram://numbers/nothing", "train", batch_size=16)


_LIGHT = """
import sys
import recordmill.reader
heavy = {"tensorflow", "apache_beam", "numba", "pyarrow"} & set(sys.modules)
assert not heavy, heavy
for shuffle in (True, False):
    next(iter(recordmill.reader.load(sys.argv[1], "train", batch_size=4, shuffle=shuffle)))
assert "tensorflow" in sys.modules
pipeline = {"apache_beam", "numba", "recordmill.transforms"} & set(sys.modules)
assert not pipeline, pipeline
"""


@pytest.mark.slow
def test_reading_needs_neither_beam_nor_numba(uneven: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIGHT, str(uneven)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


_LEFT_OPEN = """
import sys
from recordmill.reader import load
iterator = iter(load(sys.argv[1], "train", batch_size=100, epochs=None))
for _ in range(1000):
    next(iterator)
print("done")
"""


@pytest.mark.slow
def test_a_program_ends_while_a_reader_reads(many: Path) -> None:
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", _LEFT_OPEN, str(many)], capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


_SLOW_DISK = """
import sys, time
from recordmill.reader import load, shard_guard
looked_at = shard_guard.ShardGuard.problem_of
def slowly(guard, shards):
    time.sleep(0.3)
    return looked_at(guard, shards)
shard_guard.ShardGuard.problem_of = slowly
iterator = iter(load(sys.argv[1], "train", batch_size=2, epochs=None))
for _ in range(20):
    next(iterator)
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_program_ends_while_a_reader_waits_for_a_disk(tmp_path: Path, compression: str) -> None:
    path = write_numbers(tmp_path / "ds", [40, 40], compression)
    done = subprocess.run(
        [sys.executable, "-c", _SLOW_DISK, str(path)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
