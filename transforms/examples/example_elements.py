"""Elements of a PCollection as framed records: serialized bytes, or dicts of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.encoding import Column, Ragged, Strings, encode_batch
from recordmill.records.codec.framing import OVERHEAD_BYTES, frame_in_place
from recordmill.records.errors import WrongElementError
from recordmill.records.hashing import U64, fingerprint64
from recordmill.records.schema import DType, Feature, Schema
from recordmill.transforms.examples.table_columns import BEYOND_FLOAT32, BEYOND_INT64

# A serialized record, or feature -> a value, a list or an array of them; None is no value.
Record: TypeAlias = bytes | Mapping[str, Any]
Key: TypeAlias = str | bytes | int
_HEADER = b"\0" * 12
_FOOTER = b"\0" * 4
_MOST_INT64 = (1 << 63) - 1
_Values: TypeAlias = "npt.NDArray[Any] | list[bytes]"


def frame_records(records: Sequence[bytes]) -> tuple[Bytes, Int64s]:
    """Returns records with their frames, and where each begins and the last ends."""
    sizes = [len(record) + OVERHEAD_BYTES for record in records]
    offsets = np.cumsum([0, *sizes], dtype=np.int64)
    joined = bytearray().join(part for each in records for part in (_HEADER, each, _FOOTER))
    buffer = np.frombuffer(joined, np.uint8)
    frame_in_place(buffer, offsets)
    return buffer, offsets


def encode_elements(elements: Sequence[Record]) -> list[tuple[Bytes, Int64s, list[int]]]:
    """Encodes elements, those of the same features and types together.

    Args:
      elements: bytes are taken as they are; a dict becomes a tf.Example.

    Returns:
      `[bytes] uint8` framed records, `[n + 1] int64` offsets, and the positions of the elements.

    Raises:
      WrongElementError: an element, or a value of one, is of a type that no record can hold.
    """
    groups: dict[tuple[tuple[str, DType], ...] | None, list[int]] = {}
    values: dict[int, dict[str, _Values]] = {}
    for position, element in enumerate(elements):
        if isinstance(element, bytes):
            groups.setdefault(None, []).append(position)
            continue
        found = values[position] = _features(element)
        kinds = tuple((name, _dtype(each)) for name, each in sorted(found.items()))
        groups.setdefault(kinds, []).append(position)
    encoded = []
    for group, positions in groups.items():
        if not group:  # bytes, and dicts without a value
            plain = [e if isinstance(e := elements[p], bytes) else b"" for p in positions]
            encoded.append((*frame_records(plain), positions))
            continue
        schema = Schema(tuple(Feature(name, dtype, (None,), "") for name, dtype in group))
        columns = {
            name: _column(name, dtype, [values[p][name] for p in positions])
            for name, dtype in group
        }
        batch = encode_batch(schema, columns)
        encoded.append((batch.buffer, batch.offsets, positions))
    return encoded


def encode_in_order(elements: Sequence[Record]) -> tuple[Bytes, Int64s, Int64s]:
    """Encodes elements into one buffer.

    Returns:
      `[bytes] uint8` framed records, and `[n] int64`: where each begins and ends, in the order of
      the elements, in which they need not lie.

    Raises:
      WrongElementError: as `encode_elements`.
    """
    begins, ends = np.empty(len(elements), np.int64), np.empty(len(elements), np.int64)
    parts: list[Bytes] = []
    before = 0
    for data, offsets, positions in encode_elements(elements):
        begins[positions] = offsets[:-1] + before
        ends[positions] = offsets[1:] + before
        parts.append(data)
        before += len(data)
    return parts[0] if len(parts) == 1 else np.concatenate(parts), begins, ends


def checked_element(element: Record) -> bytes | dict[str, Any]:
    """Returns an element that can be encoded.

    Raises:
      WrongElementError: it, or a value of it, is of a type that no record can hold.
    """
    if isinstance(element, bytes):
        return element
    found = _features(element)
    for name, values in found.items():
        if not isinstance(values, list):
            _to_dtype(name, _dtype(values), values)
    return found


def _features(element: object) -> dict[str, _Values]:
    if not isinstance(element, Mapping):
        raise WrongElementError(
            "WriteExamples takes bytes or dicts of values, lists and arrays, got "
            f"{type(element).__name__}"
        )
    return {name: _values(name, value) for name, value in element.items() if value is not None}


def _values(name: object, value: Any) -> _Values:
    """Returns the values of a feature, in one dimension."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise WrongElementError(f"a feature's name must be printable text, got {name!r:.80}")
    if isinstance(value, str | bytes):
        value = [value]
    if isinstance(value, list | tuple) and value and isinstance(value[0], str | bytes):
        return [_text(name, each) for each in value]
    array = np.asarray(value)
    if not isinstance(value, np.ndarray):
        # NumPy makes texts of numbers beside text, and floats of integers beyond 64 bits.
        if array.dtype.kind in "US":
            array = np.asarray(value, object)
        elif array.dtype.kind == "f" and not isinstance(_first(value), float | np.floating):
            each = np.asarray(value, object).reshape(-1)
            if each.size and all(isinstance(one, Integral) for one in each):
                array = _integers(name, each.tolist())
    if array.dtype.kind in "US" or (array.dtype == object and array.size):
        return [_text(name, each) for each in array.reshape(-1).tolist()]
    if array.dtype.kind not in "iubf":
        raise WrongElementError(
            f"feature {name} must have numbers, text or bytes, got {type(value).__name__} of "
            f"{array.dtype}"
        )
    if array.dtype.kind == "u":
        _check_int64(name, int(array.max(initial=0)))
        array = array.astype(np.int64)  # beside int64, NumPy would make uint64 a float
    return array.reshape(-1)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) and value else value


def _integers(name: str, values: list[Any]) -> npt.NDArray[Any]:
    for each in values:
        _check_int64(name, int(each))
    return np.array(list(map(int, values)), np.int64)


def _check_int64(name: str, number: int) -> None:
    if not -_MOST_INT64 - 1 <= number <= _MOST_INT64:
        raise WrongElementError(f"feature {name} has a number {BEYOND_INT64}: {number}")


def _to_dtype(name: str, dtype: DType, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns numbers as int64 or float32.

    Raises:
      WrongElementError: one becomes infinite by that.
    """
    try:
        with np.errstate(over="raise"):
            return numbers.astype(np.float32 if dtype == "float32" else np.int64, copy=False)
    except FloatingPointError as error:
        largest = np.abs(numbers[np.isfinite(numbers)]).max()
        raise WrongElementError(
            f"feature {name} has a number {BEYOND_FLOAT32}: {largest}"
        ) from error


def _text(name: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, int):
        _check_int64(name, value)
    raise WrongElementError(
        f"feature {name} must have values of one type, and has {type(value).__name__}"
    )


def _dtype(values: _Values) -> DType:
    if isinstance(values, list):
        return "bytes"
    return "float32" if values.dtype.kind == "f" else "int64"


def _column(name: str, dtype: DType, rows: Sequence[Any]) -> Column:
    counts = [len(row) for row in rows]
    splits = np.cumsum([0, *counts], dtype=np.int64)
    if dtype == "bytes":
        flat = Strings.from_list([value for row in rows for value in row])
        return Strings(flat.pool, flat.starts, flat.lengths, splits)
    return Ragged(_to_dtype(name, dtype, np.concatenate(rows)), splits)


def size_of(element: object) -> int:
    """Returns about how many bytes an element takes as a record."""
    if isinstance(element, bytes):
        return len(element)
    if not isinstance(element, Mapping):
        return 0
    return 64 + sum(_bytes_of(value) for value in element.values())


def _bytes_of(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, list | tuple):
        return (
            sum(map(_bytes_of, value))
            if value and isinstance(value[0], str | bytes)
            else (8 * len(value))
        )
    return 8


def hash_keys(elements: Iterable[Any], key: Callable[[Any], Key]) -> U64:
    """Returns `[n] uint64`: the hashes of the keys of elements.

    Raises:
      WrongElementError: a key is neither text, bytes nor an integer.
    """
    return np.array([_hash_key(key(element)) for element in elements], np.uint64)


def _hash_key(value: object) -> int:
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | bytes | int):
        raise WrongElementError(f"a key must be str, bytes or int, got {type(value).__name__}")
    if isinstance(value, bytes):
        return fingerprint64(b"b" + value)
    return fingerprint64(f"{'s' if isinstance(value, str) else 'i'}{value}".encode())
