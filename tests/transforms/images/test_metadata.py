"""Images whose metadata would take gigabytes or hours to read are refused before that."""

from __future__ import annotations

import io
import struct
import time
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image

from recordmill.records.errors import UsageError
from recordmill.transforms.images.decoding import ImageRejectedError, decode, probe
from recordmill.transforms.images.image_spec import DecodeSpec
from recordmill.transforms.images.metadata import MOST_PAGES, exif_bytes, read_pages

from ...pictures import drawn, encoded, jpeg

_SHORT, _LONG, _BYTE = 3, 4, 1
_PAGE = (
    (256, _SHORT, 1, 8), (257, _SHORT, 1, 8), (258, _SHORT, 1, 8), (259, _SHORT, 1, 1),
    (262, _SHORT, 1, 1), (273, _LONG, 1, 8), (277, _SHORT, 1, 1), (278, _SHORT, 1, 8),
    (279, _LONG, 1, 64),
)  # fmt: skip
_MB = 1_000_000


def tiff(
    entries: Sequence[tuple[int, int, int, int]], pages: int = 1, size: int = 0, order: str = "<"
) -> bytes:
    """A TIFF of pages with the same tags `(tag, type, count, value)`, and zeros behind them."""
    out = bytearray({"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 8))
    for page in range(pages):
        following = len(out) + 6 + 12 * len(entries) if page + 1 < pages else 0
        out += struct.pack(f"{order}H", len(entries))
        for tag, kind, count, value in entries:
            out += struct.pack(f"{order}HHI", tag, kind, count)
            is_short = kind == _SHORT and count == 1
            out += struct.pack(f"{order}H2x" if is_short else f"{order}I", value)
        out += struct.pack(f"{order}I", following)
    return bytes(out) + bytes(max(64, size - len(out)))


def overlapping(tags: int, size: int, order: str = "<") -> bytes:
    """A TIFF whose tags all name the same bytes."""
    same = [(40_000 + i, _BYTE, size - 20_000, 20_000) for i in range(tags)]
    return tiff([*_PAGE, *same], size=size, order=order)


def png_with_exif(exif: bytes) -> bytes:
    whole = encoded(drawn(), "PNG")
    at = whole.index(b"IDAT") - 4
    chunk = b"eXIf" + exif
    length, checksum = struct.pack(">I", len(exif)), struct.pack(">I", zlib.crc32(chunk))
    return whole[:at] + length + chunk + checksum + whole[at:]


def webp_with_exif(exif: bytes) -> bytes:
    out = io.BytesIO()
    drawn().save(out, "WEBP", exif=exif)
    return out.getvalue()


def avif_with_exif(exif: bytes) -> bytes:
    plain = tiff(_PAGE, size=len(exif))
    whole = encoded(drawn(), "AVIF", exif=plain)
    assert whole.count(plain) == 1
    return whole.replace(plain, exif)


def jpeg_with_segments(body: bytes, count: int, marker: int = 0xE1) -> bytes:
    data = jpeg()
    segment = bytes((0xFF, marker)) + (len(body) + 2).to_bytes(2, "big") + body
    return data[:2] + segment * count + data[2:]


def gif_with_comment(blocks: int, comments: int = 1) -> bytes:
    whole = encoded(drawn().convert("P"), "GIF")
    at = 13 + (3 << (whole[10] & 7) + 1)  # behind the colours
    comment = b"!\xfe" + (b"\xff" + b"x" * 255) * blocks + b"\0"
    return whole[:at] + comment * comments + whole[at:]


BOMBS = {
    "tags of a TIFF": lambda: overlapping(60, 20 * _MB),
    "tags of a big-endian TIFF": lambda: overlapping(60, 20 * _MB, ">"),
    "pages of a TIFF": lambda: tiff([*_PAGE, (40_000, _BYTE, 19 * _MB, 30_000)], 60, 20 * _MB),
    "a tile": lambda: tiff(
        [*(e for e in _PAGE if e[0] not in (273, 278, 279)), (322, _LONG, 1, 40_000),
         (323, _LONG, 1, 40_000), (324, _LONG, 1, 200), (325, _LONG, 1, 64)]
    ),
    "EXIF of a PNG": lambda: png_with_exif(overlapping(60, 20 * _MB)),
    "EXIF of a WebP": lambda: webp_with_exif(overlapping(60, 20 * _MB)),
    "EXIF of an AVIF": lambda: avif_with_exif(overlapping(3_000, _MB)),
    "EXIF of a JPEG": lambda: jpeg_with_segments(b"Exif\0\0" + overlapping(2_500, 60_000), 1),
    "index of an MPO": lambda: jpeg_with_segments(b"MPF\0" + overlapping(2_500, 60_000), 1, 0xE2),
    "segments of a JPEG": lambda: jpeg_with_segments(b"Exif\0\0" + bytes(65_000), 500),
    "bytes before the first scan": lambda: jpeg_with_segments(bytes(65_000), 1_100, 0xFE),
    "a comment of a GIF": lambda: gif_with_comment(5_000),
    "comments of a GIF": lambda: gif_with_comment(1, 2_000),
    "comments of a PGM": lambda: b"P2 9 9 9\n" + b"#\n" * 500_000 + b"1 " * 81,
}  # fmt: skip


@pytest.mark.parametrize("what", BOMBS)
def test_metadata_that_takes_too_much_is_a_reject_in_no_time(what: str) -> None:
    data = BOMBS[what]()
    began = time.process_time()
    with pytest.raises(ImageRejectedError, match=r"(bytes|pixels), at most \d+") as caught:
        decode(data, DecodeSpec(), channels=3)
    assert caught.value.reason == "decompression_bomb"
    assert time.process_time() - began < 2


def test_very_many_pages_are_not_searched() -> None:
    began = time.process_time()
    assert decode(tiff(_PAGE, 30_000), DecodeSpec(), channels=1).image.size == (8, 8)
    with pytest.raises(ImageRejectedError, match="TIFF of 1001 frames"):
        decode(tiff(_PAGE, 30_000), DecodeSpec(gif="reject"), channels=1)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("pages", [1, 2, 30, MOST_PAGES, MOST_PAGES + 1])
@pytest.mark.parametrize("order", ["<", ">"])
def test_pages_are_counted_as_pillow_counts_them(pages: int, order: str) -> None:
    data = tiff(_PAGE, pages, order=order)
    assert read_pages(data).count == pages
    assert probe(data, DecodeSpec()).frames == pages
    if pages == 30:
        assert Image.open(io.BytesIO(data)).n_frames == pages  # type: ignore[attr-defined]


def test_pages_in_a_circle_are_counted_once() -> None:
    data = bytearray(tiff(_PAGE))
    data[8 + 2 + 12 * len(_PAGE) :][:4] = struct.pack("<I", 8)
    data[10 + 12 * len(_PAGE) : 14 + 12 * len(_PAGE)] = struct.pack("<I", 8)
    assert read_pages(bytes(data)).count == 1
    assert probe(bytes(data), DecodeSpec()).frames == 1


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_deflate"])
@pytest.mark.parametrize("big", [False, True])
def test_tags_of_usual_files_are_a_few_bytes(compression: str, big: bool) -> None:
    out = io.BytesIO()
    drawn().save(out, "TIFF", compression=compression, big_tiff=big, dpi=(72, 72))
    pages = read_pages(out.getvalue())
    assert pages.count == 1
    assert pages.copied_bytes < 100
    assert decode(out.getvalue(), DecodeSpec(), channels=3).header.format == "TIFF"


def test_copied_bytes_are_those_of_tags() -> None:
    data = tiff([*_PAGE, (40_000, _BYTE, 1000, 200), (40_001, _SHORT, 500, 200)], size=3000)
    assert read_pages(data).copied_bytes == 2000
    beyond = tiff([*_PAGE, (40_000, _BYTE, 1 << 31, 200), (40_001, _BYTE, 9, 1 << 31)], size=3000)
    assert read_pages(beyond).copied_bytes == 2800  # up to the end of the file
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "x" * 300
    assert exif_bytes(exif.tobytes()) == 301
    assert exif_bytes(None) == exif_bytes(b"") == exif_bytes(b"Exif\0\0") == 0


def test_the_orientation_of_usual_files_is_read() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for form in ("JPEG", "PNG", "WEBP", "AVIF"):
        out = io.BytesIO()
        drawn(40, 20).save(out, form, exif=exif)
        assert decode(out.getvalue(), DecodeSpec(), channels=3).image.size == (20, 40), form


def test_comments_of_usual_gifs_are_no_reason() -> None:
    frames = [drawn(seed=i).convert("P") for i in range(5)]
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], comment=b"x" * 30_000)
    assert probe(out.getvalue(), DecodeSpec()).frames == 5


def test_any_bytes_can_be_read() -> None:
    rng = np.random.default_rng(1)
    for begin in (b"II*\0", b"MM\0*", b"II+\0", b"\xff\xd8\xff", b"GIF89a", b""):
        for size in (*range(20), 100, 1000):
            data = begin + rng.bytes(size)
            with pytest.raises(ImageRejectedError):
                decode(data, DecodeSpec(), channels=3)


def test_the_limit_is_a_number_of_bytes() -> None:
    with pytest.raises(
        UsageError, match=r"^DecodeSpec\.max_metadata_bytes must be at least 1, got 0"
    ):
        DecodeSpec(max_metadata_bytes=0)
    out = io.BytesIO()
    drawn().save(out, "TIFF", dpi=(72, 72))
    with pytest.raises(ImageRejectedError, match=r"metadata of \d\d bytes, at most 5"):
        decode(out.getvalue(), DecodeSpec(max_metadata_bytes=5), channels=3)
