"""What bytes of an image show before it is decoded: scans of a JPEG, what is a TGA, what is odd."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

_SCAN = b"\xff\xda"  # the marker at the beginning of a JPEG's scan
_END = 0xD9  # the marker at the end of a JPEG
_SCAN_NUMBER = int.from_bytes(_SCAN, "little")
_BLOCK_BYTES = 1 << 20
_INPUT_BYTES = 1 << 16  # of what is decompressed, at once
_IS_MARKER = np.ones(256, np.bool_)
_IS_MARKER[[0x00, 0x01, 0xFF, *range(0xD0, 0xD9)]] = False  # a byte of pixels, or without a segment
_BMP = struct.Struct("<I4xii2xHI")  # from where the pixels begin
_PNG = struct.Struct(">II5B")  # width, height, bits, colour, compression, filtering, interlacing
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour
_ADAM7 = (  # of each pass the first column and row, and from one to the next
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
    (0, 1, 1, 2),
)  # fmt: skip
MOST_PNG_SIDE = 1_000_000  # libpng reads no more
_CHUNK = struct.Struct(">I4s")  # of a PNG: bytes and name
_TGA = struct.Struct("<xBB9xHHBB")  # palette, kind, width, height, bits a pixel, flags
_TGA_BITS: dict[int, tuple[int, ...]] = {1: (8,), 2: (16, 24, 32), 3: (1, 8, 16)}  # by kind
_CRC = struct.Struct(">I")


def count_scans(data: bytes, enough: int) -> int:
    """Returns the number of scans of a JPEG, or at most `enough` where there can be no more."""
    # The marker cannot be among the pixels; in thumbnails and comments it may be.
    # As numbers of two bytes, from each of the first two on: `bytes.count` takes five times as
    # long, which is a fiftieth of all that is done to a photo.
    begins = (0, 1)[: len(data)]
    pairs = (np.frombuffer(data, "<u2", (len(data) - at) // 2, at) for at in begins)
    scans = sum(int(np.count_nonzero(numbers == _SCAN_NUMBER)) for numbers in pairs)
    return scans if scans <= enough else list(_markers(data)).count(_SCAN[1])


def _markers(data: bytes) -> Iterator[int]:
    """Yields the markers of a JPEG up to its end, without those of images in its segments."""
    at = 2
    for first in range(0, len(data) - 1, _BLOCK_BYTES):
        block = np.frombuffer(data, np.uint8, min(_BLOCK_BYTES + 1, len(data) - first), first)
        begins = np.flatnonzero(block[:-1] == 0xFF)
        for begin in (begins[_IS_MARKER[block[begins + 1]]] + first).tolist():
            if begin < at:
                continue
            marker = data[begin + 1]
            yield marker
            if marker == _END:
                return
            at = begin + 2 + int.from_bytes(data[begin + 2 : begin + 4], "big")


def is_tga(data: bytes) -> bool:
    """Returns whether bytes may be a TGA, which has no signature: its header says what it can."""
    if len(data) < _TGA.size:
        return False
    has_palette, kind, width, height, bits, flags = _TGA.unpack_from(data)
    return (
        has_palette <= 1
        and kind & ~0x08 in (1, 2, 3)
        and bits in _TGA_BITS[kind & 0x07]
        and min(width, height) > 0
        and flags < 0x40
        and (has_palette == 1 or kind & 0x07 != 1)
    )


def is_portable(format_name: str, image: Any, data: bytes) -> bool:
    """Returns whether TensorFlow's decoders give the pixels of whole files that Pillow gives.

    Of a BMP they take a palette's numbers for grey, know neither other headers and bits a pixel nor
    compression, and want the file to end with the pixels. Of CMYK they believe Adobe's marker,
    without which Pillow takes it to be there. Of a WebP with alpha they refuse three channels,
    and of one that says to be an animation, even of one frame.
    """
    if format_name == "BMP":
        if int.from_bytes(data[14:18], "little") < 40:
            return False
        begin, width, height, bits, compression = _BMP.unpack_from(data, 10)
        is_known = bits in (24, 32) or (bits == 8 and image.mode == "L")
        rows = (width * bits // 8 + 3) // 4 * 4 * abs(height)
        return compression == 0 and is_known and begin + rows == len(data)
    if format_name == "JPEG":
        return image.mode != "CMYK" or "adobe_transform" in image.info
    is_animation = data[12:16] == b"VP8X" and data[20] & 2 > 0
    return not (format_name == "WEBP" and (image.mode == "RGBA" or is_animation))


def is_whole(format_name: str, image: Any, data: bytes) -> bool:
    """Returns whether a PNG or JPEG has its end, and a PNG right checksums and all pixels.

    TensorFlow's decoders refuse it without. Pillow looks no further than the pixels, and leaves
    those black that a PNG ends before.

    Args:
      format_name: Pillow's.
      image: decoded by Pillow.
      data: of the file.
    """
    if format_name == "JPEG":
        return _END in _markers(data)
    return format_name != "PNG" or (_has_whole_chunks(data) and _has_all_pixels(image, data))


def _has_all_pixels(image: Any, data: bytes) -> bool:
    """Returns whether a PNG of whole chunks has all pixels, of which Pillow leaves the rest 0."""
    # The last two rows: in one of them is the last pixel, also where they are interlaced. Only
    # where one is black the file is decompressed once more.
    last = np.asarray(image.crop((0, max(image.height - 2, 0), *image.size)))
    if last.reshape(len(last), -1).any(axis=1).all():
        return True
    width, height, bits, colour, _, _, interlacing = _PNG.unpack_from(data, 16)
    bits *= _PNG_CHANNELS[colour]
    sizes = [(width, height)]
    if interlacing:
        sizes = [
            ((width - x + right - 1) // right, (height - y + down - 1) // down)
            for x, y, right, down in _ADAM7
        ]
    missing = sum((1 + (w * bits + 7) // 8) * h for w, h in sizes if w > 0 and h > 0)
    stream = zlib.decompressobj()
    with suppress(zlib.error):
        for kind, begin, end in _chunks(data):
            for at in range(begin, end, _INPUT_BYTES) if kind == b"IDAT" else ():
                rest = data[at : min(at + _INPUT_BYTES, end)]
                while rest and missing > 0 and not stream.eof:
                    missing -= len(stream.decompress(rest, _BLOCK_BYTES))
                    rest = stream.unconsumed_tail
    return missing <= 0


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields name, begin and end of the content of chunks of a PNG, up to its end or a cut one."""
    at, kind = 8, b""
    while kind != b"IEND" and at + 12 <= len(data):
        size, kind = _CHUNK.unpack_from(data, at)
        begin = at + 8
        at = begin + size + 4  # behind its checksum
        if at > len(data):
            return
        yield kind, begin, begin + size


def _has_whole_chunks(data: bytes) -> bool:
    """Returns whether a PNG is one for libpng: a known header, and whole chunks, intact ones."""
    width, height, _, colour, compression, filtering, interlacing = _PNG.unpack_from(data, 16)
    if max(width, height) > MOST_PNG_SIDE or compression or filtering or interlacing > 1:
        return False
    seen = set[bytes]()
    for kind, begin, end in _chunks(data):
        is_critical = not kind[0] & 0x20
        if is_critical and zlib.crc32(data[begin - 4 : end]) != _CRC.unpack_from(data, end)[0]:
            return False
        if not kind.isalpha() or (is_critical and kind not in (b"IHDR", b"PLTE", b"IDAT", b"IEND")):
            return False
        if kind in seen and kind != b"IDAT":
            return False
        if kind == b"PLTE" and ((end - begin) % 3 or not 0 < end - begin <= 768):
            return False
        if is_critical:
            seen.add(kind)
        if kind == b"IEND":
            return colour != 3 or b"PLTE" in seen
    return False
