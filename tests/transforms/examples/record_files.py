"""TFRecord files made by code, for tests: by our encoder, and by none."""

from __future__ import annotations

import gzip
import itertools
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recordmill.records.codec.framing import frame_in_place, scan_records
from recordmill.transforms.examples.record_source import RecordFileRange


def framed(records: Sequence[bytes]) -> bytes:
    """Returns the bytes of a TFRecord file."""
    offsets = np.cumsum([0, *(len(record) + 16 for record in records)]).astype(np.int64)
    buffer = np.zeros(int(offsets[-1]), np.uint8)
    for record, begin in zip(records, offsets[:-1].tolist(), strict=True):
        buffer[begin + 12 : begin + 12 + len(record)] = np.frombuffer(record, np.uint8)
    frame_in_place(buffer, offsets)
    return buffer.tobytes()


def unframed(data: bytes) -> list[bytes]:
    """Returns the records of a TFRecord file."""
    offsets, used, problem = scan_records(np.frombuffer(data, np.uint8))
    assert used == len(data), problem
    return [data[a + 12 : b - 4] for a, b in itertools.pairwise(offsets)]


def packed(data: bytes, compression: str) -> bytes:
    """Returns bytes compressed as TensorFlow does: "", "GZIP" or "ZLIB"."""
    if compression == "GZIP":
        return gzip.compress(data, mtime=0)
    return zlib.compress(data) if compression == "ZLIB" else data


def write_records(path: Path, records: Sequence[bytes], compression: str = "") -> RecordFileRange:
    """Writes a TFRecord file; returns what a work item has of it."""
    content = packed(framed(records), compression)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return RecordFileRange(str(path), path.name, "tfrecord", "", len(content))


def _varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, bytes]) -> bytes:
    """Returns a message of protobuf: its fields by tag, each of bytes."""
    return b"".join(bytes([tag]) + _varint(len(content)) + content for tag, content in fields)


Value = int | float | str | bytes | list[int] | list[float] | list[str] | list[bytes] | None


def feature(value: Value) -> bytes:
    """Returns a serialized Feature; None is one without a kind."""
    if value is None:
        return b""
    values: list[Any] = value if isinstance(value, list) else [value]
    if values and isinstance(values[0], str | bytes):
        texts = [v.encode() if isinstance(v, str) else v for v in values]
        return message((0x0A, message(*((0x0A, text) for text in texts))))
    packed_values = b"".join(
        struct.pack("<f", v) if isinstance(v, float) else _varint(v) for v in values
    )
    content = message((0x0A, packed_values)) if values else b""
    return message((0x12 if values and isinstance(values[0], float) else 0x1A, content))


def example(**features: Value) -> bytes:
    """Returns a serialized tf.Example, as protobuf writes it."""
    entries = [
        (0x0A, message((0x0A, name.encode()), (0x12, feature(value))))
        for name, value in features.items()
    ]
    return message((0x0A, message(*entries))) if entries else b""
