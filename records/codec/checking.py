"""Check framed records against their schema, without a protobuf object for any of them.

The kernel walks the wire format (see `encoding`). It accepts what the encoder writes, with the
entries of the map in any order. It reads every tag and length, so a record that passes can be
parsed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES, Bytes, Offsets
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.numba_internals import word_at
from recordmill.records.schema import Schema

_OK, _MALFORMED, _UNKNOWN, _TWICE, _MISSING, _TYPE, _COUNT = range(7)
_NO_KIND = -3
_HIGH_BITS = np.uint64(0x8080808080808080)
_FIRST_FIVE, _LAST_FIVE = np.uint64(0x0000008080808080), np.uint64(0x8080808080000000)
_ONES, _SEVEN, _FIFTY_SIX = np.uint64(0x0101010101010101), np.uint64(7), np.uint64(56)
_KINDS = ("bytes", "float32", "int64")  # in the order of the Feature message's fields


@subroutine
def _varint(data: Bytes, at: int, end: int) -> tuple[Any, int]:
    """Returns a varint below 2**63 and the offset after it; the offset is -1 if there is none."""
    value = np.uint64(0)
    for i in range(9):
        if at + i >= end:
            return 0, -1
        byte = np.uint64(data[at + i])
        value |= (byte & np.uint64(127)) << np.uint64(7 * i)
        if byte < np.uint64(128):
            return np.int64(value), at + i + 1
    return 0, -1


@subroutine
def read_field(data: Bytes, at: int, end: int, tag: int) -> tuple[int, int]:
    """Returns where the content of a length-delimited field begins and ends; -1 if it is broken."""
    if at >= end or data[at] != tag:
        return -1, -1
    length, begin = _varint(data, at + 1, end)
    if begin < 0 or length > end - begin:
        return -1, -1
    return begin, begin + length


@subroutine
def _count_varints(data: Bytes, begin: int, end: int) -> int:
    """Returns how many numbers are packed in some bytes, -1 if they are broken.

    All bytes but the last of a number have the high bit; there are 10 at most. Eight are looked at
    together, as long as none of the numbers can be longer.
    """
    count: Any = 0
    at = begin
    while at + 8 <= end:
        more = word_at(data, at) & _HIGH_BITS
        if more & _FIRST_FIVE == _FIRST_FIVE or more & _LAST_FIVE == _LAST_FIVE:
            return _count_long_varints(data, begin, end)
        count += np.int64((((more ^ _HIGH_BITS) >> _SEVEN) * _ONES) >> _FIFTY_SIX)
        at += 8
    run = 0
    while at < end:
        run += 1
        if data[at] < 128:
            count += 1
            run = 0
        elif run >= 5:
            return _count_long_varints(data, begin, end)
        at += 1
    return count if begin == end or data[end - 1] < 128 else -1


@subroutine
def _count_long_varints(data: Bytes, begin: int, end: int) -> int:
    count = 0
    run = 0
    for at in range(begin, end):
        run += 1
        if data[at] < 128:
            count += 1
            run = 0
        elif run >= 10:
            return -1
    return count if run == 0 else -1


@subroutine
def count_values(data: Bytes, begin: int, end: int, kind: int) -> int:
    """Returns the number of values in a list message, -1 if it is broken."""
    if kind == 0:
        count = 0
        while begin < end:
            _, begin = read_field(data, begin, end, 0x0A)
            if begin < 0:
                return -1
            count += 1
        return count
    if begin == end:
        return 0
    first, last = read_field(data, begin, end, 0x0A)
    if first < 0 or last != end:
        return -1
    if kind == 1:
        return (last - first) // 4 if (last - first) % 4 == 0 else -1
    return _count_varints(data, first, last)


@subroutine
def _feature(data: Bytes, begin: int, end: int) -> tuple[int, int]:
    """Returns the kind and the number of values of a Feature message; the kind -1 if broken, and
    -2 if it has neither."""
    if begin >= end:
        return (-2, 0) if begin == end else (-1, 0)
    tag = data[begin]
    if tag == 0x0A:
        kind = 0
    elif tag == 0x12:
        kind = 1
    elif tag == 0x1A:
        kind = 2
    else:
        return -1, 0
    first, last = read_field(data, begin, end, tag)
    if first < 0 or last != end:
        return -1, 0
    count = count_values(data, first, last, kind)
    return (kind, count) if count >= 0 else (-1, 0)


@subroutine
def _steps(data: Bytes, begin: int, end: int, kind: int) -> tuple[int, int, int]:
    """Returns the code, the kind and the number of steps of a FeatureList of single values."""
    count = 0
    while begin < end:
        first, begin = read_field(data, begin, end, 0x0A)
        if first < 0:
            return _MALFORMED, 0, 0
        actual, values = _feature(data, first, begin)
        if actual < 0 or values != 1:
            return _MALFORMED, 0, 0
        if actual != kind:
            return _TYPE, actual, 0
        count += 1
    return _OK, kind, count


@subroutine
def _find_key(data: Bytes, begin: int, end: int, keys: Bytes, splits: Offsets, guess: int) -> int:
    """Returns the feature whose name is `data[begin:end]`, -1 for none; tries `guess` first."""
    count = splits.shape[0] - 1
    for step in range(count):
        i = (guess + step) % count
        if splits[i + 1] - splits[i] == end - begin:
            j = 0
            while j < end - begin and data[begin + j] == keys[splits[i] + j]:
                j += 1
            if j == end - begin:
                return i
    return -1


@subroutine
def _check_record(  # noqa: C901, PLR0912 - a kernel: a call costs
    data: Bytes,
    begin: int,
    end: int,
    keys: Bytes,
    splits: Offsets,
    kinds: Offsets,
    counts: Offsets,
    optional: Bytes,
    sequence: bool,
    present: Bytes,
) -> tuple[int, int, int]:
    """Returns the code, the feature, and its actual kind or number of values."""
    present[:] = 0
    at, stop = read_field(data, begin, end, 0x12 if sequence else 0x0A)
    if begin == end and optional.all():
        return _OK, -1, 0  # an Example without features may have no bytes
    if at < 0 or stop != end:
        return _MALFORMED, -1, 0
    guess = 0
    while at < stop:
        entry, at = read_field(data, at, stop, 0x0A)
        if entry < 0:
            return _MALFORMED, -1, 0
        name, name_end = read_field(data, entry, at, 0x0A)
        if name < 0:
            return _MALFORMED, -1, 0
        value, value_end = read_field(data, name_end, at, 0x12)
        if value < 0 or value_end != at:
            return _MALFORMED, -1, 0
        feature = _find_key(data, name, name_end, keys, splits, guess)
        if feature < 0:
            return _UNKNOWN, -1, 0
        if present[feature]:
            return _TWICE, feature, 0
        present[feature] = 1
        guess = feature + 1
        if sequence:
            code, kind, count = _steps(data, value, value_end, kinds[feature])
            if code != _OK:
                return code, feature, kind
        else:
            kind, count = _feature(data, value, value_end)
            if kind == -1 or (kind == -2 and not optional[feature]):
                return _MALFORMED, feature, 0
            if kind >= 0 and kind != kinds[feature]:
                return _TYPE, feature, kind
        if counts[feature] >= 0 and count != counts[feature]:
            return _COUNT, feature, count
    for feature in range(present.shape[0]):
        if not present[feature] and not optional[feature]:
            return _MISSING, feature, 0
    return _OK, -1, 0


@kernel
def _check(
    data: Bytes,
    offsets: Offsets,
    keys: Bytes,
    splits: Offsets,
    kinds: Offsets,
    counts: Offsets,
    optional: Bytes,
    sequence: bool,
    results: Offsets,
) -> None:
    """Writes what `_check_record` returns of each record to a row of `results`."""
    present = np.zeros(kinds.shape[0], np.uint8)
    for i in range(offsets.shape[0] - 1):
        results[i, 0], results[i, 1], results[i, 2] = _check_record(
            data, offsets[i] + HEADER_BYTES, offsets[i + 1] - FOOTER_BYTES,
            keys, splits, kinds, counts, optional, sequence, present,
        )  # fmt: skip


@kernel
def _count_fitting(
    data: Bytes,
    begins: Offsets,
    ends: Offsets,
    keys: Bytes,
    splits: Offsets,
    kinds: Offsets,
    counts: Offsets,
    optional: Bytes,
    sequence: bool,
) -> int:
    present = np.zeros(kinds.shape[0], np.uint8)
    for i in range(begins.shape[0]):
        code, _, _ = _check_record(
            data, begins[i] + HEADER_BYTES, ends[i] - FOOTER_BYTES,
            keys, splits, kinds, counts, optional, sequence, present,
        )  # fmt: skip
        if code != _OK:
            return i
    return begins.shape[0]


@dataclass(frozen=True, slots=True)
class RecordDefect:
    """A record that does not fit its schema.

    Attributes:
      index: the position of the record in its batch.
      problem: the rule and the actual value, for messages.
    """

    index: int
    problem: str


class SchemaChecker:
    """A schema in the form that the kernel takes."""

    def __init__(self, schema: Schema, untyped: Collection[str] = ()) -> None:
        """Checks records of a schema.

        Args:
          schema: of the records.
          untyped: features that must have no values, because nobody knows of which type.
        """
        names = [feature.name.encode() for feature in schema.features]
        self._schema = schema
        self._keys = np.frombuffer(b"".join(names), np.uint8)
        self._splits = np.cumsum([0, *map(len, names)], dtype=np.int64)
        kinds = [_NO_KIND if f.name in untyped else _KINDS.index(f.dtype) for f in schema.features]
        self._kinds = np.array(kinds, np.int64)
        counts = [-1 if f.values is None else f.values for f in schema.features]
        self._counts = np.array(counts, np.int64)
        self._optional = np.array([f.optional for f in schema.features], np.uint8)

    def count_fitting(self, data: Bytes, begins: Offsets, ends: Offsets) -> int:
        """Returns how many records fit the schema before the first that does not.

        Args:
          data: `[bytes] uint8`.
          begins, ends: `[num_records] int64`: of each record with its frame.
        """
        return int(
            _count_fitting(
                data, begins, ends, self._keys, self._splits, self._kinds, self._counts,
                self._optional, self._schema.sequence,
            )
        )  # fmt: skip

    def check(self, data: Bytes, offsets: Offsets) -> list[RecordDefect]:
        """Returns the defects of records that do not fit the schema, in order of the records.

        Args:
          data: `[bytes] uint8`, framed records.
          offsets: `[num_records + 1] int64`, framing included, as `scan_records` returns them.
        """
        results = np.empty((len(offsets) - 1, 3), np.int64)
        _check(
            data, offsets, self._keys, self._splits, self._kinds, self._counts, self._optional,
            self._schema.sequence, results,
        )  # fmt: skip
        bad: npt.NDArray[np.int64] = np.flatnonzero(results[:, 0])
        return [RecordDefect(int(i), self._describe(*map(int, results[i]))) for i in bad]

    def _describe(self, code: int, feature: int, actual: int) -> str:
        if code == _MALFORMED:
            kind = "SequenceExample" if self._schema.sequence else "Example"
            return f"must be a tf.{kind} as recordmill encodes it, and is not"
        if code == _UNKNOWN:
            names = ", ".join(f.name for f in self._schema.features)
            return f"must have no feature but {names}, and has another"
        expected = self._schema.features[feature]
        if code == _TWICE:
            return f"feature {expected.name:.200} must be there once, and is there twice"
        if code == _MISSING:
            return f"feature {expected.name:.200} must be there, and is missing"
        if code == _TYPE:
            return f"feature {expected.name:.200} must be {expected.dtype}, and is {_KINDS[actual]}"
        return f"feature {expected.name:.200} must have {expected.values} values, and has {actual}"
