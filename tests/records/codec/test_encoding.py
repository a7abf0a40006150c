from __future__ import annotations

import hashlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records import text_formats as formats
from recordmill.records.codec.encoding import Packed, Ragged, Strings, encode_batch
from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES, scan_records
from recordmill.records.schema import Feature, Schema

Rows = list[list]


def records_of(encoded) -> list[bytes]:
    offsets, used, problem = scan_records(encoded.buffer)
    assert (used, problem) == (len(encoded.buffer), "")
    assert offsets.tolist() == encoded.offsets.tolist()
    return [
        encoded.buffer[a + HEADER_BYTES : b - FOOTER_BYTES].tobytes()
        for a, b in zip(offsets.tolist(), offsets[1:].tolist(), strict=False)
    ]


def protobuf_feature(dtype: str, values: list) -> tf.train.Feature:
    if dtype == "int64":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    if dtype == "float32":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def protobuf_records(schema: Schema, rows: dict[str, Rows], count: int) -> list[bytes]:
    records = []
    for i in range(count):
        if schema.sequence:
            lists = {
                f.name: tf.train.FeatureList(
                    feature=[protobuf_feature(f.dtype, [value]) for value in rows[f.name][i]]
                )
                for f in schema.features
            }
            message = tf.train.SequenceExample(
                feature_lists=tf.train.FeatureLists(feature_list=lists)
            )
        else:
            features = {f.name: protobuf_feature(f.dtype, rows[f.name][i]) for f in schema.features}
            message = tf.train.Example(features=tf.train.Features(feature=features))
        records.append(message.SerializeToString(deterministic=True))
    return records


def column_of(dtype: str, rows: Rows, *, width: int | None = None):
    splits = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
    if dtype == "bytes":
        flat = [value for row in rows for value in row]
        strings = Strings.from_list(flat)
        return Strings(strings.pool, strings.starts, strings.lengths, splits)
    kind = np.int64 if dtype == "int64" else np.float32
    if width is not None:
        return np.array(rows, kind).reshape(len(rows), width)
    return Ragged(np.array([value for row in rows for value in row], kind), splits)


VALUES = {
    "int64": st.one_of(
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.sampled_from(
            [0, 1, 127, 128, 16_383, 16_384, (1 << 21) - 1, 1 << 21, -1, 1 << 32, (1 << 32) + 1]
        ),
    ),
    "float32": st.one_of(
        st.floats(width=32), st.sampled_from([0.0, -0.0, float("nan"), float("inf"), -float("inf")])
    ),
    "bytes": st.binary(max_size=200),
}


@st.composite
def datasets(draw, *, sequence: bool):
    count = draw(st.integers(0, 5))
    names = draw(st.lists(st.text(max_size=6), min_size=1, max_size=4, unique=True))
    names = [name if name.isprintable() and name else f"name{i}" for i, name in enumerate(names)]
    features, rows = [], {}
    # Python's protobuf sorts a key behind those that begin with it; C++'s, like ours, before.
    names = [name for name in names if not any(n != name and n.startswith(name) for n in names)]
    for name in dict.fromkeys(names):
        dtype = "bytes" if sequence else draw(st.sampled_from(sorted(VALUES)))
        size = None if sequence else draw(st.sampled_from([None, 0, 1, 3, 40]))
        lengths = st.integers(0, 150) if size is None else st.just(size)
        rows[name] = [
            draw(lengths.flatmap(lambda n, d=dtype: st.lists(VALUES[d], min_size=n, max_size=n)))
            for _ in range(count)
        ]
        shape = (size,) if size != 1 else draw(st.sampled_from([(), (1,), (1, 1)]))
        features.append(Feature(name, dtype, shape, "", sequence=sequence))
    return Schema(tuple(features)), rows, count


@pytest.mark.parametrize("sequence", [False, True])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_equals_protobuf(sequence, data):
    schema, rows, count = data.draw(datasets(sequence=sequence))
    as_array = data.draw(st.booleans())
    columns = {
        f.name: column_of(f.dtype, rows[f.name], width=f.values if as_array else None)
        for f in schema.features
    }
    expected = protobuf_records(schema, rows, count)
    order = data.draw(st.permutations(range(count)))
    assert records_of(encode_batch(schema, columns)) == expected
    found = records_of(encode_batch(schema, columns, np.array(order, np.int64)))
    assert found == [expected[i] for i in order]


@pytest.mark.parametrize("size", [*range(40), *range(120, 140), *range(16_370, 16_400)])
def test_sizes_around_those_of_varints(size):
    schema = Schema((Feature("x", "int64", (None,), ""), Feature("y", "bytes", (), "")))
    rows = {"x": [[3] * size, [300] * (size // 2)], "y": [[b"a" * size], [b""]]}
    columns = {
        "x": column_of("int64", rows["x"]),
        "y": column_of("bytes", rows["y"]),
    }
    assert records_of(encode_batch(schema, columns)) == protobuf_records(schema, rows, 2)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.uint16, np.int32, np.uint64])
def test_narrow_integers_are_stored_as_int64(dtype):
    values = np.array([[0, 1], [1, 100 % (np.iinfo(dtype).max if dtype != np.bool_ else 2)]], dtype)
    schema = Schema((Feature("x", "int64", (2,), ""),))
    rows = {"x": values.astype(np.int64).tolist()}
    assert records_of(encode_batch(schema, {"x": values})) == protobuf_records(schema, rows, 2)


_EDGES = [1 << 7, 1 << 14, 1 << 21, 1 << 28]


@given(
    rows=st.lists(
        st.lists(
            st.integers(0, 60_000)
            | st.integers(-(1 << 31), (1 << 31) - 1)
            | st.sampled_from([edge + off for edge in _EDGES for off in (-1, 0)]),
            max_size=70,
        ),
        min_size=1, max_size=5,
    )
)  # fmt: skip
def test_numbers_of_32_bits_equal_protobuf(rows):
    schema = Schema((Feature("x", "int64", (None,), ""), Feature("y", "int64", (None,), "")))
    splits = np.cumsum([0, *map(len, rows)])
    column = Ragged(np.array([value for row in rows for value in row], np.int32), splits)
    expected = protobuf_records(schema, {"x": rows, "y": rows}, len(rows))
    assert records_of(encode_batch(schema, {"x": column, "y": column})) == expected


def test_other_floats_are_stored_as_float32():
    schema = Schema((Feature("x", "float32", (2,), ""),))
    for values in (np.array([[0.1, 1e-3]]), np.array([[1, 2]]), np.array([[1, 0.5]], np.float16)):
        rows = {"x": values.astype(np.float32).tolist()}
        assert records_of(encode_batch(schema, {"x": values})) == protobuf_records(schema, rows, 1)


def test_arrays_need_not_be_contiguous():
    schema = Schema((Feature("x", "int64", (3, 2), ""),))
    values = np.arange(24).reshape(2, 3, 4)[:, :, ::2]
    rows = {"x": values.reshape(2, -1).tolist()}
    assert records_of(encode_batch(schema, {"x": values})) == protobuf_records(schema, rows, 2)


def test_a_name_stands_before_those_that_begin_with_it():
    schema = Schema((Feature("image/x", "int64", (), ""), Feature("image", "int64", (), "")))
    columns = {"image/x": np.array([7]), "image": np.array([8])}
    [record] = records_of(encode_batch(schema, columns))
    features = tf.train.Example.FromString(record).features.feature
    assert {name: list(f.int64_list.value) for name, f in features.items()} == {
        "image/x": [7],
        "image": [8],
    }
    assert record.index(b"\x05image\x12") < record.index(b"\x07image/x\x12")


def test_strings_may_share_bytes():
    schema = Schema((Feature("x", "bytes", (None,), ""),))
    pool = np.frombuffer(b"abcdef", np.uint8)
    starts, lengths = np.array([0, 2, 0, 6]), np.array([3, 4, 6, 0])
    column = Strings(pool, starts, lengths, np.array([0, 1, 1, 4]))
    rows = {"x": [[b"abc"], [], [b"cdef", b"abcdef", b""]]}
    assert records_of(encode_batch(schema, {"x": column})) == protobuf_records(schema, rows, 3)


def test_packed_numbers_are_written_as_they_are() -> None:
    schema = Schema((Feature("x", "int64", (None,), ""),))
    pool = np.array([1, 0x80 | 5, 2, 127], np.uint8)  # 1, 261, 127
    starts, lengths = np.array([0, 1, 3]), np.array([3, 3, 1])
    column = Packed(pool, starts, lengths, np.arange(4))
    rows = {"x": [[1, 261], [261, 127], [127]]}
    assert records_of(encode_batch(schema, {"x": column})) == protobuf_records(schema, rows, 3)


NUMBERS = Schema((Feature("x", "int64", (2,), ""), Feature("y", "float32", (None,), "")))
X, Y = np.zeros((3, 2), np.int64), Ragged(np.zeros(4, np.float32), np.array([0, 1, 1, 4]))
STRING = Strings.from_list([b"a", b"b", b"c"])
PACKED = Packed.from_list([b"a", b"b", b"c"])


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"x": X}, ValueError, r"columns must be \['x', 'y'\], got \['x'\]"),
        (
            {"x": X, "y": Y, "z": X},
            ValueError,
            r"columns must be \['x', 'y'\], got \['x', 'y', 'z'\]",
        ),
        ({"x": X, "y": X[:2]}, ValueError, "y: 2 rows in 3 records"),
        ({"x": X, "y": Ragged(Y.values, Y.row_splits[:3])}, ValueError, "y: 2 rows in 3 records"),
        ({"x": X[:, :1], "y": Y}, ValueError, "x: every record must have 2 values"),
        ({"x": Ragged(X, Y.row_splits), "y": Y}, ValueError, "x: every record must have 2 values"),
        ({"x": X, "y": STRING}, TypeError, "y: Strings cannot be float32"),
        ({"x": X, "y": PACKED}, TypeError, "y: Packed cannot be float32"),
        ({"x": X.astype(np.float32), "y": Y}, TypeError, "x: float32 cannot be int64"),
    ],
)
def test_errors(columns, error, message):
    with pytest.raises(error, match=message):
        encode_batch(NUMBERS, columns)


def test_numbers_are_no_strings():
    schema = Schema((Feature("x", "bytes", (None,), ""),))
    with pytest.raises(TypeError, match="x: Ragged cannot be bytes"):
        encode_batch(schema, {"x": Y})


class TestGoldenBytes:
    """A change of any byte is a decision, written in CHANGELOG.md."""

    @staticmethod
    def digest(schema: Schema, columns) -> str:
        encoded = encode_batch(schema, columns, np.array([1, 0]))
        return hashlib.blake2b(encoded.buffer.tobytes(), digest_size=16).hexdigest()

    @staticmethod
    def masked() -> dict:
        return {
            "input_ids": np.array([[101, 7, 103, 102], [101, 30_521, 102, 0]]),
            "input_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]]),
            "masked_lm_positions": np.array([[2, 0], [1, 0]]),
            "masked_lm_ids": np.array([[300, 0], [30_521, 0]]),
            "masked_lm_weights": np.array([[1, 0], [1, 0]], np.float32),
        }

    def test_mlm(self):
        schema = formats.mlm(max_seq_length=4, max_predictions_per_seq=2)
        assert self.digest(schema, self.masked()) == "1470ecf9ff0b575b997ef42c0d69613b"

    def test_bert(self):
        schema = formats.bert(max_seq_length=4, max_predictions_per_seq=2, use_position_id=True)
        columns = self.masked() | {
            "segment_ids": np.array([[0, 0, 1, 1], [0, 0, 1, 0]]),
            "next_sentence_labels": np.array([[0], [1]]),
            "position_ids": np.array([[0, 1, 2, 3]] * 2),
        }
        assert self.digest(schema, columns) == "cec787f0e87a43b481134fd656dcda1d"

    def test_bert_with_v2_names(self):
        schema = formats.bert(
            max_seq_length=4, max_predictions_per_seq=2, use_v2_feature_names=True
        )
        columns = self.masked() | {
            "input_type_ids": np.array([[0, 0, 1, 1], [0, 0, 1, 0]]),
            "next_sentence_labels": np.array([[0], [1]]),
        }
        columns["input_word_ids"] = columns.pop("input_ids")
        assert self.digest(schema, columns) == "fdb2267309fd1169c6e0ec0cd11818b2"

    def test_mlm_tokens(self):
        column = Strings.from_list([b"[CLS]", b"the", b"[SEP]", b"[CLS]", b"[SEP]"])
        tokens = Strings(column.pool, column.starts, column.lengths, np.array([0, 3, 5]))
        assert (
            self.digest(formats.mlm_tokens(), {"tokens": tokens})
            == "f78f62493e95a42e209744ae212c0b1a"
        )
