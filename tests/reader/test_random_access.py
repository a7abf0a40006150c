"""Records by number, parsed without TensorFlow, beside TensorFlow's parser."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.reader import RecordTable
from recordmill.records.errors import RunError, UsageError
from recordmill.records.example_values import parse_record
from recordmill.records.schema import Feature, Schema

from .small_datasets import write_numbers

SCHEMA = Schema(
    (
        Feature("floats", "float32", (None,), ""),
        Feature("names", "bytes", (None,), ""),
        Feature("numbers", "int64", (None,), ""),
        Feature("pairs", "int64", (None, 2), ""),
        Feature("one", "int64", (), ""),
    )
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("ds"), [5, 0, 12], validation=[4])


def test_records_by_number(path: Path) -> None:
    table = RecordTable(path, "train")
    assert len(table) == 17
    for i in (0, 4, 5, 16, -1):
        record = table[i]
        number = i % 17
        assert record["id"] == number
        assert record["row"].tolist() == [number, number + 1, number + 2]
        assert record["text"] == b"record %d" % number
    assert [record["id"] for record in table] == list(range(17))
    assert [record["id"] for record in table[3:9:2]] == [3, 5, 7]
    part = RecordTable(path, "train[-2:]+validation[:1]")
    assert [record["id"] for record in part] == [15, 16, 17]
    again = pickle.loads(pickle.dumps(part))
    assert again[1]["id"] == 16
    with pytest.raises(IndexError, match="record 17 of 17"):
        table[17]


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "ds", [5])
    shard = path / "train/train-00000-of-00001.tfrecords"
    data = bytearray(shard.read_bytes())
    data[-10] ^= 1
    shard.write_bytes(data)
    table = RecordTable(path, "train")
    assert table[3]["id"] == 3
    with pytest.raises(RunError, match="tfrecords: record 4 cannot be read: checksum of the data"):
        table[4]


def test_compressed_shards_are_refused(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "ds", [5], "GZIP")
    with pytest.raises(UsageError, match=r"without compression, and those of .* are GZIP; write"):
        RecordTable(path, "train")


def test_tensorflow_is_not_needed(path: Path) -> None:
    code = (
        "import sys; from recordmill.reader import RecordTable; "
        f"print(RecordTable({str(path)!r}, 'train')[7]['id'], 'tensorflow' in sys.modules, "
        "'numba' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["7", "False", "False"]


@settings(deadline=None, max_examples=60)
@given(
    floats=st.lists(st.floats(width=32, allow_nan=False), max_size=4),
    names=st.lists(st.binary(max_size=200), max_size=3),
    numbers=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
    pairs=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 5)), max_size=3),
    one=st.integers(-(2**31), 2**31 - 1),
)
def test_examples_as_protobuf_writes_them(floats, names, numbers, pairs, one) -> None:
    int64 = tf.train.Int64List
    features = {
        "floats": tf.train.Feature(float_list=tf.train.FloatList(value=floats)),
        "names": tf.train.Feature(bytes_list=tf.train.BytesList(value=names)),
        "numbers": tf.train.Feature(int64_list=int64(value=numbers)),
        "pairs": tf.train.Feature(int64_list=int64(value=[v for pair in pairs for v in pair])),
        "one": tf.train.Feature(int64_list=int64(value=[one])),
        "unknown": tf.train.Feature(int64_list=int64(value=[1])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    parsed = parse_record(SCHEMA, example.SerializeToString())
    assert parsed["floats"].tolist() == floats
    assert parsed["names"].tolist() == names
    assert parsed["numbers"].tolist() == numbers
    assert parsed["pairs"].tolist() == [list(pair) for pair in pairs]
    assert parsed["pairs"].shape == (len(pairs), 2)
    assert parsed["one"] == one
    assert parsed["numbers"].dtype == np.int64


def test_sequence_examples() -> None:
    schema = Schema((Feature("tokens", "bytes", (None,), "", sequence=True),))
    steps = [
        tf.train.Feature(bytes_list=tf.train.BytesList(value=[token])) for token in (b"a", b"")
    ]
    lists = {"tokens": tf.train.FeatureList(feature=steps)}
    example = tf.train.SequenceExample(
        feature_lists=tf.train.FeatureLists(feature_list=lists)
    ).SerializeToString()
    assert parse_record(schema, example)["tokens"].tolist() == [b"a", b""]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"", "feature floats must be there, and is missing"),
        (b"\x0a", "a record is cut"),
        (b"\x0a\x05a", "a field is longer than its message"),
        (b"\x0b", "wire type 3 is none of protobuf's"),
        (b"\xff" * 11, "a varint has more than ten bytes"),
    ],
)
def test_what_is_no_example(record, message) -> None:
    with pytest.raises(ValueError, match=message):
        parse_record(SCHEMA, record)
