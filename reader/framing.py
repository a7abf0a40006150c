"""TFRecord framing in plain Python, for readers of single records.

A record on disk is its length (uint64, little-endian), the masked crc32c of these 8 bytes, its
data, and the masked crc32c of the data. Source: TensorFlow, core/lib/io/record_writer.cc.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Protocol


class Stream(Protocol):
    """What records are read from: a file, or what decompresses one."""

    def read(self, size: int, /) -> bytes:
        """Returns `size` bytes, fewer at the end."""


HEADER_BYTES = 12
FOOTER_BYTES = 4


def masked_crc32c(data: bytes) -> int:
    """Returns the masked crc32c of TFRecord framing."""
    import google_crc32c

    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def record_length(header: bytes) -> int:
    """Returns the length of a record's data, in bytes.

    Args:
      header: the first 12 bytes of the record.

    Raises:
      ValueError: they are cut, or the checksum of the length does not match.
    """
    if len(header) < HEADER_BYTES:
        raise ValueError("the file ends inside a record")
    length, checksum = struct.unpack_from("<QI", header)
    if masked_crc32c(header[:8]) != checksum:
        raise ValueError("the checksum of the length does not match")
    return int(length)


def read_record(file: Stream, most: int) -> bytes | None:
    """Reads the record at the position of an open file; returns None at the file's end.

    Args:
      file: a file or a stream.
      most: the longest record, in bytes: a longer one is taken for damage.

    Raises:
      ValueError: the record is cut or longer, or a checksum does not match.
    """
    header = file.read(HEADER_BYTES)
    if not header:
        return None
    length = record_length(header)
    if length > most:
        raise ValueError(f"a record of {length} bytes is longer than the file")
    content = file.read(length + FOOTER_BYTES)
    if len(content) < length + FOOTER_BYTES:
        raise ValueError("the file ends inside a record")
    data = content[:length]
    if struct.pack("<I", masked_crc32c(data)) != content[length:]:
        raise ValueError("the checksum of the data does not match")
    return data


def skip_records(file: IO[bytes], count: int) -> int:
    """Moves an open file over `count` records without reading them; returns how many there were.

    Raises:
      ValueError: a record is cut, or the checksum of its length does not match.
    """
    for done in range(count):
        header = file.read(HEADER_BYTES)
        if not header:
            return done
        file.seek(record_length(header) + FOOTER_BYTES, 1)
    return count


def records_of(file: Stream, most: int) -> Iterator[bytes]:
    """Yields the records of an open file from its position on; see `read_record`."""
    while (record := read_record(file, most)) is not None:
        yield record
