from __future__ import annotations

import io

import msgspec
import numpy as np
import pytest
from PIL import Image

from recordmill.records.errors import UsageError
from recordmill.transforms.images.decoding import (
    Header,
    ImageRejectedError,
    OpenImage,
    open_image,
)
from recordmill.transforms.images.encoding import (
    encode_image,
    encode_mask,
    passes_through,
    to_floats,
)
from recordmill.transforms.images.image_spec import DecodeSpec, EncodeSpec, ImageSpec

from ...pictures import WHOLE, drawn

SPEC = ImageSpec("classification", "tfds", {}, unlabeled=True)


class TestPassingThrough:
    @pytest.mark.parametrize(
        ("name", "passes"),
        [
            ("rgb.jpg", True), ("turned.jpg", True), ("cmyk.jpg", True), ("rgb.png", True),
            ("rgb.webp", True), ("rgb.bmp", True), ("still.gif", False), ("rgb.tiff", False),
            ("animated.png", False), ("animated.webp", False), ("rgb.jp2", False),
            ("rgb.avif", False), ("rgb.tga", False), ("rgb.ppm", False),
        ],
    )  # fmt: skip
    def test_what_readers_take(self, name, passes):
        opened = open_image(WHOLE[name], DecodeSpec())
        as_jpeg = msgspec.structs.replace(SPEC, encode=EncodeSpec("JPEG"))
        assert passes_through(opened, WHOLE[name], SPEC, changed=False) == passes
        assert not passes_through(opened, WHOLE[name], SPEC, changed=True)
        assert not passes_through(opened, WHOLE[name], as_jpeg, changed=False)

    def test_raw_pixels_never(self):
        opened = OpenImage(Header("", 3, 3, 1), None)
        assert not passes_through(opened, bytes(9), SPEC, changed=False)

    @pytest.mark.parametrize(
        ("source", "written"),
        [("JPEG", "JPEG"), ("PNG", "PNG"), ("WEBP", "WEBP"), ("GIF", "PNG"), ("TIFF", "PNG"),
         ("BMP", "PNG"), ("", "PNG")],
    )  # fmt: skip
    def test_what_a_changed_image_becomes(self, source, written):
        assert EncodeSpec().written_format(source) == written
        assert EncodeSpec("WEBP").written_format(source) == "WEBP"


class TestEncoding:
    @pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
    @pytest.mark.parametrize("mode", ["L", "RGB"])
    def test_round_trip(self, form, mode):
        image = drawn().convert(mode)
        found = Image.open(io.BytesIO(encode_image(image, form, quality=95)))
        assert (found.format, found.size) == (form, image.size)
        assert found.mode == ("RGB" if form == "WEBP" else mode)
        far = np.abs(np.asarray(found.convert(mode)).astype(int) - np.asarray(image)).mean()
        assert far < (0.01 if form == "PNG" else 6)

    def test_quality(self):
        for form in ("JPEG", "WEBP"):
            sizes = [len(encode_image(drawn(200, 200), form, quality=q)) for q in (20, 95)]
            assert sizes[0] < sizes[1]

    def test_sizes_that_a_format_has_not(self):
        for form, side in (("JPEG", 65501), ("WEBP", 16384), ("PNG", 1_000_001)):
            with pytest.raises(ImageRejectedError) as caught:
                encode_image(Image.new("L", (side, 1)), form, quality=95)
            assert caught.value.reason == "unencodable"

    def test_mask(self):
        mask = np.array([[0, 3], [255, 1]], np.uint8)
        found = Image.open(io.BytesIO(encode_mask(mask)))
        assert found.mode == "L"
        np.testing.assert_array_equal(np.asarray(found), mask)

    def test_floats(self):
        image = Image.fromarray(np.array([[0, 51, 255]], np.uint8))
        zero_one = to_floats(image, EncodeSpec("float"))
        assert (zero_one.dtype, zero_one.shape) == (np.float32, (1, 3, 1))
        np.testing.assert_array_equal(
            zero_one[..., 0], np.array([[0, 51, 255]], np.float32) / np.float32(255)
        )
        centred = to_floats(image, EncodeSpec("float", float_range="zero_centered"))
        assert centred[0, :, 0].tolist() == pytest.approx([-1, -0.6, 1])
        assert centred.min() == -1
        assert centred.max() == 1

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"format": "jpeg"}, "EncodeSpec.format must be one of .*, got 'jpeg'"),
            ({"quality": 0}, "EncodeSpec.quality must be from 1 to 100, got 0"),
            ({"float_range": "one"}, "EncodeSpec.float_range must be one of .*, got 'one'"),
        ],
    )
    def test_errors(self, options, message):
        with pytest.raises(UsageError, match=message):
            EncodeSpec(**options)
