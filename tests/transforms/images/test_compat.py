"""Canaries: they fail when a release changes what `pillow_internals.py` relies on."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from typing import Any

import pytest
from PIL import Image, ImageFile

from recordmill.transforms.images import pillow_internals as compat
from recordmill.transforms.images.image_spec import MAX_PIXELS

from ...pictures import BROKEN, chunk, drawn, encoded, jpeg, png, text_bomb, turned_jpeg


def pillow_error(data: bytes) -> Exception:
    """What Pillow itself raises for some bytes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Image.open(io.BytesIO(data)).load()
    except Exception as error:
        return error
    pytest.fail("Pillow raises nothing")


def cut_animation() -> bytes:
    """A PNG whose animation control chunk is too short."""
    return png()[:33] + chunk(b"acTL", struct.pack(">I", 2)) + png()[33:]


@pytest.mark.parametrize(
    ("data", "message", "reason"),
    [
        (jpeg()[:-200], compat.TRUNCATION_MESSAGES[0], "truncated_image"),
        (BROKEN["cut.png"][0], compat.TRUNCATION_MESSAGES[0], "truncated_image"),
        (cut_animation(), compat.TRUNCATION_MESSAGES[1], "truncated_image"),
        (text_bomb(), compat.TEXT_BOMB_MESSAGE, "decompression_bomb"),
    ],
)
def test_messages_that_pillow_raises_are_the_ones_matched(data: bytes, message: str, reason: str):
    error = pillow_error(data)
    assert message in str(error)
    assert compat.classify_pillow_error(error) == reason


def test_types_that_pillow_raises_are_the_ones_matched():
    assert isinstance(pillow_error(BROKEN["bomb.png"][0]), Image.DecompressionBombError)
    assert compat.classify_pillow_error(EOFError()) == "truncated_image"
    assert compat.classify_pillow_error(pillow_error(BROKEN["flipped.png"][0])) == "broken_image"


def test_the_limit_of_pixels_is_pillows_own():
    assert Image.MAX_IMAGE_PIXELS is not None
    assert 2 * Image.MAX_IMAGE_PIXELS == MAX_PIXELS


def test_exif_before_the_pixels_of_a_png_is_seen_without_decoding(monkeypatch: Any):
    exif = Image.Exif()
    exif[0x0112] = 6
    with_exif = encoded(drawn(), "PNG", exif=exif)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("decoded"))
    for data, expected in ((png(), 1), (with_exif, 6), (turned_jpeg(3), 3)):
        assert compat.exif_orientation(Image.open(io.BytesIO(data))) == expected


def test_the_end_of_a_zip_states_its_members():
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for number in range(5):
            archive.writestr(f"{number}.jpg", b"")
    assert compat.stated_zip_members(target) == 5
    assert compat.stated_zip_members(io.BytesIO(b"none")) == -1


def test_exif_of_an_avif_is_what_pillow_loads_when_it_opens_one(monkeypatch):
    exif = Image.Exif()
    exif[0x010E] = "a description"
    data = encoded(drawn(), "AVIF", exif=exif.tobytes())
    loaded = []
    monkeypatch.setattr(Image.Exif, "load", lambda self, data: loaded.append(data))
    Image.open(io.BytesIO(data))
    assert loaded == [compat.avif_exif(data)]
    assert b"a description" in loaded[0]
    assert compat.avif_exif(data[:60]) is compat.avif_exif(encoded(drawn(), "AVIF")) is None
