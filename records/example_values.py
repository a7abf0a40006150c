"""Parse tf.Examples and SequenceExamples into numpy arrays, without TensorFlow.

`records/codec/encoding.py` describes the wire format. Features that are not in the schema are
skipped, as `tf.io.parse_example` does; numbers may be packed or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records.schema import Feature, Schema

_FIELD = {"bytes": 1, "float32": 2, "int64": 3}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a varint has more than ten bytes")


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yields number, wire type and content of each field; of a varint its bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        begin = at
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _BYTES:
            length, begin = _varint(data, at)
            at = begin + length
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind} is none of protobuf's")
        if at > len(data):
            raise ValueError("a field is longer than its message")
        yield tag >> 3, kind, data[begin:at]


def _entries(message: memoryview) -> Iterator[tuple[str, memoryview]]:
    """Yields key and value of the map in a Features or FeatureLists message."""
    for number, _, entry in _fields(message):
        if number == 1:
            parts = {field: content for field, _, content in _fields(entry)}
            yield bytes(parts.get(1, b"")).decode(), parts.get(2, memoryview(b""))


def _unpack_varints(data: memoryview) -> npt.NDArray[np.int64]:
    """Returns packed varints, all at once: a column of bytes after the other."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128)
    if len(raw) and (not len(ends) or ends[-1] != len(raw) - 1):
        raise ValueError("a varint is cut")
    begins = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    lengths = ends - begins + 1
    values = np.zeros(len(ends), np.uint64)
    for digit in range(int(lengths.max(initial=0))):
        has = lengths > digit
        part = (raw[begins[has] + digit] & np.uint8(127)).astype(np.uint64)
        values[has] |= part << np.uint64(7 * digit)
    return values.view(np.int64)


def _values(dtype: str, message: memoryview) -> Any:
    """Returns the values of a Feature message: a list of bytes, or an array."""
    lists = [content for field, _, content in _fields(message) if field == _FIELD[dtype]]
    parts = [
        (kind, content)
        for values in lists
        for field, kind, content in _fields(values)
        if field == 1
    ]
    if dtype == "bytes":
        return [bytes(content) for _, content in parts]
    joined = memoryview(b"".join(content for _, content in parts))
    if dtype == "float32":
        return np.frombuffer(joined, "<f4").astype(np.float32)
    return _unpack_varints(joined)


def parse_any(record: bytes) -> dict[str, Any]:
    """Returns the features of a serialized Example or SequenceExample of any schema.

    Args:
      record: its bytes.

    Returns:
      feature -> a list of `bytes`, or an int64 or float32 array of one dimension; the steps of a
      feature list follow each other. A feature without values is an empty list.

    Raises:
      ValueError: the bytes are no such record.
    """
    try:
        return {
            name: _joined([_any_values(step) for step in steps])
            for name, steps, _ in _features(record)
        }
    except IndexError:
        raise ValueError("a record is cut") from None


def parse_example(record: bytes) -> dict[str, Any]:
    """Returns the features of a serialized Example, as `parse_any`.

    Args:
      record: its bytes.

    Raises:
      ValueError: the bytes are something else, such as a SequenceExample.
    """
    try:
        if any(number != 1 for number, _, _ in _fields(memoryview(record))):
            raise ValueError("the bytes are no tf.train.Example")
    except IndexError:
        raise ValueError("a record is cut") from None
    return parse_any(record)


def feature_forms(record: bytes) -> dict[str, tuple[str, int | None]]:
    """Returns what the features of a serialized Example or SequenceExample are.

    Args:
      record: its bytes.

    Returns:
      feature -> its dtype, "bytes", "float32", "int64" or "" where the record does not say it, as
      of a feature without a list; and of a feature list of a SequenceExample the number of steps,
      None of other features.

    Raises:
      ValueError: the bytes are no such record.
    """
    try:
        return {
            name: (next(filter(None, map(_dtype, steps)), ""), len(steps) if is_list else None)
            for name, steps, is_list in _features(record)
        }
    except IndexError:
        raise ValueError("a record is cut") from None


def _features(record: bytes) -> Iterator[tuple[str, list[memoryview], bool]]:
    """Yields the name of each feature, the messages of its steps, and whether it is a list."""
    for number, kind, content in _fields(memoryview(record)):
        if number not in (1, 2) or kind != _BYTES:
            raise ValueError("the bytes are no tf.train.Example")
        for name, message in _entries(content):
            steps = [step for _, _, step in _fields(message)] if number == 2 else [message]
            yield name, steps, number == 2


def _dtype(message: memoryview) -> str:
    for number, kind, _ in _fields(message):
        for dtype, field in _FIELD.items():
            if number == field and kind == _BYTES:
                return dtype
    return ""


def _any_values(message: memoryview) -> Any:
    for number, kind, _ in _fields(message):
        for dtype in _FIELD:
            if number == _FIELD[dtype] and kind == _BYTES:
                return _values(dtype, message)
    return []


def _joined(steps: list[Any]) -> Any:
    filled = [step for step in steps if len(step)]
    if not filled:
        return []
    if isinstance(filled[0], list):
        return list(itertools.chain.from_iterable(filled))
    return np.concatenate(filled)


def _shaped(feature: Feature, values: Any) -> Any:
    if feature.values is not None and len(values) != feature.values:
        raise ValueError(
            f"feature {feature.name:.200} must have {feature.values} values, and has {len(values)}"
        )
    array = values
    if feature.dtype == "bytes":
        array = np.empty(len(values), object)
        array[:] = values
    shaped = array.reshape([-1 if size is None else size for size in feature.shape])
    return shaped if feature.shape else shaped[()]


def parse_record(schema: Schema, record: bytes) -> dict[str, Any]:
    """Returns the features of a serialized Example or SequenceExample.

    Args:
      schema: of the record.
      record: its bytes.

    Returns:
      feature -> array of the feature's shape, int64, float32 or object (of `bytes`); a feature of
      shape () is one value.

    Raises:
      ValueError: the bytes are not such a record, or a feature is missing or has another size.
    """
    if not schema.features:
        return {"record": record}
    try:
        maps = {number: content for number, _, content in _fields(memoryview(record))}
        messages = dict(_entries(maps.get(2 if schema.sequence else 1, memoryview(b""))))
        parsed = {}
        for feature in schema.features:
            if feature.name not in messages and not feature.optional:
                raise ValueError(f"feature {feature.name:.200} must be there, and is missing")
            message = messages.get(feature.name, memoryview(b""))
            values: Any
            if feature.sequence:
                steps = [_values(feature.dtype, step) for _, _, step in _fields(message)]
                if feature.dtype == "bytes":
                    values = list(itertools.chain.from_iterable(steps))
                else:
                    none = _values(feature.dtype, memoryview(b""))  # there may be no step
                    values = np.concatenate([none, *steps])
            else:
                values = _values(feature.dtype, message)
            parsed[feature.name] = _shaped(feature, values)
    except IndexError:
        raise ValueError("a record is cut") from None
    return parsed
