"""Reading datasets that the pipeline wrote, as a trainer does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader import load
from recordmill.records import formats
from recordmill.records.errors import UsageError
from recordmill.records.manifest import Manifest, success_bytes

INT32 = tf.int32
SHAPES = {
    "input_ids": (64, INT32),
    "input_mask": (64, INT32),
    "masked_lm_ids": (10, INT32),
    "masked_lm_positions": (10, INT32),
    "masked_lm_weights": (10, tf.float32),
    "next_sentence_labels": (1, INT32),
    "segment_ids": (64, INT32),
}


def manifest_of(dataset: Path) -> Manifest:
    return Manifest.from_bytes((dataset / "_meta/manifest.json").read_bytes())


def records_of(dataset: Path, split: str) -> int:
    return sum(shard.records for shard in manifest_of(dataset).split_shards()[split])


def serialized(dataset: Path, split: str, compression: str = "") -> list[bytes]:
    """All records as they were written, by plain TensorFlow."""
    paths = [str(dataset / shard.name.path) for shard in manifest_of(dataset).split_shards()[split]]
    return list(tf.data.TFRecordDataset(paths, compression).as_numpy_iterator())


def rows(batches: Any) -> list[bytes]:
    """One value per record: all its features."""
    out: list[bytes] = []
    for batch in batches:
        flat = [np.asarray(batch[name]).astype(np.int32) for name in sorted(batch)]
        out += [row.tobytes() for row in np.concatenate(flat, axis=1)]
    return out


def copy_of(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "copy"))


def rewrite_manifest(dataset: Path, old: str, new: str) -> None:
    """Edits the manifest so that `_SUCCESS` vouches for it again."""
    path = dataset / "_meta/manifest.json"
    content = path.read_bytes().replace(old.encode(), new.encode())
    path.write_bytes(content)
    (dataset / "_SUCCESS").write_bytes(success_bytes(content))


@pytest.fixture(scope="module")
def in_order(bert_dataset: Path) -> list[bytes]:
    return rows(load(bert_dataset, "train", batch_size=7, shuffle=False, drop_remainder=False))


@pytest.mark.parametrize("shuffle", [True, False])
def test_shapes_and_cardinality_are_known(bert_dataset: Path, shuffle: bool) -> None:
    dataset = load(bert_dataset, "train", batch_size=16, shuffle=shuffle)
    expected = {name: tf.TensorSpec((16, n), dtype) for name, (n, dtype) in SHAPES.items()}
    assert dataset.element_spec == expected
    assert int(dataset.cardinality()) == records_of(bert_dataset, "train") // 16
    assert sum(1 for _ in dataset) == records_of(bert_dataset, "train") // 16


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_last_batch_is_kept_on_demand(bert_dataset: Path, shuffle: bool) -> None:
    total = records_of(bert_dataset, "validation")
    size = next(size for size in (16, 17) if total % size)
    dataset = load(
        bert_dataset, "validation", batch_size=size, shuffle=shuffle, drop_remainder=False
    )
    sizes = [len(batch["input_ids"]) for batch in dataset]
    assert sizes == [size] * (total // size) + [total % size]
    assert int(dataset.cardinality()) == len(sizes)
    assert dataset.element_spec["input_ids"].shape.as_list() == [None, 64]


def test_unshuffled_is_the_written_order(bert_dataset: Path) -> None:
    written = [
        tf.train.Example.FromString(record).features for record in serialized(bert_dataset, "train")
    ]
    batches = list(load(bert_dataset, "train", batch_size=32, shuffle=False, drop_remainder=False))
    for name, (_, dtype) in SHAPES.items():
        kind = "float_list" if dtype == tf.float32 else "int64_list"
        expected = [list(getattr(features.feature[name], kind).value) for features in written]
        found = np.concatenate([batch[name].numpy() for batch in batches])
        assert found.tolist() == expected


def test_shuffled_has_each_record_once_in_another_order(
    bert_dataset: Path, in_order: list[bytes]
) -> None:
    shuffled = rows(load(bert_dataset, "train", batch_size=16, drop_remainder=False))
    assert Counter(shuffled) == Counter(in_order)
    places = {row: place for place, row in enumerate(in_order)}
    moved = np.array([places[row] for row in shuffled])
    assert abs(np.corrcoef(moved, np.arange(len(moved)))[0, 1]) < 0.2
    assert max(moved[:16]) - min(moved[:16]) > len(moved) / 3, "a batch mixes shards"


def test_dropping_loses_less_than_a_batch(bert_dataset: Path, in_order: list[bytes]) -> None:
    shuffled = rows(load(bert_dataset, "train", batch_size=16, shuffle_buffer=40))
    assert len(shuffled) == len(in_order) // 16 * 16
    assert not Counter(shuffled) - Counter(in_order)


def test_a_seed_decides_the_order(bert_dataset: Path) -> None:
    def order(seed: int) -> list[bytes]:
        return rows(load(bert_dataset, "train", batch_size=16, seed=seed))

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_a_second_pass_has_another_order(bert_dataset: Path, in_order: list[bytes]) -> None:
    def twice() -> list[bytes]:
        dataset = load(bert_dataset, "train", batch_size=16, drop_remainder=False)
        return rows(dataset.repeat(2))

    both = twice()
    first, second = both[: len(in_order)], both[len(in_order) :]
    assert first != second
    assert Counter(first) == Counter(second)
    assert both == twice()
    once = rows(load(bert_dataset, "train", batch_size=16, drop_remainder=False))
    assert first == once


def test_shuffle_buffer_has_an_effect(bert_dataset: Path, in_order: list[bytes]) -> None:
    small = rows(load(bert_dataset, "train", batch_size=8, shuffle_buffer=8))
    large = rows(load(bert_dataset, "train", batch_size=8, shuffle_buffer=1000))
    assert small != large
    places = {row: place for place, row in enumerate(in_order)}
    # A window of one batch reaches no further than the block of a shard that it came from.
    assert max(places[row] for row in small[:8]) - min(places[row] for row in small[:8]) < 128


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_compressed_shards(
    write_dataset: Callable[..., Path], compression: str, shuffle: bool
) -> None:
    flags = ("--task=mlm", "--dupe_factor=1", "--num_shards=2")
    plain = load(write_dataset(*flags), "train", batch_size=16, shuffle=shuffle)
    packed = load(
        write_dataset(*flags, f"--compression={compression}"),
        "train", batch_size=16, shuffle=shuffle,
    )  # fmt: skip
    assert rows(plain) == rows(packed)


@pytest.mark.parametrize("shuffle", [True, False])
def test_tokens_of_sequence_examples_are_ragged(
    write_dataset: Callable[..., Path], shuffle: bool
) -> None:
    path = write_dataset("--task=mlm_tokens", "--dupe_factor=1", "--num_shards=2")
    expected = []
    for record in serialized(path, "train"):
        lists = tf.train.SequenceExample.FromString(record).feature_lists.feature_list
        expected.append([step.bytes_list.value[0] for step in lists["tokens"].feature])
    dataset = load(path, "train", batch_size=9, shuffle=shuffle, drop_remainder=False)
    spec = load(path, "train", batch_size=9, shuffle=shuffle).element_spec["tokens"]
    assert spec == tf.RaggedTensorSpec([9, None], tf.string, 1, tf.int64)
    found = [row for batch in dataset for row in batch["tokens"].to_list()]
    assert (sorted(found) if shuffle else found) == (sorted(expected) if shuffle else expected)
    assert found[0][0] == b"[CLS]"


def test_v2_names_are_the_dataset_s_own(write_dataset: Callable[..., Path]) -> None:
    path = write_dataset("--task=bert", "--dupe_factor=1", "--use_v2_feature_names")
    assert {"input_word_ids", "input_type_ids"} <= set(
        load(path, "train", batch_size=4).element_spec
    )


@pytest.mark.parametrize("shuffle", [True, False])
def test_tensorflow_s_own_file_systems(bert_dataset: Path, shuffle: bool) -> None:
    remote = f"ram://datasets/{bert_dataset.parent.name}-{shuffle}"
    for path in bert_dataset.rglob("*"):
        if path.is_file():
            name = f"{remote}/{path.relative_to(bert_dataset)}"
            tf.io.gfile.makedirs(name.rpartition("/")[0])
            with tf.io.gfile.GFile(name, "wb") as handle:
                handle.write(path.read_bytes())
    here = load(bert_dataset, "train", batch_size=16, shuffle=shuffle)
    assert rows(load(f"{remote}/", "train", batch_size=16, shuffle=shuffle)) == rows(here)
    with pytest.raises(UsageError, match="must have _SUCCESS"):
        load("ram://datasets/nothing", "train", batch_size=16)


def test_keras_style_training_loop(bert_dataset: Path) -> None:
    step = tf.function(lambda batch: tf.reduce_sum(batch["input_mask"]))
    for batch in load(bert_dataset, "train", batch_size=16).take(2):
        assert int(step(batch)) > 0


@pytest.mark.parametrize("path", ["nowhere", "unfinished"])
def test_a_folder_without_success_is_refused(bert_dataset: Path, tmp_path: Path, path: str) -> None:
    folder = tmp_path / path
    if path == "unfinished":
        shutil.copytree(bert_dataset, folder)
        (folder / "_SUCCESS").unlink()
    with pytest.raises(UsageError, match=r"must have _SUCCESS.*has none: give the folder") as info:
        load(folder, "train", batch_size=4)
    assert "\n" not in str(info.value)
    assert str(folder) in str(info.value)


def test_the_data_folder_is_not_the_dataset(bert_dataset: Path) -> None:
    with pytest.raises(UsageError, match="must have _SUCCESS"):
        load(bert_dataset / "train", "train", batch_size=4)


def test_an_edited_manifest_is_refused(bert_dataset: Path, tmp_path: Path) -> None:
    copy = copy_of(bert_dataset, tmp_path)
    path = copy / "_meta/manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"examples"', b'"samples"'))
    with pytest.raises(UsageError, match=r"_SUCCESS must vouch for .* is another one .* verify"):
        load(copy, "train", batch_size=4)
    path.unlink()
    with pytest.raises(UsageError, match=r"_SUCCESS must vouch for .* is missing"):
        load(copy, "train", batch_size=4)


def test_a_later_format_is_refused(bert_dataset: Path, tmp_path: Path) -> None:
    copy = copy_of(bert_dataset, tmp_path)
    rewrite_manifest(copy, '"format_version": 1', '"format_version": 99')
    with pytest.raises(UsageError, match=r"manifest.json cannot be used: written by a later"):
        load(copy, "train", batch_size=4)


def test_an_unknown_split_lists_those_there_are(bert_dataset: Path) -> None:
    with pytest.raises(UsageError, match="one of train, validation, got 'valid'; did you mean"):
        load(bert_dataset, "valid", batch_size=4)


def test_another_schema_is_refused(bert_dataset: Path) -> None:
    same = formats.bert(max_seq_length=64, max_predictions_per_seq=10)
    assert load(bert_dataset, "train", batch_size=4, schema=same)
    longer = formats.bert(max_seq_length=128, max_predictions_per_seq=10)
    with pytest.raises(
        UsageError, match=r"input_ids must be int64 \[128\], and is int64 \[64\]; input_mask"
    ):
        load(bert_dataset, "train", batch_size=4, schema=longer)
    v2 = formats.bert(max_seq_length=64, max_predictions_per_seq=10, use_v2_feature_names=True)
    with pytest.raises(UsageError, match=r"input_ids must be absent, and is int64 \[64\]"):
        load(bert_dataset, "train", batch_size=4, schema=v2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be 1 or more, got 0"),
        ({"batch_size": 10**6}, "batch_size must be at most the .* or give drop_remainder=False"),
        ({"batch_size": 4, "shuffle_buffer": 0}, "shuffle_buffer must be 1 or more, got 0"),
    ],
)
def test_wrong_sizes_are_refused(
    bert_dataset: Path, arguments: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load(bert_dataset, "train", **arguments)


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


def test_reading_needs_neither_beam_nor_numba(bert_dataset: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIGHT, str(bert_dataset)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
