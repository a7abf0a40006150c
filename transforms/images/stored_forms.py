"""What bytes of an image show before it is decoded: scans of a JPEG, odd BMP and WebP."""

from __future__ import annotations

import struct

import numpy as np

_SCAN = b"\xff\xda"  # the marker at the beginning of a JPEG's scan
_SCAN_NUMBER = int.from_bytes(_SCAN, "little")


def count_scans(data: bytes, enough: int) -> int:
    """Returns the number of scans of a JPEG, or at most `enough` where there can be no more."""
    # The marker cannot be among the pixels; in thumbnails and comments it may be.
    # As numbers of two bytes, from each of the first two on: `bytes.count` takes five times as
    # long, which is a fiftieth of all that is done to a photo.
    begins = (0, 1)[: len(data)]
    pairs = (np.frombuffer(data, "<u2", (len(data) - at) // 2, at) for at in begins)
    scans = sum(int(np.count_nonzero(numbers == _SCAN_NUMBER)) for numbers in pairs)
    return scans if scans <= enough else _count(data)


def _count(data: bytes) -> int:
    """Returns the number of scans of a JPEG, without those of images in its segments."""
    scans, at = 0, 2
    while 0 <= (at := data.find(b"\xff", at)) < len(data) - 3:
        marker = data[at + 1]
        if marker in (0x00, 0xFF) or 0xD0 <= marker <= 0xD8:  # a byte of pixels, or no segment
            at += 1 if marker == 0xFF else 2
            continue
        if marker == 0xD9:  # the end of the image
            break
        scans += marker == _SCAN[1]
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return scans


def is_portable(format_name: str, mode: str, data: bytes) -> bool:
    """Returns whether TensorFlow's decoders give the pixels of these bytes that Pillow gives.

    Of a BMP they take a palette's numbers for grey, and know neither other headers and bits a pixel
    nor compression; of a WebP with alpha they refuse three channels.
    """
    if format_name == "BMP":
        header_bytes, bits, compression = struct.unpack_from("<I10xHI", data, 14)
        is_grey = bits == 8 and mode == "L"
        return header_bytes >= 40 and compression == 0 and (is_grey or bits in (24, 32))
    return not (format_name == "WEBP" and mode == "RGBA")
