"""What is written shows in TensorFlow what Pillow shows of the source: over modes and formats."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.transforms.images.columns import Prepared
from recordmill.transforms.images.decoding import ImageRejectedError, decode
from recordmill.transforms.images.image_spec import DecodeSpec, ImageSpec
from recordmill.transforms.images.preparing import prepare
from recordmill.transforms.images.references import ImageReference, StoredBytes
from recordmill.transforms.images.stored_forms import is_whole

from ...pictures import (
    WHOLE,
    animated,
    chunk,
    drawn,
    encoded,
    jpeg,
    one_frame_webp,
    png,
    png_of,
    turned_jpeg,
)

MODES = (
    "1", "L", "P", "grey P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "LA", "I;16", "I",
    "F", "RGBX",
)  # fmt: skip
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "JPEG": ({}, {"progressive": True}, {"subsampling": 0, "quality": 100}, {"keep_rgb": True}),
    "PNG": ({}, {"transparency": 0}, {"bits": 2}),
    "BMP": ({},),
    "WEBP": ({}, {"lossless": True}),
    "GIF": ({}, {"transparency": 0}),
    "TIFF": ({}, {"compression": "tiff_lzw"}),
    "MPO": ({},),
    "JPEG2000": ({}, {"no_jp2": True, "irreversible": True}),
    "AVIF": ({},),
    "TGA": ({}, {"compression": "tga_rle"}),
    "PPM": ({},),
}
# How far TensorFlow's fast cosine transform, and another encoding with losses, may be from Pillow.
TOLERANCE = {"JPEG": 20.0, "WEBP": 12.0}
SPEC = ImageSpec("classification", "tfds", {}, unlabeled=True)


def picture(width: int, height: int, seed: int) -> Image.Image:
    """A smooth colourful picture, because losses are small on it."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    start = np.random.default_rng(seed).integers(0, 120, 3)
    planes = [start[0] + 4 * x, start[1] + 4 * y, start[2] + 2 * (x + y)]
    return Image.fromarray(np.clip(np.stack(planes, axis=-1), 0, 255).astype(np.uint8))


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    grey = image.convert("L")
    if mode == "P":
        return image.quantize(11)
    if mode == "grey P":
        return grey.convert("P")
    if mode == "PA":
        return image.quantize(11).convert("PA")
    if mode == "I;16":
        return Image.fromarray(np.asarray(grey).astype(np.uint16) * 257 + 77)
    if mode in ("RGBA", "LA"):
        image.putalpha(grey)
        return image.convert(mode)
    if mode in ("I", "F"):
        return grey.convert(mode)
    return image.convert(mode)


def variants(width: int, height: int, seed: int) -> Iterator[tuple[str, bytes]]:
    for form, options in OPTIONS.items():
        for mode in MODES:
            for option in options:
                target = io.BytesIO()
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # modes that Pillow will not write
                        in_mode(picture(width, height, seed), mode).save(target, form, **option)
                except (OSError, ValueError, TypeError, KeyError):
                    continue  # the format has no such mode
                yield f"{form} {mode} {option}", target.getvalue()
    yield from bitmaps(width, height)


def bitmap(
    width: int, height: int, bits: int, *, compression: int = 0, rows: bytes = b"",
    palette: bytes = b"", header: int = 40, masks: bytes = b"",
) -> bytes:  # fmt: skip
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        info = struct.pack(
            "<IiiHHIIiiII", header, width, height, 1, bits, compression, len(rows), 0, 0, 0, 0
        ) + bytes(header - 40)
    at = 14 + len(info) + len(masks) + len(palette)
    return struct.pack("<2sIHHI", b"BM", at + len(rows), 0, 0, at) + info + masks + palette + rows


def bitmaps(width: int, height: int) -> Iterator[tuple[str, bytes]]:
    """Bitmaps that Pillow does not write."""
    random = np.random.default_rng(width * height)

    def rows(bits: int) -> bytes:
        size = (width * bits + 31) // 32 * 4
        return random.integers(0, 256, size * height, np.uint8).tobytes()

    def greys(values: Any) -> bytes:
        return b"".join(bytes([v, v, v, 0]) for v in values)

    colours = random.integers(0, 256, 1024, np.uint8).tobytes()
    yield "24 bits", bitmap(width, height, 24, rows=rows(24))
    yield "24 bits, top down", bitmap(width, -height, 24, rows=rows(24))
    yield "24 bits, V4", bitmap(width, height, 24, rows=rows(24), header=108)
    yield "24 bits, V5", bitmap(width, height, 24, rows=rows(24), header=124)
    yield "24 bits, OS/2", bitmap(width, height, 24, rows=rows(24), header=12)
    yield "32 bits", bitmap(width, height, 32, rows=rows(32))
    masks = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
    yield "32 bits, masks", bitmap(width, height, 32, compression=3, rows=rows(32), masks=masks)
    yield "16 bits", bitmap(width, height, 16, rows=rows(16))
    yield "8 bits, grey", bitmap(width, height, 8, rows=rows(8), palette=greys(range(256)))
    back = greys(range(255, -1, -1))
    yield "8 bits, grey backwards", bitmap(width, height, 8, rows=rows(8), palette=back)
    yield "8 bits, colours", bitmap(width, height, 8, rows=rows(8), palette=colours)
    yield "4 bits", bitmap(width, height, 4, rows=rows(4), palette=colours[:64])
    yield "1 bit", bitmap(width, height, 1, rows=rows(1), palette=greys((0, 255)))
    runs = b"".join(bytes([width, 9, 0, 0]) for _ in range(height)) + b"\0\1"
    yield "runs", bitmap(width, height, 8, compression=1, rows=runs, palette=colours)


@pytest.mark.parametrize(
    ("width", "height", "channels"), [(1, 1, 3), (9, 7, 3), (33, 16, 3), (17, 8, 1)]
)
def test_tensorflow_shows_what_pillow_does(width: int, height: int, channels: Any) -> None:
    tf = pytest.importorskip("tensorflow")
    spec = ImageSpec("classification", "tfds", {}, unlabeled=True, channels=channels)
    seen, wrong = 0, []
    for name, data in variants(width, height, seed=width):
        try:
            wanted = decode(data, DecodeSpec(), channels=channels).pixels.astype(int)
            found = prepare(
                ImageReference("x", StoredBytes("x")), data, None, spec, key=1, copy=None
            )
        except ImageRejectedError:
            continue
        assert isinstance(found.data, bytes)
        # TensorFlow decodes WebP to three channels alone, and so does the reader.
        asked = 3 if found.format == "WEBP" else channels
        is_exact = channels == 3 and found.format != "JPEG"
        shown = tf.io.decode_image(found.data, channels=asked, expand_animations=False).numpy()
        shown = shown[:, :, :channels]
        shown = shown.astype(int)
        # Grey of colours is rounded.
        tolerance = 0 if is_exact else TOLERANCE.get(found.format, 1.0)
        if shown.shape != wanted.shape or np.abs(shown - wanted).mean() > tolerance:
            wrong.append((name, np.abs(shown - wanted).max()))
        seen += 1
    assert seen > 50
    assert not wrong


@pytest.mark.parametrize(
    ("name", "passed"),
    [
        ("24 bits", True), ("24 bits, top down", True), ("8 bits, grey", True), ("32 bits", True),
        ("8 bits, colours", False), ("8 bits, grey backwards", False), ("1 bit", False),
        ("4 bits", False), ("16 bits", False), ("24 bits, OS/2", False), ("32 bits, masks", False),
    ],
)  # fmt: skip
def test_which_bitmaps_are_kept_byte_for_byte(name: str, passed: bool) -> None:
    data = dict(bitmaps(9, 7))[name]
    found = written(data)
    assert (found.data == data) is passed
    assert found.format == ("BMP" if passed else "PNG")


def written(data: bytes) -> Prepared:
    reference = ImageReference("x", StoredBytes("x"))
    return prepare(reference, data, None, SPEC, key=1, copy=None)


def with_flaw(kind: bytes, data: bytes) -> bytes:
    """A PNG with a wrong checksum of its last chunk of a kind."""
    end = data.rindex(kind) + 4 + int.from_bytes(data[data.rindex(kind) - 4 :][:4], "big")
    return data[:end] + bytes([data[end] ^ 1]) + data[end + 1 :]


CMYK = encoded(drawn().convert("CMYK"), "JPEG", quality=95)


def with_alpha() -> Image.Image:
    image = drawn()
    image.putalpha(90)
    return image


ODD: dict[str, bytes] = {
    "BMP with bytes behind its pixels": encoded(drawn(), "BMP") + b"\0\0",
    "PNG without an end": png()[:-12],
    "PNG cut in its end": png()[:-1],
    "PNG with a wrong checksum of pixels": with_flaw(b"IDAT", png()),
    "PNG with a wrong checksum of its end": with_flaw(b"IEND", png()),
    "PNG with a chunk that must be known": png()[:-12] + chunk(b"ABcD", b"") + png()[-12:],
    "PNG with two headers": png()[:33] + png()[8:33] + png()[33:],
    "PNG whose pixels end early": png_of(8, 8, rows=(b"\0" + b"w" * 8) * 5),
    "JPEG without an end": jpeg()[:-2] + b"\xff\xe4",
    "CMYK without Adobe's marker": CMYK.replace(b"Adobe", b"Other"),
    "WebP of one animation frame": one_frame_webp(),
    "WebP with alpha": encoded(with_alpha(), "WEBP", lossless=True),
    "WebP with alpha and losses": encoded(with_alpha(), "WEBP", quality=50),
}
KEPT: dict[str, bytes] = {
    "PNG with bytes behind its end": png() + b"behind the end",
    "PNG with a comment": png()[:33] + chunk(b"tEXt", b"Comment\0x") + png()[33:],
    "JPEG with bytes behind its end": jpeg() + b"behind the end",
    "progressive JPEG": jpeg(progressive=True),
    "JPEG with EXIF": turned_jpeg(1),
    "CMYK": CMYK,
}


@pytest.mark.parametrize("name", ODD)
def test_what_tensorflow_does_not_show_is_written_anew_without_loss(name: str) -> None:
    data = ODD[name]
    tf = pytest.importorskip("tensorflow")
    wanted = decode(data, DecodeSpec(), channels=3).pixels
    found = written(data)
    assert found.format == "PNG"
    np.testing.assert_array_equal(tf.io.decode_png(found.data, channels=3).numpy(), wanted)
    # There is a reason.
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        shown = tf.io.decode_image(data, channels=3).numpy()
        assert shown.shape != wanted.shape or np.abs(shown - wanted.astype(int)).max() > 50


def test_of_several_frames_the_first_is_written_without_loss() -> None:
    data = animated("WEBP")
    found = written(data)
    assert found.format == "PNG"
    wanted = decode(data, DecodeSpec(), channels=3).pixels
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(found.data))), wanted)


@pytest.mark.parametrize("name", KEPT)
def test_what_tensorflow_shows_is_kept(name: str) -> None:
    pytest.importorskip("tensorflow")
    assert written(KEPT[name]).data == KEPT[name]
    assert farthest(KEPT[name], "PNG" if "PNG" in name else "JPEG") <= 1


def farthest(data: bytes, form: str) -> int:
    """How far what TensorFlow's exact decoders show is from what Pillow does."""
    import tensorflow as tf

    if form == "JPEG":
        shown = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
    else:
        shown = tf.io.decode_image(data, channels=3)
    wanted = decode(data, DecodeSpec(), channels=3).pixels
    return int(np.abs(shown.numpy().astype(int) - wanted).max())


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(
    ("colour", "depth"),
    [(0, 1), (0, 2), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 8), (4, 8), (6, 8), (6, 16)],
)
@pytest.mark.parametrize("size", [(1, 2), (5, 7), (16, 9)])
def test_a_black_png_is_kept_where_it_has_all_of_its_pixels(
    size: tuple[int, int], colour: int, depth: int, interlaced: bool
) -> None:
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    passes = [(0, 0, 1, 1)]
    if interlaced:  # the columns and rows of each, by the standard's own picture of 8 x 8
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4)]
        passes += [(1, 0, 2, 2), (0, 1, 1, 2)]
    rows = [
        bytes(1 + (len(range(x, size[0], right)) * bits + 7) // 8)
        for x, y, right, down in passes
        for _ in range(y, size[1], down)
        if x < size[0]
    ]
    options = {"depth": depth, "colour": colour, "interlaced": interlaced}
    for kept in (rows, rows[:-1]):
        data = png_of(*size, rows=b"".join(kept), **options)
        image = Image.open(io.BytesIO(data))
        image.load()
        assert is_whole("PNG", image, data) is (kept is rows)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(["rgb.png", "palette.png", "rgb.bmp", "rgb.jpg", "cmyk.jpg", "rgb.webp"]),
    at=st.integers(-40, 120), value=st.integers(0, 255), cut=st.integers(0, 20),
)  # fmt: skip
def test_what_is_kept_of_damaged_files_tensorflow_shows(
    name: str, at: int, value: int, cut: int
) -> None:
    pytest.importorskip("tensorflow")
    data = bytearray(WHOLE[name])
    data[at] = value
    data = data[: len(data) - cut]
    try:
        found = written(bytes(data))
    except ImageRejectedError:
        return
    if found.counts.get("images_passed"):
        assert farthest(bytes(data), found.format) <= 1  # CMYK is rounded
