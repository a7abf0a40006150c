"""Datasets of numbers, read as trainers do."""

from __future__ import annotations

import json
import shutil
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

from recordmill.reader import Reader, as_numpy, load
from recordmill.records.encoding import Strings
from recordmill.records.errors import UsageError
from recordmill.records.manifest import success_bytes
from recordmill.records.schema import Feature, Schema

from .small_datasets import NUMBERS, ids, write_dataset, write_numbers

UNEVEN = [5, 40, 17, 1, 0, 33, 11]


@pytest.fixture(scope="session")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven shards of 107 records, and a split of 20."""
    return write_numbers(tmp_path_factory.mktemp("uneven"), UNEVEN, validation=[20])


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five shards of 5,000 records."""
    return write_numbers(tmp_path_factory.mktemp("many"), [1000, 1500, 1200, 300, 1000])


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


@pytest.mark.parametrize(("stop", "shuffle"), [(47, True), (150, True), (109, False)])
def test_four_workers_stop_and_six_go_on(many: Path, stop: int, shuffle: bool) -> None:
    more = {"shuffle": shuffle, "epochs": 3, "seed": 5, "window_records": 600}

    def readers(count: int) -> list[Reader]:
        return [
            Reader(many, "train", batch_size=48 // count, num_workers=count, worker_index=w, **more)
            for w in range(count)
        ]

    def together(workers: list[list[Any]]) -> list[int]:
        return [i for step in zip(*workers, strict=True) for i in ids(step)]

    def take(reader: Reader, count: int) -> list[Any]:
        return [batch for batch, _ in zip(reader, range(count), strict=False)] if count else []

    before = readers(4)
    first = together([list(iter(take(reader, stop))) for reader in before])
    state = before[0].state(stop)
    assert len(state.encode()) < 1024
    after = readers(6)
    for reader in after:
        reader.restore(state)
    second = together([list(reader) for reader in after])
    assert first + second == ids(load(many, "train", batch_size=48, **more))


def test_a_reader_knows_its_place(many: Path) -> None:
    reader = Reader(many, "train", batch_size=100, epochs=None)
    numbers = reader.as_numpy()
    seen = ids(next(numbers) for _ in range(7))
    assert json.loads(reader.state())["step"] == 7
    other = Reader(many, "train", batch_size=100, epochs=None)
    other.restore(reader.state())
    assert ids([next(iter(other))]) == ids([next(numbers)])
    assert not set(seen) & set(ids([next(other.as_numpy())]))


def test_restoring_costs_one_window_wherever_it_begins(many: Path, monkeypatch: Any) -> None:
    """Counted in records read, by what the plan asks for."""
    from recordmill.reader import pipeline

    counts: list[int] = []
    call = pipeline._Planner.__call__

    def counted(self: Any, number: np.int64) -> Any:
        found = call(self, number)
        counts.append(int(found[0][:, 3].sum()))
        return found

    monkeypatch.setattr(pipeline._Planner, "__call__", counted)
    for start in (0, 24, 50 * 1000):
        counts.clear()
        next(iter(load(many, "train", batch_size=100, epochs=None, start_step=start,
                       window_records=500)))  # fmt: skip
        assert max(counts) <= 500
        assert len(counts) <= 4, "and what is read ahead"


def test_a_state_of_another_order_is_refused(many: Path, uneven: Path) -> None:
    state = Reader(many, "train", batch_size=48).state()
    for reader, message in (
        (Reader(many, "train", batch_size=24), "its global_batch is 48 where this reader has 24"),
        (Reader(many, "train", batch_size=48, seed=1), "its seed is 0 where this reader has 1"),
        (Reader(uneven, "train", batch_size=48), "its dataset is"),
    ):
        with pytest.raises(UsageError, match=f"must be of the same order, and {message}"):
            reader.restore(state)
    with pytest.raises(UsageError, match="must be what state"):
        Reader(many, "train", batch_size=48).restore("nonsense")


def test_tensorflow_s_own_checkpoints(many: Path, tmp_path: Path) -> None:
    def iterator() -> Any:
        return iter(load(many, "train", batch_size=50, window_records=500))

    first = iterator()
    before = ids(next(first) for _ in range(33))
    path = tf.train.Checkpoint(iterator=first).save(str(tmp_path / "checkpoint"))
    after = ids(first)
    second = iterator()
    tf.train.Checkpoint(iterator=second).restore(path)
    assert ids(second) == after
    assert sorted(before + after) == list(range(5000))


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
    from recordmill.records.encoding import Ragged

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


def copy_of(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


@pytest.mark.parametrize("path", ["nowhere", "unfinished"])
def test_a_folder_without_success_is_refused(uneven: Path, tmp_path: Path, path: str) -> None:
    folder = tmp_path / path
    if path == "unfinished":
        shutil.copytree(uneven, folder)
        (folder / "_SUCCESS").unlink()
    with pytest.raises(UsageError, match=r"must have _SUCCESS.*has none: give the folder") as info:
        load(folder, "train", batch_size=4)
    assert "\n" not in str(info.value)
    assert str(folder) in str(info.value)


def test_an_edited_manifest_is_refused(uneven: Path, tmp_path: Path) -> None:
    copy = copy_of(uneven, tmp_path)
    path = copy / "_meta/manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"numbers"', b'"letters"'))
    with pytest.raises(UsageError, match=r"_SUCCESS must vouch for .* is another one .* verify"):
        load(copy, "train", batch_size=4)
    path.unlink()
    with pytest.raises(UsageError, match=r"_SUCCESS must vouch for .* is missing"):
        load(copy, "train", batch_size=4)


def test_a_later_format_is_refused(uneven: Path, tmp_path: Path) -> None:
    copy = copy_of(uneven, tmp_path)
    path = copy / "_meta/manifest.json"
    content = path.read_bytes().replace(b'"format_version": 1', b'"format_version": 99')
    path.write_bytes(content)
    (copy / "_SUCCESS").write_bytes(success_bytes(content))
    with pytest.raises(UsageError, match=r"manifest.json cannot be used: written by a later"):
        load(copy, "train", batch_size=4)


def test_files_of_a_split_must_be_its_shards(uneven: Path, tmp_path: Path) -> None:
    copy = copy_of(uneven, tmp_path)
    (copy / "train/.DS_Store").write_bytes(b"")
    assert load(copy, "train", batch_size=4)
    (copy / "train/train-00000-of-00002.tfrecords").write_bytes(b"")
    with pytest.raises(UsageError, match=r"nothing but the shards .* train-00000-of-00002.tfrec"):
        load(copy, "train", batch_size=4)
    assert load(copy, "validation", batch_size=4), "another split is not concerned"
    (copy / "train/train-00000-of-00002.tfrecords").unlink()
    (copy / "train/train-00002-of-00007.tfrecords").unlink()
    with pytest.raises(UsageError, match=r"lacks train-00002-of-00007.tfrecords; put"):
        load(copy, "train", batch_size=4)


def test_an_index_of_another_shard_is_refused(uneven: Path, tmp_path: Path) -> None:
    copy = copy_of(uneven, tmp_path)
    index = copy / "_meta/index/train/train-00001-of-00007.idx"
    index.write_bytes(index.read_bytes()[:-4])
    with pytest.raises(UsageError, match=r"a line for each of the 40 records .* has 39; see what"):
        load(copy, "train", batch_size=4)
    index.unlink()
    with pytest.raises(UsageError, match=r"must hold _meta/index/.*, which the manifest lists"):
        load(copy, "train", batch_size=4)


def test_another_schema_is_refused(uneven: Path) -> None:
    assert load(uneven, "train", batch_size=4, schema=NUMBERS)
    other = Schema((Feature("id", "int64", (2,), ""), Feature("row", "int64", (3,), "")))
    with pytest.raises(
        UsageError, match=r"id must be int64 \[2\], and is int64 \[\]; text must be absent"
    ):
        load(uneven, "train", batch_size=4, schema=other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be 1 or more, got 0"),
        ({"batch_size": 108}, "1 workers x batch_size 108 must be at most the 107 records"),
        ({"epochs": 0}, "epochs must be 1 or more, got 0"),
        ({"window_records": 0}, "window_records must be 1 or more, got 0"),
        ({"remainder": "dorp"}, "remainder must be one of .*; did you mean 'drop'"),
        ({"on_error": "skip"}, "on_error must be one of fail, skip_record, skip_shard"),
        ({"start_step": 27}, r"start_step must be in \[0, 26\], the steps of all epochs, got 27"),
        ({"start_step": -1}, r"start_step must be in \[0, 26\]"),
        ({"num_workers": 2}, "num_workers and worker_index must be given together"),
        ({"split": "trian"}, "split must be one of train, validation, got 'trian'; did you mean"),
        ({"split": "train[:x]"}, "a bound in a split must be a number of records or a percentage"),
        ({"split": "train[5:5]"}, "must select at least one record, and 'train"),
        ({"split": "train["}, r"a split must be a name such as 'train' or a part"),
    ],
)
def test_wrong_arguments_are_refused(uneven: Path, arguments: dict[str, Any], message: str) -> None:
    values = {"split": "train", "batch_size": 4, **arguments}
    with pytest.raises(UsageError, match=message) as info:
        load(uneven, **values)
    assert "\n" not in str(info.value)


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


def test_reading_needs_neither_beam_nor_numba(uneven: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIGHT, str(uneven)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shuffle", [False, True])
def test_no_more_places_are_held_than_the_longest_run_needs(uneven: Path, shuffle: bool) -> None:
    from recordmill.reader import pipeline

    reader = Reader(uneven, "train", batch_size=2, shuffle=shuffle, remainder="pad")
    runs, places, *_ = pipeline._Planner(reader._source, reader._order, 0)(np.int64(0))
    assert places == runs[:, 3].max() <= 107
