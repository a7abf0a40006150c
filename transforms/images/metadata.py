"""How much of an image's metadata Pillow would copy: kilobytes of tags can name the same megabytes.

Tags of TIFF, and those of EXIF, which has its form, name bytes anywhere in the file, and many may
name the same; Pillow copies them for each. EXIF in many segments of a JPEG, and comments of a GIF
in blocks of 255 bytes, it copies again with each that it adds. What is counted here are these
copies, by reading the tags' headers alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from recordmill.transforms.images.pillow_internals import avif_exif

MOST_PAGES = (
    1000  # of a TIFF that are looked at: Pillow's own search takes the square of their number
)

_PPM_BLOCK_BYTES = 1 << 20

_TAG_BYTES = np.zeros(1 << 16, np.float64)
_TAG_BYTES[1:14] = (1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4)  # by type
_TAG_BYTES[16] = 8
_WIDTH, _HEIGHT = 322, 323  # tags: of a tile


@dataclass(frozen=True, slots=True)
class Pages:
    """What the headers of a TIFF show.

    Attributes:
      count: of its pages, at most `MOST_PAGES + 1`.
      copied_bytes: what reading its tags copies.
      tile_pixels: of the largest tile; 0 without tiles.
    """

    count: int
    copied_bytes: int
    tile_pixels: int


def excess_metadata(data: bytes, most_bytes: int, most_pixels: int) -> str:
    """Returns what is too much about the metadata of an image, before Pillow reads it, or "".

    Args:
      data: the image.
      most_bytes: that may be copied.
      most_pixels: of a tile of a TIFF, which is decoded whole however small the image is.
    """
    if data.startswith((b"II", b"MM")):
        pages = read_pages(data)
        copied = pages.copied_bytes
        if pages.tile_pixels > most_pixels:
            return f"a tile of {pages.tile_pixels} pixels, at most {most_pixels}"
    elif data.startswith(b"\xff\xd8\xff"):
        copied = _jpeg_bytes(data)
    elif data[4:8] == b"ftyp":
        copied = exif_bytes(avif_exif(data))
    elif data.startswith((b"P1", b"P2", b"P3")):  # a comment copies the rest of its block
        copied = data.count(b"#") * min(len(data), _PPM_BLOCK_BYTES)
    else:
        copied = _comment_bytes(data) if data.startswith(b"GIF8") else 0
    return f"metadata of {copied} bytes, at most {most_bytes}" if copied > most_bytes else ""


def count_frames(image: Any, format_name: str, data: bytes) -> int:
    """Returns how many frames or pages an image has that Pillow opened; of a TIFF at most 1001."""
    if format_name == "JPEG":
        return 1
    if format_name == "TIFF" and (count := read_pages(data).count) > MOST_PAGES:
        return count
    return int(getattr(image, "n_frames", 1))


def exif_bytes(exif: object) -> int:
    """Returns how many bytes reading EXIF copies, of the value of "exif" in `Image.info`."""
    if not isinstance(exif, bytes):
        return 0
    while exif.startswith(b"Exif\0\0"):
        exif = exif[6:]
    return read_pages(exif, most=1).copied_bytes


def read_pages(data: bytes, *, most: int = MOST_PAGES) -> Pages:
    """Reads the headers of a TIFF, or of what has its form, up to where they make no sense."""
    order = "<" if data[:2] == b"II" else ">"
    is_big = data[2:3] == b"\x2b"
    wide, head, count_bytes = ("u8", 16, 8) if is_big else ("u4", 8, 2)
    entry = np.dtype([("tag", f"{order}u2"), ("type", f"{order}u2"),
                      ("count", f"{order}{wide}"), ("value", f"{order}{wide}")])  # fmt: skip
    inline = np.dtype(wide).itemsize
    at = _whole(data, head - inline, inline, order)
    pages, copied, tile, seen = 0, 0.0, 0, set[int]()
    while head <= at < len(data) and at not in seen and pages <= most:
        seen.add(at)
        pages += 1
        begin = at + count_bytes
        stated = _whole(data, at, count_bytes, order)
        number = min(stated, max(0, len(data) - begin) // entry.itemsize)
        entries = np.frombuffer(data, entry, number, min(begin, len(data)))
        sizes = entries["count"] * _TAG_BYTES[entries["type"]]
        there = np.maximum(0.0, len(data) - entries["value"].astype(np.float64))
        copied += float(np.minimum(sizes, there)[sizes > inline].sum())
        tile = max(
            tile, _value(data, entries, _WIDTH, order) * _value(data, entries, _HEIGHT, order)
        )
        at = _whole(data, begin + number * entry.itemsize, inline, order)
    return Pages(pages, int(copied), tile)


def _whole(data: bytes, at: int, size: int, order: str) -> int:
    return int.from_bytes(data[at : at + size], "little" if order == "<" else "big")


def _value(data: bytes, entries: np.ndarray, tag: int, order: str) -> int:
    """Returns a number that a tag has, the largest where there are several; 0 without the tag."""
    found = entries[(entries["tag"] == tag) & (entries["count"] > 0)]
    largest = 0
    for each in found:
        size = int(_TAG_BYTES[each["type"]])
        if size:
            wide = each.dtype["value"].itemsize
            stored = int(each["value"]).to_bytes(wide, "little" if order == "<" else "big")
            largest = max(largest, _whole(stored, 0, min(size, wide), order))
    return largest


def _jpeg_bytes(data: bytes) -> int:
    """Returns the bytes before the first scan, and what EXIF in them makes Pillow copy."""
    exif: list[bytes] = []
    copied = size = 0
    at = 2
    for at, marker in _segments(data):
        if marker == 0xDA:
            break
        body = data[at + 4 : at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")]
        if marker == 0xE1 and body.startswith(b"Exif\0\0"):
            size += len(body)
            copied += size
            exif.append(body[6:])
        elif marker == 0xE2 and body.startswith(b"MPF\0"):  # where the images of an MPO are
            copied += exif_bytes(body[4:])
    return at + copied + exif_bytes(b"".join(exif))


def _segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields where the segments of a JPEG begin, and their markers, up to the end of the file."""
    at = 2
    while 0 <= (at := data.find(b"\xff", at)) < len(data) - 3:
        marker = data[at + 1]
        if marker in (0x00, 0xFF) or 0xD0 <= marker <= 0xD9:
            at += 1 if marker == 0xFF else 2
            continue
        yield at, marker
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    yield len(data), 0


def _comment_bytes(data: bytes) -> int:
    """Returns what the comments of a GIF make Pillow copy."""
    if b"!\xfe" not in data:
        return 0
    copied = size = 0
    at = 13 + (3 << (data[10] & 7) + 1 if data[10:11] and data[10] & 0x80 else 0)
    while at < len(data) - 1:
        kind, what = data[at], data[at + 1]
        is_comment = kind == 0x21 and what == 0xFE
        if kind == 0x2C:  # a frame, with its own colours and a byte before the blocks
            size = 0
            flags = data[at + 9] if at + 9 < len(data) else 0
            at += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
        elif kind == 0x21:
            at += 2
        else:  # Pillow passes over it
            at += 1
            continue
        while at < len(data) and (block := data[at]):
            if is_comment:
                size += block
                copied += size
            at += block + 1
        at += 1
        if is_comment:
            size += 1
            copied += size
    return copied
