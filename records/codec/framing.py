"""TFRecord framing: length, masked crc32c of the length, data, masked crc32c of the data.

    uint64 length | uint32 masked_crc32c(length) | data | uint32 masked_crc32c(data)

all little-endian; 16 bytes more than the data. An index line is "<offset> <size>" with the framing
counted in, as NVIDIA DALI's tfrecord2idx writes it.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import numpy.typing as npt

from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.numba_internals import crc32c_of_word, has_crc32c_instruction

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

HEADER_BYTES = 12
FOOTER_BYTES = 4
OVERHEAD_BYTES = HEADER_BYTES + FOOTER_BYTES


def _tables() -> npt.NDArray[np.uint32]:
    """Slicing-by-8 tables for the reflected Castagnoli polynomial (Kounavis and Berry 2005)."""
    tables = np.zeros((8, 256), np.uint32)
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(0x82F63B78), values >> 1)
    tables[0] = values
    for row in range(1, 8):
        tables[row] = (tables[row - 1] >> 8) ^ values[tables[row - 1] & 0xFF]
    return tables


_TABLES = _tables()


_INSTRUCTION = has_crc32c_instruction()


@subroutine
def _crc_of_words(data: Bytes, start: int, end: int) -> np.uint32:
    crc = np.uint64(0xFFFFFFFF)
    for at in range(start, end, 8):
        crc = crc32c_of_word(crc, data, at)
    return np.uint32(crc)


@subroutine
def crc32c(data: Bytes, start: int, end: int) -> np.uint32:
    """Returns the crc32c of `data[start:end]`."""
    crc = np.uint32(0xFFFFFFFF)
    at = start
    if _INSTRUCTION:
        at = start + (end - start) // 8 * 8
        crc = _crc_of_words(data, start, at)
    while at + 8 <= end:
        a = np.uint8(crc) ^ data[at]
        b = np.uint8(crc >> np.uint32(8)) ^ data[at + 1]
        c = np.uint8(crc >> np.uint32(16)) ^ data[at + 2]
        d = np.uint8(crc >> np.uint32(24)) ^ data[at + 3]
        crc = (
            _TABLES[7, a]
            ^ _TABLES[6, b]
            ^ _TABLES[5, c]
            ^ _TABLES[4, d]
            ^ _TABLES[3, data[at + 4]]
            ^ _TABLES[2, data[at + 5]]
            ^ _TABLES[1, data[at + 6]]
            ^ _TABLES[0, data[at + 7]]
        )
        at += 8
    while at < end:
        crc = _TABLES[0, np.uint8(crc) ^ data[at]] ^ (crc >> np.uint32(8))
        at += 1
    return crc ^ np.uint32(0xFFFFFFFF)


@kernel
def _checksums(data: Bytes, bounds: Offsets, found: npt.NDArray[np.uint32]) -> None:
    for i in range(bounds.shape[0] - 1):
        found[i] = crc32c(data, bounds[i], bounds[i + 1])


def checksums_between(data: Bytes, bounds: Offsets) -> npt.NDArray[np.uint32]:
    """Returns `[n] uint32`: the crc32c of `data[bounds[i] : bounds[i + 1]]`.

    Args:
      data: `[bytes] uint8`.
      bounds: `[n + 1] int64`, ascending.
    """
    found = np.empty(max(len(bounds) - 1, 0), np.uint32)
    _checksums(data, bounds, found)
    return found


@subroutine
def masked_crc32c(data: Bytes, start: int, end: int) -> np.uint32:
    """Returns the crc32c of `data[start:end]`, rotated and offset as TFRecord stores it.

    Args:
      data: `[bytes] uint8`.
      start, end: the range of bytes.
    """
    crc = crc32c(data, start, end)
    return np.uint32(((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8))


@subroutine
def _put_uint32(out: Bytes, at: int, value: np.uint32) -> None:
    for i in range(4):
        out[at + i] = np.uint8(value >> np.uint32(8 * i))


@subroutine
def _get_uint32(data: Bytes, at: int) -> np.uint32:
    value = np.uint32(0)
    for i in range(4):
        value |= np.uint32(data[at + i]) << np.uint32(8 * i)
    return value


@kernel
def frame_in_place(buffer: Bytes, offsets: Offsets) -> None:
    """Fills header and footer of every record of `buffer`.

    Args:
      buffer: `[bytes] uint8`; record i lies at `offsets[i] + 12 : offsets[i + 1] - 4`.
      offsets: `[num_records + 1] int64`, framing included.
    """
    for i in range(offsets.shape[0] - 1):
        begin = offsets[i]
        length = np.uint64(offsets[i + 1] - begin - OVERHEAD_BYTES)
        for j in range(8):
            buffer[begin + j] = np.uint8(length >> np.uint64(8 * j))
        _put_uint32(buffer, begin + 8, masked_crc32c(buffer, begin, begin + 8))
        data_end = offsets[i + 1] - FOOTER_BYTES
        crc = masked_crc32c(buffer, begin + HEADER_BYTES, data_end)
        _put_uint32(buffer, data_end, crc)


@kernel
def _scan(data: Bytes, offsets: Offsets) -> tuple[int, int, int]:
    at = 0
    count = 0
    size = data.shape[0]
    while True:
        offsets[count] = at
        if at + HEADER_BYTES > size or count + 1 >= offsets.shape[0]:
            return count, at, 0
        if masked_crc32c(data, at, at + 8) != _get_uint32(data, at + 8):
            return count, at, 1
        length = np.uint64(0)
        for j in range(8):
            length |= np.uint64(data[at + j]) << np.uint64(8 * j)
        if length > np.uint64(size - at):
            return count, at, 0
        end = at + HEADER_BYTES + np.int64(length)
        if end + FOOTER_BYTES > size:
            return count, at, 0
        if masked_crc32c(data, at + HEADER_BYTES, end) != _get_uint32(data, end):
            return count, at, 2
        at = end + FOOTER_BYTES
        count += 1


@kernel
def _walk(data: Bytes, base: int, wanted: int, step: int, starts: Offsets) -> tuple[int, int, bool]:
    at = 0
    count = 0
    while at + HEADER_BYTES <= data.shape[0]:
        if masked_crc32c(data, at, at + 8) != _get_uint32(data, at + 8):
            return at, count, False
        if base + at >= wanted:
            starts[count] = base + at
            count += 1
            wanted = base + at + step
        length = np.uint64(0)
        for j in range(8):
            length |= np.uint64(data[at + j]) << np.uint64(8 * j)
        if length >= np.uint64(1 << 62):
            return at, count, False
        at += np.int64(length) + OVERHEAD_BYTES
    return at, count, True


def walk_lengths(data: Bytes, base: int, wanted: int, step: int) -> tuple[list[int], int, bool]:
    """Walks records by their lengths alone, whose checksums are checked.

    Args:
      data: `[bytes] uint8`, from the beginning of a record on; the last may be cut.
      base: where it lies in its file.
      wanted: the first record at or behind this position is returned.
      step: and then one each so many bytes.

    Returns:
      Positions in the file of the records asked for, that of the first whose length is not in
      `data`, and whether all lengths on the way are whole.
    """
    starts = np.empty(data.shape[0] // max(step, OVERHEAD_BYTES) + 2, np.int64)
    after, count, whole = _walk(data, base, wanted, step, starts)
    return starts[:count].tolist(), base + after, bool(whole)


class FrameDefect(str, Enum):
    """A defect of the frame of a record, as text for messages; "" if there is none."""

    NONE = ""
    LENGTH = "checksum of the length does not match"  # the next record cannot be found
    DATA = "checksum of the data does not match"

    __str__ = str.__str__


_DEFECTS = tuple(FrameDefect)  # by the codes of `_scan`


def scan_records(data: Bytes) -> tuple[Offsets, int, FrameDefect]:
    """Walks the whole records at the beginning of `data` and checks both checksums of each.

    Returns:
      offsets: `[num_records + 1] int64`, framing included.
      used: the bytes walked; less than `len(data)` where a record is cut or broken.
      defect: what is wrong with the record at `used`. A record that is only cut has none.
    """
    offsets = np.empty(data.shape[0] // OVERHEAD_BYTES + 2, np.int64)
    count, used, code = _scan(data, offsets)
    return offsets[: count + 1].copy(), used, _DEFECTS[code]


@subroutine
def _put_decimal(out: Bytes, at: int, value: int) -> int:
    end = at + 1
    rest = value // 10
    while rest:
        end += 1
        rest //= 10
    for i in range(end - 1, at - 1, -1):
        out[i] = 48 + value % 10
        value //= 10
    return end


@kernel
def _put_index(out: Bytes, offsets: Offsets, base: int) -> int:
    at = 0
    for i in range(offsets.shape[0] - 1):
        at = _put_decimal(out, at, base + offsets[i])
        out[at] = 32
        at = _put_decimal(out, at + 1, offsets[i + 1] - offsets[i])
        out[at] = 10
        at += 1
    return at


def index_lines(offsets: Offsets, base: int = 0) -> bytes:
    """Returns one "<offset> <size>" line per record, for records that begin at byte `base`."""
    out = np.empty(40 * len(offsets), np.uint8)
    return out[: _put_index(out, offsets, base)].tobytes()
