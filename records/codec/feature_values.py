"""The values of one feature of many records, as arrays, without a protobuf object for any of them.

The kernel walks the wire format (see `encoding`) in the form that all writers of protobuf give it.
Records in another form, and what is no tf.Example, are told apart: whoever asks parses these alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recordmill.records.codec.checking import count_values, read_field
from recordmill.records.codec.encoding import Ragged, Strings
from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES, Bytes, Offsets
from recordmill.records.codec.jit import kernel, subroutine

OTHER_FORM, ABSENT, BYTES, FLOATS, INTS = -3, -1, 0, 1, 2


@subroutine
def _is_key(data: Bytes, begin: int, end: int, key: Bytes) -> bool:
    i = 0
    while i < key.shape[0] and begin + i < end and data[begin + i] == key[i]:
        i += 1
    return i == key.shape[0] and begin + i == end


@subroutine
def _list_of(data: Bytes, begin: int, end: int) -> tuple[int, int, int]:
    """Returns the kind of a Feature message, and where its list begins and ends."""
    if begin == end:
        return ABSENT, 0, 0
    tag = data[begin]
    kind = OTHER_FORM
    if tag == 0x0A:
        kind = BYTES
    elif tag == 0x12:
        kind = FLOATS
    elif tag == 0x1A:
        kind = INTS
    first, last = read_field(data, begin, end, tag)
    if kind == OTHER_FORM or first < 0 or last != end:
        return OTHER_FORM, 0, 0
    return kind, first, last


@subroutine
def _find_in(data: Bytes, begin: int, end: int, key: Bytes) -> tuple[int, int, int]:
    """Returns the kind of the feature in a record, and where its list begins and ends."""
    if begin == end:
        return ABSENT, 0, 0
    at, stop = read_field(data, begin, end, 0x0A)
    if at < 0 or stop != end:
        return OTHER_FORM, 0, 0
    kind, first, last = ABSENT, 0, 0
    while at < stop:
        entry, at = read_field(data, at, stop, 0x0A)
        if entry < 0:
            return OTHER_FORM, 0, 0
        name, name_end = read_field(data, entry, at, 0x0A)
        if name < 0:
            return OTHER_FORM, 0, 0
        value, value_end = read_field(data, name_end, at, 0x12)
        if value < 0 or value_end != at:
            return OTHER_FORM, 0, 0
        if _is_key(data, name, name_end, key):
            kind, first, last = _list_of(data, value, value_end)
            if kind == OTHER_FORM:
                return OTHER_FORM, 0, 0
    return kind, first, last


@kernel
def _find(
    data: Bytes, begins: Offsets, ends: Offsets, key: Bytes,
    kinds: Offsets, firsts: Offsets, lasts: Offsets, counts: Offsets,
) -> None:  # fmt: skip
    for i in range(begins.shape[0]):
        begin, end = begins[i] + HEADER_BYTES, ends[i] - FOOTER_BYTES
        kind, first, last = _find_in(data, begin, end, key)
        count = count_values(data, first, last, kind) if kind >= 0 else 0
        if count < 0:
            kind, count = OTHER_FORM, 0
        kinds[i], firsts[i], lasts[i], counts[i] = kind, first, last, count


@kernel
def _ints(data: Bytes, firsts: Offsets, lasts: Offsets, splits: Offsets, out: Offsets) -> None:
    for i in range(firsts.shape[0]):
        if splits[i] == splits[i + 1]:
            continue
        at, end = read_field(data, firsts[i], lasts[i], 0x0A)
        for j in range(splits[i], splits[i + 1]):
            value = np.uint64(0)
            shift = np.uint64(0)
            while at < end:
                byte = np.uint64(data[at])
                value |= (byte & np.uint64(127)) << shift
                shift += np.uint64(7)
                at += 1
                if byte < np.uint64(128):
                    break
            out[j] = np.int64(value)


@kernel
def _floats(
    data: Bytes, firsts: Offsets, lasts: Offsets, splits: Offsets, out: npt.NDArray[np.uint32]
) -> None:
    for i in range(firsts.shape[0]):
        if splits[i] == splits[i + 1]:
            continue
        at, _ = read_field(data, firsts[i], lasts[i], 0x0A)
        for j in range(splits[i], splits[i + 1]):
            bits = np.uint32(0)
            for k in range(4):
                bits |= np.uint32(data[at + k]) << np.uint32(8 * k)
            out[j] = bits
            at += 4


@kernel
def _strings(
    data: Bytes, firsts: Offsets, lasts: Offsets, splits: Offsets, starts: Offsets, lengths: Offsets
) -> None:
    for i in range(firsts.shape[0]):
        at = firsts[i]
        for j in range(splits[i], splits[i + 1]):
            begin, at = read_field(data, at, lasts[i], 0x0A)
            starts[j], lengths[j] = begin, at - begin


@dataclass(frozen=True, slots=True)
class FeatureLists:
    """Where the values of a feature are in records.

    Attributes:
      data: `[bytes] uint8`, the records.
      kinds: `[num_records] int64`: `INTS`, `FLOATS`, `BYTES`, `ABSENT`, or `OTHER_FORM` for a
        record that is no tf.Example in the usual form.
      firsts, lasts: `[num_records] int64`: of the list of values.
      counts: `[num_records] int64`: how many there are.
    """

    data: Bytes
    kinds: Offsets
    firsts: Offsets
    lasts: Offsets
    counts: Offsets

    def _rows(self, kind: int) -> tuple[Offsets, Offsets, Offsets, Offsets]:
        rows = np.flatnonzero(self.kinds == kind)
        splits = np.concatenate([[0], np.cumsum(self.counts[rows])]).astype(np.int64)
        return rows, self.firsts[rows], self.lasts[rows], splits

    def ints(self) -> tuple[Offsets, Ragged]:
        """Returns the records that have integers, and these, int64."""
        rows, firsts, lasts, splits = self._rows(INTS)
        out = np.empty(int(splits[-1]), np.int64)
        _ints(self.data, firsts, lasts, splits, out)
        return rows, Ragged(out, splits)

    def floats(self) -> tuple[Offsets, Ragged]:
        """Returns the records that have floats, and these, float32."""
        rows, firsts, lasts, splits = self._rows(FLOATS)
        out = np.empty(int(splits[-1]), np.uint32)
        _floats(self.data, firsts, lasts, splits, out)
        return rows, Ragged(out.view(np.float32), splits)

    def strings(self) -> tuple[Offsets, Strings]:
        """Returns the records that have byte strings, and these, in the bytes of the records."""
        rows, firsts, lasts, splits = self._rows(BYTES)
        starts, lengths = np.empty(int(splits[-1]), np.int64), np.empty(int(splits[-1]), np.int64)
        _strings(self.data, firsts, lasts, splits, starts, lengths)
        return rows, Strings(self.data, starts, lengths, splits)


def find_feature(data: Bytes, begins: Offsets, ends: Offsets, name: str) -> FeatureLists:
    """Finds the values of a feature in framed records.

    Args:
      data: `[bytes] uint8`.
      begins, ends: `[num_records] int64`: of each record with its frame.
      name: of the feature.
    """
    count = len(begins)
    kinds, firsts, lasts, counts = (np.empty(count, np.int64) for _ in range(4))
    key = np.frombuffer(name.encode(), np.uint8)
    _find(data, begins, ends, key, kinds, firsts, lasts, counts)
    return FeatureLists(data, kinds, firsts, lasts, counts)
