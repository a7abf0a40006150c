"""Varints, tags and lengths as protobuf writes them, for kernels that encode messages."""

from __future__ import annotations

import numpy as np

from recordmill.records.codec.framing import Bytes
from recordmill.records.codec.jit import subroutine


@subroutine
def varint_size(value: np.uint64) -> int:
    """Returns the bytes of a varint."""
    size = 1
    while value >= np.uint64(128):
        value >>= np.uint64(7)
        size += 1
    return size


@subroutine
def put_varint(out: Bytes, at: int, value: np.uint64) -> int:
    """Writes a varint; returns the offset after it."""
    while value >= np.uint64(128):
        out[at] = np.uint8((value & np.uint64(127)) | np.uint64(128))
        value >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(value)
    return at + 1


@subroutine
def message_size(content: int) -> int:
    """Returns the bytes of a length-delimited field with so many bytes of content."""
    return 1 + varint_size(np.uint64(content)) + content


@subroutine
def put_tag(out: Bytes, at: int, tag: int, content: int) -> int:
    """Writes the tag and the length of a field; returns where its content begins."""
    out[at] = np.uint8(tag)
    return put_varint(out, at + 1, np.uint64(content))


@subroutine
def put_bytes(out: Bytes, at: int, data: Bytes, start: int, length: int) -> int:
    """Copies bytes; returns the offset after them."""
    # Unsigned indices cannot count from the end, so the compiler copies many bytes at once.
    to, source = np.uint64(at), np.uint64(start)
    for i in range(np.uint64(length)):
        out[to + i] = data[source + i]
    return at + length
