"""Infer the schema of tf.Examples: what features there are, of which type, with how many values.

A schema that fits the records so far is checked by the kernel that `recordmill verify` uses; only
a record that does not fit is parsed here, and the schema is widened for it. So a survey costs what
checking costs. Records that are no tf.Examples, or that do not agree on a type, have no schema:
they pass as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.checking import SchemaChecker
from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES
from recordmill.records.schema import DType, Feature, Schema
from recordmill.records.state import MAX_INT64, Count
from recordmill.transforms.dataset.statistics_warnings import MIXED_TYPES

EXAMPLE, BYTES = "example", "bytes"
MEANING = "as in the records that were read"
_KINDS: dict[int, DType] = {0x0A: "bytes", 0x12: "float32", 0x1A: "int64"}
_FoundType = DType | Literal[""]
_MOST_FEATURES = 10_000
_MOST_NAME_BYTES = 4096


class FeatureFacts(msgspec.Struct, frozen=True):
    """What is known of a feature.

    Attributes:
      dtype: of its values; "" where no record has one.
      values: how many each record has; -1 where that differs.
      optional: a record lacks it, or has it without a type.
    """

    dtype: _FoundType
    values: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT64)]
    optional: bool = False

    def with_values(self, dtype: _FoundType, values: int) -> FeatureFacts | None:
        """Returns what is known with one more record, None where its type is another."""
        if dtype and self.dtype and dtype != self.dtype:
            return None
        same = values if values == self.values else -1
        untyped = not dtype or not self.dtype
        return FeatureFacts(self.dtype or dtype, same, self.optional or untyped)


class SchemaSurvey(msgspec.Struct, dict=True):
    """The features of the records so far.

    Attributes:
      records: their number.
      form: "example", or "bytes" where they have no schema.
      reason: why they have none.
      features: name -> what is known.
    """

    records: Count = 0
    form: str = EXAMPLE
    reason: str = ""
    features: dict[str, FeatureFacts] = {}

    def __post_init__(self) -> None:
        self._checker: SchemaChecker | None = None  # of what is known so far; no part of the state

    def add(self, data: Bytes, begins: Int64s, ends: Int64s) -> None:
        """Adds framed records: `data[begins[i] : ends[i]]`."""
        at = 0
        while at < len(begins) and self.form == EXAMPLE:
            if self.records and self._checker is None:
                untyped = [name for name, facts in self.features.items() if not facts.dtype]
                self._checker = SchemaChecker(self.schema(), untyped)
            fitting = 0
            if self._checker is not None:
                fitting = self._checker.count_fitting(data, begins[at:], ends[at:])
            self.records += fitting
            at += fitting
            if at < len(begins):
                content = data[begins[at] + HEADER_BYTES : ends[at] - FOOTER_BYTES].tobytes()
                self._widen(content)
                at += 1
        self.records += len(begins) - at

    def _widen(self, content: bytes) -> None:
        """Adds a record that the schema so far does not fit."""
        found = parse_features(content)
        self._checker = None
        if found is None:
            self._become_bytes("a record is no tf.Example, or is a SequenceExample")
            self.records += 1
            return
        facts = {name: FeatureFacts(*each, optional=not each[0]) for name, each in found.items()}
        self._merge(facts, 1)

    def _become_bytes(self, reason: str) -> None:
        self.form, self.reason = BYTES, self.reason or reason
        self.features, self._checker = {}, None

    def _merge(self, others: Mapping[str, FeatureFacts], records: int) -> None:
        for name, facts in sorted(others.items()):
            known = self.features.get(name)
            if known is None:
                optional = facts.optional or self.records > 0
                self.features[name] = replace(facts, optional=optional)
                continue
            merged = known.with_values(facts.dtype, facts.values)
            if merged is None:
                some, others_are = sorted((known.dtype, facts.dtype))
                self._become_bytes(f"feature {name} is {some}{MIXED_TYPES}{others_are} in others")
                self.records += records
                return
            self.features[name] = replace(merged, optional=merged.optional or facts.optional)
        for name in self.features.keys() - others.keys():
            self.features[name] = replace(self.features[name], optional=True)
        self.records += records
        if len(self.features) > _MOST_FEATURES:
            self._become_bytes(f"the records have more than {_MOST_FEATURES} features")

    def merge(self, other: SchemaSurvey) -> None:
        """Adds the records of another survey; the order of surveys does not matter."""
        if not other.records:
            return
        if other.form == BYTES or self.form == BYTES:
            reasons = sorted(filter(None, (self.reason, other.reason)))
            self.reason = reasons[0]
            self._become_bytes(reasons[0])
            self.records += other.records
            return
        self._merge(other.features, other.records)

    def schema(self) -> Schema:
        """Returns the schema that fits all records; no features where they have none."""
        return Schema(tuple(self._features()))

    def _features(self) -> Iterator[Feature]:
        for name, facts in self.features.items():
            fixed = facts.values >= 0 and not facts.optional
            shape: tuple[int | None, ...] = (None,)
            if fixed:
                shape = () if facts.values == 1 else (facts.values,)
            dtype: Any = facts.dtype or "bytes"
            if not facts.dtype:
                shape = (None,)
            yield Feature(name, dtype, shape, MEANING, optional=facts.optional)


class _BrokenError(Exception):
    """The bytes are not of the message."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise _BrokenError


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the length-delimited fields of a message: tag and content.

    Raises:
      _BrokenError: it has others.
    """
    at = 0
    while at < len(data):
        tag = data[at]
        size, at = _varint(data, at + 1)
        if size > len(data) - at:
            raise _BrokenError
        yield tag, data[at : at + size]
        at += size


def _facts(data: bytes) -> tuple[_FoundType, int]:
    """Returns the type and the number of values of a Feature message."""
    if not data:
        return "", 0
    ((tag, values),) = _fields(data)
    if tag not in _KINDS:
        raise _BrokenError
    contents = list(_fields(values))
    if any(inner != 0x0A for inner, _ in contents):
        raise _BrokenError
    if tag == 0x0A:
        return "bytes", len(contents)
    if not contents:
        return _KINDS[tag], 0
    ((_, packed),) = contents
    if tag == 0x12:
        if len(packed) % 4:
            raise _BrokenError
        return "float32", len(packed) // 4
    ends = np.frombuffer(packed, np.uint8) < 128
    if len(ends) and not ends[-1]:
        raise _BrokenError
    return "int64", int(ends.sum())


def parse_features(content: bytes) -> dict[str, tuple[_FoundType, int]] | None:
    """Returns the type and number of values of each feature of a serialized tf.Example.

    A feature without values has the type "". None where the bytes are no Example, in the form that
    all writers of protobuf give it.
    """
    try:
        outer = list(_fields(content))
        if not outer:
            return {}
        ((tag, features),) = outer
        if tag != 0x0A:
            return None
        found: dict[str, tuple[_FoundType, int]] = {}
        for entry_tag, entry in _fields(features):
            (key_tag, key), (value_tag, value) = _fields(entry)
            if (entry_tag, key_tag, value_tag) != (0x0A, 0x0A, 0x12) or len(key) > _MOST_NAME_BYTES:
                return None
            name = key.decode()
            if name in found or not name or not name.isprintable():
                return None
            found[name] = _facts(value)
    except (_BrokenError, ValueError):
        return None
    return found
