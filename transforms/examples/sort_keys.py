"""`--order=key`: keys of 64 bits that rise with the value of a feature.

Shards and blocks are ranges of keys, so keys should be spread evenly whatever values there are: a
sample of the values says how. Each value of the sample has a range of keys as wide as it is
frequent, in which the hash of a record's content decides; between two of them lies a range of one
unit, in which the distance to them does. Values that share a key are told apart when a block is
ordered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.feature_values import BYTES, FLOATS, INTS, find_feature
from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES
from recordmill.records.hashing import U64
from recordmill.records.schema import DType
from recordmill.records.state import Count
from recordmill.transforms.examples.run_records import OrderedRecords

SAMPLED = 4096  # values
_SHOWN_BYTES = 64  # of a text in the sample
_KINDS: dict[DType, int] = {"int64": INTS, "float32": FLOATS, "bytes": BYTES}
_NAMES = {number: name for name, number in _KINDS.items()}
_NUMBERS = range(1 << 64)
_TO_UNIT = 1.0 / (1 << 53)
Values = U64 | list[bytes]


class KeySplits(msgspec.Struct, frozen=True):
    """A sample of the values of a feature.

    Attributes:
      feature: its name.
      dtype: of the feature.
      values: that occur, ascending: numbers in the order of `ordered_numbers`, or bytes.
      counts: how often each does.
    """

    feature: str
    dtype: DType
    values: tuple[int | bytes, ...]
    counts: tuple[Count, ...]

    def __post_init__(self) -> None:
        is_text = self.dtype == "bytes"
        for value in self.values:
            fits = isinstance(value, bytes) if is_text else value in _NUMBERS
            if not fits:
                raise ValueError(f"values of {self.dtype} cannot be {value!r:.40}")


def sample_values(found: Sequence[tuple[Bytes, Int64s, Int64s]], feature: str) -> KeySplits | None:
    """Returns the sample of the values of a feature in framed records; None where none has it.

    Args:
      found: data, begins and ends of batches of records, from all over the input.
      feature: its name.
    """
    kinds = np.concatenate([[], *(find_feature(*each, feature).kinds for each in found)])
    present = kinds[kinds >= 0].astype(np.int64)
    if not len(present):
        return None
    dtype = _NAMES[int(np.bincount(present).argmax())]
    values: list[Any] = []
    for data, begins, ends in found:
        _, those = feature_values(data, begins, ends, feature, dtype)
        values += those if isinstance(those, list) else those.tolist()
    values.sort()
    chosen = values[:: max(1, len(values) // SAMPLED)]
    if dtype == "bytes":
        chosen = sorted(value[:_SHOWN_BYTES] for value in chosen)
    counts: dict[Any, int] = {}
    for value in chosen:
        counts[value] = counts.get(value, 0) + 1
    return KeySplits(feature, dtype, tuple(counts), tuple(counts.values()))


def feature_values(
    data: Bytes, begins: Int64s, ends: Int64s, feature: str, dtype: str
) -> tuple[Int64s, Values]:
    """Returns the records that have a feature of a type, and its first value in each.

    Args:
      data: `[bytes] uint8`.
      begins, ends: `[num_records] int64`: of each record with its frame.
      feature: its name.
      dtype: of the feature.

    Returns:
      `[n] int64`, ascending, and `[n]` bytes or `ordered_numbers`.
    """
    lists = find_feature(data, begins, ends, feature)
    if dtype == "bytes":
        rows, strings = lists.strings()
        filled = np.diff(strings.row_splits) > 0
        first = strings.row_splits[:-1][filled]
        starts, lengths = strings.starts[first], strings.lengths[first]
        each = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        return rows[filled], [data[begin:end].tobytes() for begin, end in each]
    rows, numbers = lists.ints() if dtype == "int64" else lists.floats()
    filled = np.diff(numbers.row_splits) > 0
    return rows[filled], ordered_numbers(numbers.values[numbers.row_splits[:-1][filled]])


def ordered_numbers(values: npt.NDArray[Any]) -> U64:
    """Returns `[n] uint64` in the order of int64 or float32; NaN is above and below all others."""
    if values.dtype == np.int64:
        return values.view(np.uint64) ^ np.uint64(1 << 63)
    bits = np.where(values == 0, np.float32(0), values).view(np.uint32)
    flipped = np.where(bits >> np.uint32(31), ~bits, bits | np.uint32(1 << 31))
    return flipped.astype(np.uint64) << np.uint64(32)


class KeyMaker:
    """Makes keys of records.

    Args:
      splits: the sample.
    """

    def __init__(self, splits: KeySplits) -> None:
        self._splits = splits
        counts = np.array(splits.counts, np.uint64)
        units = np.uint64(len(counts) + 1) + counts.sum()
        self._step = (1 << 64) // (int(units) + 1)
        before = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)
        # Where the gap before each value begins; the value itself begins a unit later.
        self._gaps = (before + np.arange(len(before), dtype=np.uint64)) * np.uint64(self._step)
        self._widths = np.append(counts, np.uint64(1)) * np.uint64(self._step)
        self._numbers = np.zeros(0, np.uint64)
        if splits.dtype != "bytes":
            self._numbers = np.array(splits.values, np.uint64)

    @property
    def wanted(self) -> str:
        """What records must have, for messages."""
        return f"it needs a value of {self._splits.feature}, which is {self._splits.dtype}"

    def keys(self, data: Bytes, begins: Int64s, ends: Int64s, hashes: U64) -> tuple[Bools, U64]:
        """Returns which records have the feature, and `[num_records] uint64` keys, 0 of others.

        Args:
          data: `[bytes] uint8`.
          begins, ends: `[num_records] int64`: of each record with its frame.
          hashes: `[num_records] uint64`: of their contents.
        """
        splits = self._splits
        rows, values = feature_values(data, begins, ends, splits.feature, splits.dtype)
        has: Bools = np.zeros(len(begins), np.bool_)
        has[rows] = True
        keys = np.zeros(len(begins), np.uint64)
        if len(rows):
            found = self._of_texts(values) if isinstance(values, list) else self._of_numbers(values)
            keys[rows] = self._keys(*found, hashes[rows])
        return has, keys

    def _keys(
        self, places: Int64s, equal: Bools, shares: npt.NDArray[np.float64], hashes: U64
    ) -> U64:
        """Returns keys: of a value in the sample by the hash, of others by their share of a gap."""
        step = np.uint64(self._step)
        drawn = (hashes >> np.uint64(11)).astype(np.float64) * _TO_UNIT
        widths = np.where(equal, self._widths[places], step)
        inside = (np.where(equal, drawn, shares) * widths.astype(np.float64)).astype(np.uint64)
        begins = self._gaps[places] + np.where(equal, step, np.uint64(0))
        inside = np.minimum(inside, (widths - np.uint64(1)).astype(np.uint64))
        return (begins + inside).astype(np.uint64)

    def _of_numbers(self, values: U64) -> tuple[Int64s, Bools, npt.NDArray[np.float64]]:
        known = self._numbers
        places = np.searchsorted(known, values, "left").astype(np.int64)
        padded = np.concatenate([known, [np.uint64((1 << 64) - 1)]]).astype(np.uint64)
        equal = (places < len(known)) & (padded[places] == values)
        low = np.where(places > 0, padded[places - 1], np.uint64(0))
        # Integers are subtracted before they are floats, which have too few bits for them.
        width = np.maximum(padded[places] - low, np.uint64(1)).astype(np.float64)
        shares = (values - low).astype(np.float64) / width
        # Nobody knows how far the values beyond the sample reach: each octave gets as much.
        if len(known):
            above, below = places == len(known), places == 0
            shares[above] = _octaves(values[above] - known[-1])
            shares[below] = 1 - _octaves(known[0] - values[below])
        return places, equal, shares

    def _of_texts(self, values: list[bytes]) -> tuple[Int64s, Bools, npt.NDArray[np.float64]]:
        known: Sequence[Any] = self._splits.values
        places = np.array([bisect_left(known, value) for value in values], np.int64)
        equal = np.zeros(len(values), np.bool_)
        shares = np.zeros(len(values), np.float64)
        for i, (value, place) in enumerate(zip(values, places.tolist(), strict=True)):
            if place == len(known):
                shares[i] = _distance(value, known[-1])
            elif value == known[place]:
                equal[i] = True
            elif place:
                shares[i] = _share(value, known[place - 1], known[place])
            else:
                shares[i] = 1 - _distance(value, known[0])
        return places, equal, shares


def _octaves(distances: U64) -> npt.NDArray[np.float64]:
    """Returns the logarithm of distances to the base 2^64, or nearly: it is linear in octaves."""
    bits = np.maximum(distances, np.uint64(1)).astype(np.float64).view(np.uint64)
    found: npt.NDArray[np.float64] = (bits - np.uint64(1023 << 52)).astype(np.float64)
    return np.minimum(found / float(64 << 52), 1.0)


def _distance(value: bytes, known: bytes) -> float:
    """Returns how far a text is from the least or greatest of the sample, in (0, 1].

    Nobody knows what such texts have in common: a half are those whose first byte is another one, a
    quarter those that share one byte with it, and so on.
    """
    shared = _shared(value, known)
    at, there = (
        int.from_bytes(text[shared : shared + 6].ljust(6, b"\0"), "big") for text in (value, known)
    )
    return float(0.5 ** (min(shared, 40) + 1) * (1 + abs(at - there) / (1 << 48)))


def _shared(first: bytes, second: bytes) -> int:
    for at, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return at
    return min(len(first), len(second))


def _share(value: bytes, low: bytes, high: bytes) -> float:
    """Returns where a text lies between two others, in [0, 1], by bytes behind what they share."""
    shared = _shared(low, high)
    at, first, last = (
        int.from_bytes(text[shared : shared + 6].ljust(6, b"\0"), "big")
        for text in (value, low, high)
    )
    return min(max((at - first) / max(last - first, 1), 0.0), 1.0)


def settle(records: OrderedRecords, splits: KeySplits) -> OrderedRecords:
    """Returns records in order of their key, value and content.

    Args:
      records: in order of their keys, without the header of run files.
      splits: that made the keys.
    """
    order = _settled(records.data, records.offsets, records.keys, splits.feature, splits.dtype)
    if order is None:
        return records
    begins, ends = records.offsets[:-1][order].tolist(), records.offsets[1:][order].tolist()
    data = np.concatenate([records.data[a:b] for a, b in zip(begins, ends, strict=True)])
    offsets = np.concatenate([[0], np.cumsum(np.diff(records.offsets)[order])]).astype(np.int64)
    return OrderedRecords(data, offsets, records.keys, records.repeats)


def _settled(data: Bytes, offsets: Int64s, keys: U64, feature: str, dtype: str) -> Int64s | None:
    """Returns the order by key, value and content; None where there is nothing to be ordered."""
    same = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(same):
        return None
    members = np.unique(np.concatenate([same, same + 1]))
    begins, ends = offsets[:-1][members], offsets[1:][members]
    rows, values = feature_values(data, begins, ends, feature, dtype)
    known = dict(zip(rows.tolist(), values if isinstance(values, list) else values.tolist(),
                     strict=True))  # fmt: skip
    order = np.arange(len(keys), dtype=np.int64)
    order[members] = members[
        sorted(
            range(len(members)),
            key=lambda i: (
                int(keys[members[i]]),
                known[i],
                data[begins[i] + HEADER_BYTES : ends[i] - FOOTER_BYTES].tobytes(),
            ),
        )
    ]
    return order
