"""Records by protobuf itself, right and wrong, against the kernel that reads their wire format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.codec import checking
from recordmill.records.codec.checking import SchemaChecker
from recordmill.records.codec.framing import frame_in_place
from recordmill.records.schema import Feature, Schema

from ...kernels import entrance

count_varints = entrance(checking._count_varints)

SCHEMA = Schema(
    (
        Feature("ids", "int64", (3,), ""),
        Feature("names", "bytes", (None,), ""),
        Feature("weights", "float32", (2,), ""),
    )
)
TOKENS = Schema((Feature("tokens", "bytes", (None,), "", sequence=True),))


def feature(value: list[Any], kind: str) -> tf.train.Feature:
    lists = {
        "bytes": lambda: tf.train.Feature(bytes_list=tf.train.BytesList(value=value)),
        "float": lambda: tf.train.Feature(float_list=tf.train.FloatList(value=value)),
        "int64": lambda: tf.train.Feature(int64_list=tf.train.Int64List(value=value)),
    }
    return lists[kind]()


GOOD = {
    "ids": feature([1, -5, 1 << 40], "int64"),
    "names": feature([b"a", b""], "bytes"),
    "weights": feature([0.5, 1.0], "float"),
}


def example(**changed: tf.train.Feature | None) -> bytes:
    features = {k: v for k, v in {**GOOD, **changed}.items() if v is not None}
    content: bytes = tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString(deterministic=True)
    return content


def problems(records: list[bytes], schema: Schema = SCHEMA) -> dict[int, str]:
    offsets = np.cumsum([0, *(len(record) + 16 for record in records)], dtype=np.int64)
    data = np.frombuffer(
        b"".join(bytes(12) + record + bytes(4) for record in records), np.uint8
    ).copy()
    frame_in_place(data, offsets)
    return {bad.index: bad.problem for bad in SchemaChecker(schema).check(data, offsets)}


@pytest.mark.slow
def test_right_records_pass() -> None:
    empty = feature([], "bytes")
    assert problems([example(), example(names=empty), example(names=GOOD["names"])]) == {}


def test_entries_may_come_in_any_order() -> None:
    backwards = b"".join(
        tf.train.Features(feature={name: GOOD[name]}).SerializeToString()
        for name in sorted(GOOD, reverse=True)
    )
    assert problems([b"\x0a" + bytes([len(backwards)]) + backwards]) == {}


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (example(ids=None), "feature ids must be there, and is missing"),
        (example(weights=None), "feature weights must be there, and is missing"),
        (example(ids=feature([1, 2], "int64")), "feature ids must have 3 values, and has 2"),
        (example(ids=feature([1] * 4, "int64")), "feature ids must have 3 values, and has 4"),
        (example(ids=feature([], "int64")), "feature ids must have 3 values, and has 0"),
        (example(weights=feature([1.0], "float")), "feature weights must have 2 values, and has 1"),
        (example(ids=feature([1.0], "float")), "feature ids must be int64, and is float32"),
        (example(weights=feature([1, 2], "int64")), "feature weights must be float32, and"),
        (example(names=feature([1], "int64")), "feature names must be bytes, and is int64"),
        (example(more=GOOD["ids"]), "must have no feature but ids, names, weights, and"),
        (example(idz=GOOD["ids"], ids=None), "must have no feature but ids, names, weights, and"),
        (example(names=tf.train.Feature()), "must be a tf.Example as recordmill encodes it"),
        (example()[:-1], "must be a tf.Example as recordmill encodes it"),
        (example() + b"\0", "must be a tf.Example as recordmill encodes it"),
        (b"", "must be a tf.Example as recordmill encodes it"),
        (b"nonsense", "must be a tf.Example as recordmill encodes it"),
    ],
)  # fmt: skip
def test_wrong_records_are_named(record: bytes, problem: str) -> None:
    found = problems([example(), record, example()])
    assert list(found) == [1]
    assert found[1].startswith(problem)


def test_a_feature_twice() -> None:
    inner = tf.train.Features(feature=GOOD).SerializeToString()
    inner += tf.train.Features(feature={"ids": GOOD["ids"]}).SerializeToString()
    found = problems([b"\x0a" + bytes([len(inner)]) + inner])
    assert found == {0: "feature ids must be there once, and is there twice"}


def sequence(steps: list[tf.train.Feature], key: str = "tokens") -> bytes:
    lists = {key: tf.train.FeatureList(feature=steps)}
    record = tf.train.SequenceExample(feature_lists=tf.train.FeatureLists(feature_list=lists))
    content: bytes = record.SerializeToString()
    return content


def test_sequence_examples() -> None:
    words = [feature([word], "bytes") for word in (b"[CLS]", b"a", b"[SEP]")]
    two = feature([b"a", b"b"], "bytes")
    number = feature([7], "int64")
    records = [
        sequence(words),
        sequence([]),
        sequence([*words, two]),
        sequence([number]),
        sequence(words, "words"),
        tf.train.SequenceExample().SerializeToString(),
    ]
    assert problems(records, TOKENS) == {
        2: "must be a tf.SequenceExample as recordmill encodes it, and is not",
        3: "feature tokens must be bytes, and is int64",
        4: "must have no feature but tokens, and has another",
        5: "must be a tf.SequenceExample as recordmill encodes it, and is not",
    }


@given(st.integers(0, len(example()) - 1), st.integers(1, 255))
def test_what_passes_can_be_parsed(place: int, change: int) -> None:
    record = bytearray(example())
    record[place] ^= change
    if not problems([bytes(record)]):
        parsed = tf.train.Example.FromString(bytes(record)).features.feature
        assert set(parsed) == {"ids", "names", "weights"}
        assert len(parsed["ids"].int64_list.value) == 3
        assert len(parsed["weights"].float_list.value) == 2


@given(st.binary(max_size=64))
def test_any_bytes_are_judged(record: bytes) -> None:
    assert isinstance(problems([record]), dict)
    assert isinstance(problems([record], TOKENS), dict)


@st.composite
def packed_numbers(draw: st.DrawFn) -> bytes:
    """Numbers of 1 to 11 bytes, and now and then any bytes."""
    sizes = draw(st.lists(st.sampled_from([1, 1, 1, 2, 3, 4, 5, 6, 9, 10, 11]), max_size=12))
    found = b"".join(b"\x80" * (size - 1) + b"\x01" for size in sizes)
    return found + draw(st.sampled_from([b"", b"\x80", b"\x80" * 6, b"\xff" * 9]))


@settings(max_examples=300, deadline=None)
@given(packed=packed_numbers(), before=st.integers(0, 9))
def test_packed_numbers_are_counted_as_one_by_one(packed: bytes, before: int) -> None:
    ends = [i for i, byte in enumerate(packed) if byte < 128]
    sizes = np.diff([-1, *ends]).tolist()
    whole = not packed or packed[-1] < 128
    expected = len(ends) if whole and max(sizes, default=0) <= 10 else -1
    data = np.frombuffer(b"\xff" * before + packed + b"\xff" * 9, np.uint8)
    assert count_varints(data, before, before + len(packed)) == expected
