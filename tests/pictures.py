"""Pictures made by code, for the tests of images: whole ones of every kind, and broken ones."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image, ImageDraw


def drawn(width: int = 48, height: int = 32, seed: int = 0) -> Image.Image:
    """A smooth picture without symmetry: red grows to the right, green downwards, and a disc."""
    across = np.linspace(20, 220, width)[None, :].repeat(height, 0)
    down = np.linspace(30, 200, height)[:, None].repeat(width, 1)
    blue = np.full((height, width), 40 + 10 * (seed % 10))
    image = Image.fromarray(np.stack([across, down, blue], axis=-1).astype(np.uint8))
    x, y, r = width * (0.2 + 0.05 * (seed % 5)), height * 0.3, min(width, height) / 6
    ImageDraw.Draw(image).ellipse((x - r, y - r, x + r, y + r), fill=(200, 60, 250))
    return image


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def jpeg(width: int = 48, height: int = 32, seed: int = 0, **options: Any) -> bytes:
    return encoded(drawn(width, height, seed), "JPEG", **{"quality": 95, **options})


def png(width: int = 48, height: int = 32, seed: int = 0) -> bytes:
    return encoded(drawn(width, height, seed), "PNG")


def turned_jpeg(orientation: int, width: int = 48, height: int = 32) -> bytes:
    """A JPEG whose EXIF says that it must be turned."""
    return turned("JPEG", orientation, width, height)


def turned(form: str, orientation: int, width: int = 48, height: int = 32) -> bytes:
    """An image whose EXIF says that it must be turned."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(drawn(width, height), form, exif=exif)


def animated(form: str = "GIF", frames: int = 3) -> bytes:
    images = [drawn(seed=n) for n in range(frames)]
    return encoded(images[0], form, save_all=True, append_images=images[1:], duration=40)


def one_frame_webp() -> bytes:
    """A WebP that says to be an animation, of one frame."""

    def part(kind: bytes, data: bytes) -> bytes:
        return kind + struct.pack("<I", len(data)) + data

    still = encoded(drawn(), "WEBP", lossless=True)
    size = (47).to_bytes(3, "little") + (31).to_bytes(3, "little")
    body = part(b"VP8X", b"\2\0\0\0" + size) + part(b"ANIM", bytes(6))
    body += part(b"ANMF", bytes(6) + size + b"\x64\0\0\0" + still[12:])
    return part(b"RIFF", b"WEBP" + body)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(
    width: int, height: int, *, depth: int = 8, colour: int = 0, interlaced: bool = False,
    rows: bytes = b"",
) -> bytes:  # fmt: skip
    """A PNG with any header, whether its pixels fit or not."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    palette = chunk(b"PLTE", bytes(range(6))) if colour == 3 else b""
    pixels = chunk(b"IDAT", zlib.compress(rows))
    chunks = chunk(b"IHDR", header) + palette + pixels + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def png_16_bit_rgb() -> bytes:
    """2 x 1 pixels of 16 bits a channel."""
    return png_of(2, 1, depth=16, colour=2, rows=struct.pack(">B6H", 0, 0x12FF, 0, 1, 65535, 7, 9))


def grey_16_bit(form: str = "PNG") -> bytes:
    return encoded(Image.fromarray(np.array([[0x0100, 0x12FF], [0xFFFF, 7]], np.uint16)), form)


def bomb() -> bytes:
    """Some bytes that claim to be 900 megapixels."""
    return png_of(30_000, 30_000, depth=1, rows=bytes(100))


def text_bomb() -> bytes:
    """A PNG with a text chunk that unpacks to 64 MiB."""
    whole = png()
    text = chunk(b"zTXt", b"comment\0\0" + zlib.compress(bytes(64 << 20)))
    return whole[:33] + text + whole[33:]


def palette() -> Image.Image:
    return drawn().quantize(16)


# name -> bytes that are an image
WHOLE: dict[str, bytes] = {
    "rgb.jpg": jpeg(),
    "grey.jpg": encoded(drawn().convert("L"), "JPEG"),
    "cmyk.jpg": encoded(drawn().convert("CMYK"), "JPEG", quality=95),
    "progressive.jpg": jpeg(progressive=True),
    "turned.jpg": turned_jpeg(6),
    "rgb.png": png(),
    "rgba.png": encoded(drawn().convert("RGBA"), "PNG"),
    "palette.png": encoded(palette(), "PNG"),
    "transparent_palette.png": encoded(palette(), "PNG", transparency=0),
    "grey.png": encoded(drawn().convert("L"), "PNG"),
    "grey_alpha.png": encoded(drawn().convert("LA"), "PNG"),
    "one_bit.png": encoded(drawn().convert("1"), "PNG"),
    "grey_16.png": grey_16_bit(),
    "rgb_16.png": png_16_bit_rgb(),
    "rgb.webp": encoded(drawn(), "WEBP", quality=90),
    "rgba.webp": encoded(drawn().convert("RGBA"), "WEBP", lossless=True),
    "still.gif": encoded(drawn(), "GIF"),
    "animated.gif": animated(),
    "animated.webp": animated("WEBP"),
    "animated.png": animated("PNG"),
    "rgb.bmp": encoded(drawn(), "BMP"),
    "rgb.tiff": encoded(drawn(), "TIFF"),
    "deflate.tif": encoded(drawn(), "TIFF", compression="tiff_deflate"),
    "pages.tif": animated("TIFF"),
    "grey_16.tif": grey_16_bit("TIFF"),
    "cmyk.tif": encoded(drawn().convert("CMYK"), "TIFF"),
    "rgb.jp2": encoded(drawn(), "JPEG2000"),
    "grey_16.j2k": encoded(
        Image.fromarray(np.full((9, 8), 0x12FF, np.uint16)), "JPEG2000", no_jp2=True
    ),
    "rgb.avif": encoded(drawn(), "AVIF", quality=100),
    "animated.avif": animated("AVIF"),
    "rgb.tga": encoded(drawn(), "TGA"),
    "runs.tga": encoded(palette(), "TGA", compression="tga_rle"),
    "rgb.ppm": encoded(drawn(), "PPM"),
    "grey.pgm": encoded(drawn().convert("L"), "PPM"),
    "one_bit.pbm": encoded(drawn().convert("1"), "PPM"),
}  # fmt: skip

# name -> bytes that are none, and the reason
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty.jpg": (b"", "empty_image"),
    "text.jpg": (b"<html>404</html>", "not_an_image"),
    "cut.jpg": (jpeg()[:-200], "truncated_image"),
    "cut.png": (png(400, 300)[:-1000], "truncated_image"),
    "cut.gif": (encoded(drawn(), "GIF")[:-300], "truncated_image"),
    "cut.bmp": (encoded(drawn(), "BMP")[:-300], "truncated_image"),
    "cut.webp": (encoded(drawn(), "WEBP")[:-100], "broken_image"),
    "cut.jp2": (encoded(drawn(), "JPEG2000")[:-100], "broken_image"),
    "header.jp2": (encoded(drawn(), "JPEG2000")[:40], "broken_image"),
    "cut.avif": (encoded(drawn(), "AVIF")[:-100], "broken_image"),
    "header.avif": (encoded(drawn(), "AVIF")[:60], "broken_image"),
    "cut.tga": (encoded(drawn(), "TGA")[:-300], "truncated_image"),
    "cut.pgm": (encoded(drawn().convert("L"), "PPM")[:-100], "truncated_image"),
    "floats.ppm": (
        encoded(Image.fromarray(np.ones((4, 4), np.float32)), "PPM"), "unsupported_pixels"
    ),
    "signature.png": (png()[:8] + b"nothing that is a chunk", "broken_image"),
    "signature.jpg": (b"\xff\xd8\xff\xe0 and no more", "broken_image"),
    "flipped.png": (png()[:200] + b"\0\0\0" + png()[203:], "broken_image"),
    "zero.png": (png_of(0, 5), "zero_size"),
    "zero.gif": (b"GIF89a\0\0\5\0" + bytes(40), "zero_size"),
    "zero.bmp": (b"BM" + bytes(12) + struct.pack("<IiiHH24x", 40, 0, 5, 1, 24), "zero_size"),
    "bomb.png": (bomb(), "decompression_bomb"),
    "text_bomb.png": (text_bomb(), "decompression_bomb"),
    "floats.tif": (
        encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"), "unsupported_pixels"
    ),
    "integers.tif": (
        encoded(Image.fromarray(np.ones((4, 4), np.int32)), "TIFF"), "unsupported_pixels"
    ),
}  # fmt: skip
