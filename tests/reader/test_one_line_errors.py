"""Whoever iterates a dataset of ours gets our line, not TensorFlow's twenty."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader import Feed, bucket_by_length, from_queue, load, mask_tokens, mix
from recordmill.reader.one_line_errors import ReadError, check_in_graph, raise_one_line
from recordmill.records.codec.encoding import Ragged
from recordmill.records.codec.framing import index_lines
from recordmill.records.errors import RunError
from recordmill.records.manifest import MANIFEST_PATH, success_bytes
from recordmill.records.schema import Feature, Schema
from recordmill.records.shards import ShardName

from ..transforms.examples.record_files import example, framed
from .small_datasets import write_dataset, write_numbers


@pytest.fixture
def corrupt(tmp_path: Path) -> Path:
    path = write_numbers(tmp_path / "ds", [20, 30])
    shard = path / "train/train-00001-of-00002.tfrecords"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    return path


def iterate(batches: Any) -> None:
    for _ in batches:
        pass


@pytest.mark.parametrize("iterator", [iter, lambda dataset: dataset.as_numpy_iterator()])
def test_a_record_that_cannot_be_read_is_one_line(corrupt: Path, iterator: Any) -> None:
    with pytest.raises(ReadError, match=r"every record must be readable.*: record \d+ at") as info:
        iterate(iterator(load(corrupt, "train", batch_size=5)))
    assert isinstance(info.value, RunError)
    assert isinstance(info.value, tf.errors.OpError)
    assert "\n" not in str(info.value)
    printed = traceback.format_exception(info.value, chain=True)
    assert "During handling" not in "".join(printed)
    assert "direct cause" not in "".join(printed)


def _replace_records(dataset: Path, records: list[bytes]) -> None:
    """Writes a shard anew, in which everything but its records is right."""
    data, offsets = framed(records), np.cumsum([0, *(len(record) + 16 for record in records)])
    name = ShardName("train", 0, 1)
    lines = index_lines(offsets)
    (dataset / name.path).write_bytes(data)
    (dataset / name.index_path).write_bytes(lines)
    manifest = json.loads((dataset / MANIFEST_PATH).read_bytes())
    manifest["files"][name.index_path] = google_crc32c.value(lines)
    sizes = {"file_bytes": len(data), "record_bytes": len(data), "records": len(records)}
    manifest["shards"][0].update(**sizes, crc32c=google_crc32c.value(data))
    content = json.dumps(manifest).encode()
    (dataset / MANIFEST_PATH).write_bytes(content)
    (dataset / "_SUCCESS").write_bytes(success_bytes(content))


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"\xff\xfe\x80", "it is no such message of protobuf"),  # TensorFlow's message is no UTF-8
        (b"\x1b[31m", "it is no such message of protobuf"),
        (b"", "Feature: id .* is required but could not be found"),
        (example(id="text", row=[1, 2, 3], text="x"), "Key: .* Data types don't match"),
    ],
)
def test_a_record_that_does_not_parse_is_one_line(tmp_path: Path, record: bytes, why: str) -> None:
    path = write_numbers(tmp_path / "ds", [20])
    _replace_records(path, [record] * 20)
    dataset = load(path, "train", batch_size=5, epochs=1)
    mixed = mix({"a": lambda start_step: dataset}, weights={"a": 1.0}, steps=2)
    for each in (dataset, mixed):
        with pytest.raises(ReadError, match=f"schema, and one is not .{why}") as info:
            iterate(each)
        assert f"`recordmill verify {path}`" in str(info.value)
        assert str(info.value).isprintable()


def test_a_transform_that_cannot_parse_is_no_broken_dataset(tmp_path: Path) -> None:
    def parse(batch: Any, _: Any) -> Any:
        return tf.io.parse_example([b""], {"mine": tf.io.FixedLenFeature([], tf.int64)}) | batch

    path = write_numbers(tmp_path / "ds", [20])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Feature: mine") as info:
        iterate(load(path, "train", batch_size=5, epochs=1, transform=parse))
    assert "recordmill verify" not in str(info.value)


def test_get_next_raises_it_too(corrupt: Path) -> None:
    iterator = iter(load(corrupt, "train", batch_size=50, shuffle=False))
    with pytest.raises(ReadError, match="every record must be readable"):
        iterator.get_next()


def test_what_tensorflow_iterates_holds_the_line(corrupt: Path) -> None:
    """`model.fit` and datasets that callers make of ours: only TensorFlow can raise there."""
    dataset = load(corrupt, "train", batch_size=50, shuffle=False)

    @tf.function
    def step(batches: Any) -> tf.Tensor:
        return next(batches)["id"]

    for run in (lambda: step(iter(dataset)), lambda: iterate(dataset.repeat(2))):
        with pytest.raises(tf.errors.OpError) as info:
            run()
        lines = [line for line in info.value.message.splitlines() if "recordmill: every" in line]
        assert len(lines) == 1
        assert "Traceback" not in info.value.message


def test_a_mixture_of_ours_is_ours(corrupt: Path) -> None:
    sources = {"a": lambda start_step=0: load(corrupt, "train", batch_size=5, epochs=None)}
    with pytest.raises(ReadError, match="every record must be readable"):
        iterate(mix(sources, weights={"a": 1}, steps=50))


TOKENS = Schema((Feature("input_ids", "int64", (None,), "ids"),))


@pytest.fixture
def long_records(tmp_path: Path) -> Path:
    """Records of 3 and 9 tokens."""
    column = Ragged(np.arange(12) + 5, np.array([0, 3, 12]))
    return write_dataset(tmp_path / "tokens", {"train": [{"input_ids": column}]}, TOKENS)


def test_a_record_longer_than_max_seq_length_is_one_line(
    long_records: Path, tmp_path: Path
) -> None:
    vocab_file = tmp_path / "vocab.txt"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(20))]
    vocab_file.write_text("\n".join(words), encoding="utf-8")
    masked = mask_tokens(vocab_file=vocab_file, max_seq_length=8, max_predictions_per_seq=2)
    with pytest.raises(ReadError) as info:
        iterate(load(long_records, "train", batch_size=2, transform=masked))
    assert str(info.value) == (
        "a record must have at most max_seq_length=8 tokens, and one has 9; give the length it was "
        "written with"
    )


def test_a_record_beyond_the_last_boundary_is_one_line(long_records: Path) -> None:
    def source(start_step: int) -> tf.data.Dataset:
        return load(long_records, "train", batch_size=2, start_step=start_step)

    with pytest.raises(ReadError, match="beyond the last boundary, 8, and has 9 tokens"):
        iterate(
            bucket_by_length(source, length="input_ids", along=["input_ids"], boundaries=[4, 8])
        )


def test_a_feed_that_fails_is_one_line() -> None:
    feed = Feed()
    feed.fail(KeyError("no such episode"))
    with pytest.raises(ReadError) as info:
        iterate(from_queue(feed, element_spec={"x": tf.TensorSpec([])}))
    assert str(info.value) == "the producer of the feed failed: KeyError: 'no such episode'"


def test_other_errors_stay_tensorflow_s() -> None:
    dataset = tf.data.Dataset.range(3).map(lambda x: 6 // (x - 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="division by zero"):
        iterate(raise_one_line(dataset))

    def foreign(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.Assert(x < 0, ["a user's own"])]):
            return tf.identity(x)

    with pytest.raises(tf.errors.InvalidArgumentError, match="own"):
        iterate(raise_one_line(tf.data.Dataset.range(3).map(foreign)))


def test_a_check_that_holds_costs_nothing_to_the_elements() -> None:
    def checked(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies(check_in_graph(x < 5, "never")):
            return tf.identity(x)

    dataset = raise_one_line(tf.data.Dataset.range(3).map(checked))
    assert [int(x) for x in dataset] == [0, 1, 2]
    assert int(dataset.cardinality()) == 3
    with pytest.raises(StopIteration):
        next(iter(dataset.take(0)))
