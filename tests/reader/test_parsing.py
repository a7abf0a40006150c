"""Every kind of feature, from the encoder's bytes to tensors."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf

from recordmill.reader.narrowing import Narrowing
from recordmill.reader.parsing import batch_parser, example_spec
from recordmill.records.codec.encoding import Ragged, Strings, encode_batch
from recordmill.records.schema import Feature, Schema

SCHEMA = Schema(
    (
        Feature("boxes", "float32", (None, 2), "any number of pairs"),
        Feature("image", "bytes", (), "one string"),
        Feature("label", "int64", (), "one number"),
        Feature("matrix", "float32", (2, 3), "a fixed shape"),
        Feature("names", "bytes", (None,), "any number of strings"),
        Feature("numbers", "int64", (None,), "any number of numbers"),
    )
)
NARROWING = Narrowing("ds")
COLUMNS = {
    "boxes": Ragged(np.arange(8, dtype=np.float32), np.array([0, 4, 4, 8])),
    "image": Strings.from_list([b"one", b"", b"three"]),
    "label": np.array([1, -2, 3]),
    "matrix": np.arange(18, dtype=np.float32).reshape(3, 2, 3),
    "names": Strings(
        np.frombuffer(b"abc", np.uint8), np.array([0, 1, 2]), np.array([1, 1, 1]),
        np.array([0, 2, 2, 3]),
    ),
    "numbers": Ragged(np.array([5, 6, -7]), np.array([0, 1, 3, 3])),
}  # fmt: skip


def unframed(schema: Schema, columns: dict[str, object]) -> list[bytes]:
    batch = encode_batch(schema, columns)  # type: ignore[arg-type]
    ends = batch.offsets.tolist()
    whole = batch.buffer.tobytes()
    return [whole[begin + 12 : end - 4] for begin, end in itertools.pairwise(ends)]


def test_every_kind_of_feature() -> None:
    parsed = batch_parser(SCHEMA, NARROWING)(tf.constant(unframed(SCHEMA, COLUMNS)))
    assert parsed["image"].numpy().tolist() == [b"one", b"", b"three"]
    assert parsed["label"].numpy().tolist() == [1, -2, 3]
    assert parsed["label"].dtype == parsed["numbers"].dtype == tf.int32
    assert parsed["matrix"].numpy().tolist() == COLUMNS["matrix"].tolist()
    assert parsed["names"].to_list() == [[b"a", b"b"], [], [b"c"]]
    assert parsed["numbers"].to_list() == [[5], [6, -7], []]
    assert parsed["boxes"].to_list() == [[[0, 1], [2, 3]], [], [[4, 5], [6, 7]]]


def test_known_shapes_are_static_in_a_graph() -> None:
    records = tf.data.Dataset.from_tensor_slices(unframed(SCHEMA, COLUMNS))
    spec = records.batch(3, drop_remainder=True).map(batch_parser(SCHEMA, NARROWING)).element_spec
    assert spec["matrix"] == tf.TensorSpec((3, 2, 3), tf.float32)
    assert spec["image"] == tf.TensorSpec((3,), tf.string)
    assert isinstance(spec["boxes"], tf.RaggedTensorSpec)


def test_spec_holds_the_schema_s_features_only() -> None:
    spec = example_spec(SCHEMA)
    assert list(spec) == ["boxes", "image", "label", "matrix", "names", "numbers"]
    assert spec["label"] == tf.io.FixedLenFeature((), tf.int64)


def test_feature_lists_of_sequence_examples() -> None:
    schema = Schema((Feature("tokens", "bytes", (None,), "", sequence=True),))
    column = Strings(
        np.frombuffer(b"xyz", np.uint8), np.array([0, 1, 2]), np.array([1, 1, 1]),
        np.array([0, 1, 3]),
    )  # fmt: skip
    parsed = batch_parser(schema, NARROWING)(tf.constant(unframed(schema, {"tokens": column})))
    assert parsed["tokens"].to_list() == [[b"x"], [b"y", b"z"]]
