"""Decoding: the rules of every kind of pixels, and a reason for all that cannot be decoded."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.rejects import REASONS
from recordmill.transforms.images.decoding import (
    ImageRejectedError,
    check_extension,
    decode,
    decode_mask,
    from_pixels,
    probe,
)
from recordmill.transforms.images.image_spec import DecodeSpec

from ...pictures import (
    BROKEN,
    WHOLE,
    animated,
    drawn,
    encoded,
    grey_16_bit,
    jpeg,
    palette,
    png,
    png_16_bit_rgb,
    turned,
    turned_jpeg,
)

SPEC = DecodeSpec()


def rejected(data: bytes, spec: DecodeSpec = SPEC) -> str:
    with pytest.raises(ImageRejectedError) as caught:
        decode(data, spec, channels=3)
    assert caught.value.reason in REASONS
    assert "\n" not in caught.value.detail
    return caught.value.reason


def pixels(data: bytes, channels: int = 3) -> np.ndarray:
    return decode(data, SPEC, channels=channels).pixels


def far(a: np.ndarray, b: np.ndarray) -> int:
    return int(np.abs(a.astype(int) - b.astype(int)).max())


class TestWhole:
    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("name", WHOLE)
    def test_every_kind(self, name, channels):
        found = decode(WHOLE[name], SPEC, channels=channels)
        width, height = found.header.decoded_size
        assert found.pixels.shape == (height, width, channels)
        assert found.pixels.dtype == np.uint8
        assert probe(WHOLE[name], SPEC) == found.header
        check_extension(name, found.header.format)

    def test_no_warning_leaves(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for data in WHOLE.values():
                decode(data, SPEC, channels=3)

    @pytest.mark.parametrize(
        "name", ["rgb.png", "rgb.bmp", "rgb.tiff", "deflate.tif", "rgb.jp2", "rgb.tga", "rgb.ppm"]
    )
    def test_lossless(self, name):
        np.testing.assert_array_equal(pixels(WHOLE[name]), np.asarray(drawn()))

    @pytest.mark.parametrize("name", ["cmyk.jpg", "cmyk.tif"])
    def test_cmyk_becomes_rgb(self, name):
        assert far(pixels(WHOLE[name]), np.asarray(drawn())) < 30

    def test_inverted_cmyk_of_adobe(self):
        # Pillow writes Adobe's marker, and Adobe stores CMYK inverted: a white picture stays white.
        white = encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")
        assert pixels(white).min() >= 254

    def test_alpha_is_dropped_not_blended(self):
        image = drawn().convert("RGBA")
        image.putalpha(0)
        np.testing.assert_array_equal(pixels(encoded(image, "PNG")), np.asarray(drawn()))

    def test_palette_becomes_its_colours(self):
        np.testing.assert_array_equal(
            pixels(encoded(palette(), "PNG", transparency=3)), np.asarray(palette().convert("RGB"))
        )

    def test_grey_becomes_three_equal_channels(self):
        grey = np.asarray(drawn().convert("L"))
        found = pixels(WHOLE["grey_alpha.png"])
        np.testing.assert_array_equal(found, np.stack([grey] * 3, axis=-1))

    def test_colours_become_luma(self):
        red, green, blue = (np.asarray(drawn())[..., i].astype(float) for i in range(3))
        luma = 0.299 * red + 0.587 * green + 0.114 * blue
        assert np.abs(pixels(png(), 1)[..., 0] - luma).max() <= 1

    def test_sixteen_bits_lose_the_lower_eight(self):
        assert pixels(grey_16_bit(), 1)[..., 0].tolist() == [[0x01, 0x12], [0xFF, 0]]
        assert pixels(grey_16_bit("TIFF"), 1)[..., 0].tolist() == [[0x01, 0x12], [0xFF, 0]]
        assert pixels(png_16_bit_rgb()).tolist() == [[[0x12, 0, 0], [0xFF, 0, 0]]]

    def test_of_two_bytes_in_a_pgm_the_lower_is_dropped(self):
        assert pixels(b"P5 2 1 65535 \x12\xff\0\7", 1)[..., 0].tolist() == [[0x12, 0]]
        assert pixels(WHOLE["grey_16.j2k"], 1).max() == 0x12

    def test_one_bit_becomes_black_and_white(self):
        assert set(np.unique(pixels(WHOLE["one_bit.png"]))) == {0, 255}

    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
    def test_exif_orientation(self, form, orientation):
        from PIL import ImageOps

        data = turned(form, orientation)
        found = decode(data, SPEC, channels=3)
        image = Image.open(io.BytesIO(data))
        image.load()  # which turns a TIFF
        expected = ImageOps.exif_transpose(image)
        np.testing.assert_array_equal(found.pixels, np.asarray(expected))
        assert found.header.orientation == orientation
        assert (found.header.width, found.header.height) == (48, 32)

    @pytest.mark.parametrize("orientation", [0, 9, 1000])
    def test_an_orientation_that_is_none_says_nothing(self, orientation):
        assert decode(turned_jpeg(orientation), SPEC, channels=3).header.orientation == 1

    def test_exif_of_png_is_applied(self):
        exif = Image.Exif()
        exif[0x0112] = 3
        data = encoded(drawn(), "PNG", exif=exif)
        np.testing.assert_array_equal(pixels(data), np.asarray(drawn())[::-1, ::-1])

    def test_broken_exif_around_whole_pixels(self):
        assert decode(jpeg(exif=b"Exif\0\0II*\0\xff\xff\xff"), SPEC, channels=3).pixels.shape

    @pytest.mark.parametrize("shrink", [2, 4, 8])
    def test_a_jpeg_shrunk_by_libjpeg(self, shrink):
        data = jpeg(100, 61)
        found = decode(data, SPEC, channels=3, shrink=shrink)
        assert found.shrink == shrink
        assert found.pixels.shape == (-(-61 // shrink), -(-100 // shrink), 3)
        middle = found.pixels[30 // shrink, 80 // shrink]
        assert far(middle, pixels(data)[30, 80]) < 12

    def test_only_jpeg_is_shrunk(self):
        assert decode(png(), SPEC, channels=3, shrink=4).shrink == 1

    @pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
    def test_of_several_frames_the_first_is_taken_or_none(self, form):
        assert decode(animated(form), SPEC, channels=3).header.frames == 3
        first = pixels(encoded(drawn(seed=0), form))
        assert far(pixels(animated(form)), first) < 40
        assert rejected(animated(form), DecodeSpec(gif="reject")) == "several_frames"
        assert decode(WHOLE["still.gif"], DecodeSpec(gif="reject"), channels=3).header.frames == 1


class TestBroken:
    @pytest.mark.parametrize("name", BROKEN)
    def test_reason(self, name):
        data, reason = BROKEN[name]
        assert rejected(data) == reason

    def test_pixels_over_the_limit(self):
        assert rejected(png(), DecodeSpec(max_pixels=48 * 32 - 1)) == "decompression_bomb"
        assert decode(png(), DecodeSpec(max_pixels=48 * 32), channels=3)

    @settings(deadline=None, max_examples=300)
    @given(
        st.sampled_from(sorted(WHOLE)),
        st.floats(0, 1),
        st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=4),
        st.sampled_from([1, 2, 8]),
    )
    def test_nothing_but_a_reject_is_raised(self, name, kept, flips, shrink):
        data = bytearray(WHOLE[name])
        for place, value in flips:
            data[int(place * len(data))] = value
        cut = bytes(data[: int(kept * len(data))])
        spec = DecodeSpec(max_pixels=10_000_000)
        reasons = set()
        for work in (
            lambda: probe(cut, spec),
            lambda: decode(cut, spec, channels=3, shrink=shrink),
            lambda: decode_mask(cut, spec),
        ):
            try:
                work()
            except ImageRejectedError as error:
                reasons.add(error.reason)
        assert reasons <= set(REASONS)

    def test_a_tga_is_one_by_its_header(self):
        tga = WHOLE["rgb.tga"]
        assert probe(tga, SPEC).format == "TGA"
        assert rejected(tga[:1] + b"\7" + tga[2:]) == "not_an_image"
        assert rejected(bytes(200)) == "not_an_image"
        with pytest.raises(ImageRejectedError, match="header of this TGA cannot be read"):
            probe(b"\0\1\1" + tga[3:16] + b"\x08" + tga[17:], SPEC)  # its palette has no bits

    def test_an_extension_that_says_another_format(self):
        with pytest.raises(ImageRejectedError) as caught:
            check_extension("a/b.JPG", "PNG")
        assert (caught.value.reason, caught.value.detail) == ("wrong_extension", ".JPG holds PNG")

    @pytest.mark.parametrize("name", ["a.jpeg", "a.dat", "a", "b.png/a", "images#3"])
    def test_extensions_that_do_not(self, name):
        check_extension(name, "JPEG")


class TestMasks:
    def test_numbers_of_a_palette_are_classes(self):
        classes = np.arange(12, dtype=np.uint8).reshape(3, 4)
        image = Image.fromarray(classes)
        image.putpalette(list(range(255, 207, -1)))
        found = decode_mask(encoded(image, "PNG"), SPEC)[1]
        np.testing.assert_array_equal(np.asarray(found), classes)

    @pytest.mark.parametrize(
        ("array", "form"),
        [
            (np.array([[0, 3], [255, 1]], np.uint8), "PNG"),
            (np.array([[0, 3], [255, 1]], np.uint16), "PNG"),
            (np.array([[0, 3], [255, 1]], np.int32), "TIFF"),
        ],
    )
    def test_values_are_classes(self, array, form):
        found = decode_mask(encoded(Image.fromarray(array), form), SPEC)[1]
        assert np.asarray(found).tolist() == [[0, 3], [255, 1]]

    @pytest.mark.parametrize("most", [1, 20, 254, 255, 300, 65535])
    @pytest.mark.parametrize("form", ["P2", "P5"])
    def test_values_of_a_pgm_are_classes_whatever_its_largest_is(self, form, most):
        values = np.arange(min(most, 255) + 1, dtype=np.uint16)
        stored = values.astype("u1" if most < 256 else ">u2").tobytes()
        body = " ".join(map(str, values)).encode() if form == "P2" else stored
        mask = b"%s %d 1 %d\n%s" % (form.encode(), len(values), most, body)
        np.testing.assert_array_equal(np.asarray(decode_mask(mask, SPEC)[1])[0], values)

    def test_one_bit(self):
        image = Image.fromarray(np.array([[True, False]]))
        assert np.asarray(decode_mask(encoded(image, "PNG"), SPEC)[1]).tolist() == [[1, 0]]

    def test_grey_in_three_channels(self):
        grey = drawn().convert("L")
        found = decode_mask(encoded(grey.convert("RGB"), "PNG"), SPEC)[1]
        np.testing.assert_array_equal(np.asarray(found), np.asarray(grey))

    @pytest.mark.parametrize(
        "image", [drawn(), Image.fromarray(np.full((2, 2), 256, np.uint16))], ids=["colours", "256"]
    )
    def test_no_classes(self, image):
        with pytest.raises(ImageRejectedError) as caught:
            decode_mask(encoded(image, "PNG"), SPEC)
        assert caught.value.reason == "mask_classes"


class TestRawPixels:
    def test_grey_and_colours(self):
        assert from_pixels(bytes(range(6)), (2, 3), channels=1).pixels[..., 0].tolist() == [
            [0, 1, 2],
            [3, 4, 5],
        ]
        found = from_pixels(bytes(range(6)), (1, 2, 3), channels=3)
        assert found.pixels.tolist() == [[[0, 1, 2], [3, 4, 5]]]
        assert (found.header.format, found.header.width, found.header.channels) == ("", 2, 3)

    @pytest.mark.parametrize(
        ("data", "shape", "reason"),
        [(bytes(5), (2, 3), "truncated_image"), (b"", (0, 3), "zero_size")],
    )
    def test_rejects(self, data, shape, reason):
        with pytest.raises(ImageRejectedError) as caught:
            from_pixels(data, shape, channels=3)
        assert caught.value.reason == reason


class TestSpec:
    def test_gif(self):
        with pytest.raises(
            UsageError, match=r"^DecodeSpec\.gif must be one of first, reject, got 'last'"
        ):
            DecodeSpec(gif="last")  # type: ignore[arg-type]

    @pytest.mark.parametrize("most", [0, 178_956_971])
    def test_max_pixels(self, most):
        with pytest.raises(
            UsageError,
            match=rf"^DecodeSpec\.max_pixels must be from 1 to 178956970, got {most}$",
        ):
            DecodeSpec(max_pixels=most)


# Every file of Pillow's own collection of trouble: what it must be, or why it is refused.
AWKWARD = {
    "broken.png": "broken_image",
    "hopper.gif": ("GIF", 128, 128),
    "hopper.jpg": ("JPEG", 128, 128),
    "hopper.png": ("PNG", 128, 128),
    "hopper.webp": ("WEBP", 128, 128),
    "hopper_gray.jpg": ("JPEG", 128, 128),
    "hopper_orientation_6.jpg": ("JPEG", 128, 128),
    "i_trns.png": ("PNG", 64, 64),
    "icc_profile_big.jpg": ("JPEG", 425, 250),
    "iss634.gif": ("GIF", 245, 245),
    "jpeg_ff00_header.jpg": ("JPEG", 300, 225),
    "p_16.png": ("PNG", 128, 128),
    "palette_sepia.png": ("PNG", 128, 128),
    "pil123rgba.png": ("PNG", 162, 150),
    "pil_sample_cmyk.jpg": ("JPEG", 100, 100),
    "png_decompression_dos.png": "decompression_bomb",
    "tiff_16bit_RGB_target.png": ("PNG", 100, 40),
    "transparent.png": ("PNG", 200, 150),
    "truncated_image.png": "truncated_image",
    "truncated_jpeg.jpg": "truncated_image",
    "uncompressed_la.png": ("PNG", 128, 128),
    "zero_width.gif": "zero_size",
}


@pytest.mark.real
class TestAwkward:
    def test_the_table_is_whole(self, real_data: Path):
        assert {path.name for path in (real_data / "images/awkward").iterdir()} == set(AWKWARD)

    @pytest.mark.parametrize("name", AWKWARD)
    def test_outcome(self, real_data: Path, name):
        data = (real_data / "images/awkward" / name).read_bytes()
        expected = AWKWARD[name]
        if isinstance(expected, str):
            assert rejected(data) == expected
            return
        found = decode(data, SPEC, channels=3)
        assert (found.header.format, *found.header.decoded_size) == expected
        # 16 bits a pixel, of which only the lower ones are used: black by the rule.
        assert (found.pixels.std() > 5) == (name != "i_trns.png")

    def test_the_same_picture_in_every_form(self, real_data: Path):
        folder = real_data / "images/awkward"
        whole = pixels((folder / "hopper.png").read_bytes()).astype(int)
        for name in ("hopper.jpg", "hopper.webp", "hopper.gif", "hopper_orientation_6.jpg"):
            assert np.abs(pixels((folder / name).read_bytes()) - whole).mean() < 20, name
