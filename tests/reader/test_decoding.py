"""Records that can be read and hold no image: they are named, or left out, as `on_error` says."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader import Reader, balance_by_label, decode_images, load, mix
from recordmill.reader.one_line_errors import ReadError
from recordmill.records.codec.encoding import Strings
from recordmill.records.errors import UsageError
from recordmill.records.schema import Feature, Schema

from ..pictures import jpeg, png
from .small_datasets import ids, write_dataset

SCHEMA = Schema((Feature("id", "int64", (), "number"), Feature("image", "bytes", (), "image")))
CUT = jpeg()[:-300]
BAD = {17: png()[:-1], 45: CUT, 46: b"no image"}
SIZE = (8, 8)
SHARDS = [20, 30, 10]


def write(folder: Path, bad: dict[int, bytes], compression: str = "") -> Path:
    images = [bad.get(number, png() if number % 2 else jpeg()) for number in range(60)]
    first, contents = 0, []
    for count in SHARDS:
        part = images[first : first + count]
        contents.append({"id": np.arange(first, first + count), "image": Strings.from_list(part)})
        first += count
    return write_dataset(folder, {"train": contents}, SCHEMA, compression)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "ds", BAD)


def offset(path: Path, shard: int, record: int) -> int:
    index = path / f"_meta/index/train/train-{shard:05d}-of-00003.idx"
    return int(index.read_text().splitlines()[record].split()[0])


@pytest.mark.parametrize(("shuffle", "remainder"), [(True, "pad"), (False, "keep")])
def test_an_image_that_cannot_be_decoded_is_named_in_one_line(
    tmp_path: Path, shuffle: bool, remainder: Any
) -> None:
    path = write(tmp_path / "ds", {46: b"no image"})
    options: dict[str, Any] = {"shuffle": shuffle, "remainder": remainder, "window_records": 20}
    for step in (0, 3):
        with pytest.raises(ReadError) as info:
            ids(load(path, "train", batch_size=7, transform=decode_images(size=SIZE), epochs=2,
                     start_step=step, **options))  # fmt: skip
        message = str(info.value)
        assert "\n" not in message
        where = f"train-00001-of-00003.tfrecords: record 26 at byte {offset(path, 1, 26)}: "
        assert (
            f"every record must be one that TensorFlow decodes, and one is not: {path}" in message
        )
        assert f"{where}Unknown image file format" in message
        assert "iterator" not in message.lower()
        assert "{{" not in message
        assert message.endswith("or read without it by on_error='skip_record'")


def test_a_reader_says_it_behind_other_transforms_and_for_each_worker(tmp_path: Path) -> None:
    path = write(tmp_path / "ds", {3: CUT})
    transform = [lambda features, keys: features | {"number": keys[:, 1]}, decode_images(size=SIZE)]
    raised = []
    for worker in range(2):
        reader = Reader(
            path, "train", batch_size=5, transform=transform, num_workers=2, worker_index=worker
        )
        try:
            ids(reader.as_numpy())
        except ReadError as error:
            raised.append(str(error))
    [message] = raised
    assert "train-00000-of-00003.tfrecords: record 3 at byte" in message


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("crop", [None, 0.01])
def test_on_error_leaves_them_out(tmp_path: Path, compression: str, crop: float | None) -> None:
    path = write(tmp_path / "ds", BAD, compression)
    transform = decode_images(size=SIZE, crop=crop)
    options: dict[str, Any] = {"batch_size": 4, "transform": transform, "remainder": "keep"}
    reader = Reader(path, "train", on_error="skip_record", **options)
    found = [(Path(each.path).name[:11], each.record, each.offset >= 0) for each in reader.skipped]
    has_offset = not compression
    assert found == [
        ("train-00000", 17, has_offset), ("train-00001", 25, has_offset),
        ("train-00001", 26, has_offset),
    ]  # fmt: skip
    assert "Unknown image file format" in str(reader.skipped[2])
    assert sorted(ids(reader)) == [n for n in range(60) if n not in BAD]
    reader = Reader(path, "train", on_error="skip_shard", **options)
    assert sorted(ids(reader)) == list(range(50, 60))
    with pytest.raises(UsageError, match="at least one record must be readable, and 3 in 2 shards"):
        load(path, "train[:50]", on_error="skip_shard", **options)


def test_of_mixed_datasets_the_one_that_holds_it_is_named(tmp_path: Path) -> None:
    paths = {"good": write(tmp_path / "good", {}), "bad": write(tmp_path / "bad", {46: CUT})}
    options: dict[str, Any] = {"batch_size": 5, "transform": decode_images(size=SIZE)}
    sources = {name: partial(load, path, "train", **options) for name, path in paths.items()}
    with pytest.raises(ReadError, match=r"/bad/train/train-00001-of-00003.tfrecords: record 26 at"):
        for _ in mix(sources, weights={"good": 1, "bad": 2}, steps=15):
            pass


def test_of_a_balanced_order_too(tmp_path: Path) -> None:
    path = write(tmp_path / "ds", {33: CUT})
    reorder = balance_by_label(np.arange(60) % 2)
    with pytest.raises(ReadError, match=r"train-00001-of-00003.tfrecords: record 13 at byte"):
        ids(load(path, "train", batch_size=20, transform=decode_images(size=SIZE), epochs=4,
                 reorder=reorder))  # fmt: skip


def test_workers_stay_equal(path: Path) -> None:
    rows = [
        ids(load(path, "train", batch_size=3, num_workers=3, worker_index=worker,
                 transform=decode_images(size=SIZE), on_error="skip_record"))
        for worker in range(3)
    ]  # fmt: skip
    assert [len(each) for each in rows] == [18, 18, 18]
    assert not {number for each in rows for number in each} & BAD.keys()


def test_other_errors_of_transforms_stay_what_they_are(path: Path) -> None:
    def fail(features: Any, keys: tf.Tensor) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(keys[0, 1] < 0, ["mine"])]):
            return {name: tf.identity(value) for name, value in features.items()}

    with pytest.raises(tf.errors.InvalidArgumentError, match="mine") as info:
        ids(load(path, "train", batch_size=5, transform=fail))
    assert not isinstance(info.value, ReadError)


def test_an_error_of_a_transform_before_the_decoder_is_not_the_decoders(tmp_path: Path) -> None:
    path = write(tmp_path / "ds", {17: b"no image"})

    def fail(features: Any, keys: tf.Tensor) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(keys[:, 1] != 3), ["x"])]):
            return {name: tf.identity(value) for name, value in features.items()}

    options: dict[str, Any] = {"batch_size": 5, "transform": [fail, decode_images(size=SIZE)]}
    with pytest.raises(tf.errors.InvalidArgumentError) as info:
        ids(load(path, "train[:10]", **options))
    assert not isinstance(info.value, ReadError)
    reader = Reader(path, "train", on_error="skip_record", **options)
    assert [each.record for each in reader.skipped] == [17]


def test_whoever_goes_on_after_an_error_is_told_of_the_right_record(tmp_path: Path) -> None:
    path = write(tmp_path / "ds", {3: b"no image", 17: b"no image"})
    batches = iter(load(path, "train", batch_size=5, shuffle=False,
                        transform=decode_images(size=SIZE)))  # fmt: skip
    raised = []
    for _ in range(5):
        try:
            next(batches)
        except ReadError as error:
            raised.append(str(error).partition(" at byte")[0].rpartition(" ")[2])
    assert raised == ["3", "17"]
