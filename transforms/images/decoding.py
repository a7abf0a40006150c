"""Decoding: encoded images to pixels, by which rules, and why an image is rejected.

The rules, the same as those of TensorFlow's decoders wherever those have one, so that an image
passed through gives a reader what a re-encoded one does:

- JPEG (with MPO, the form of phones), PNG, WebP, GIF, BMP, TIFF, AVIF, JPEG 2000, PPM (with PGM and
  PBM) and TGA are read; the content decides, but a name with the extension of another of these
  formats is refused.
- EXIF orientation is applied, unless `orientation` keeps pixels as they are stored. TensorFlow's
  decoders know no EXIF, so an image that is turned is never passed through.
- Alpha is dropped, not blended. Palettes become their colours, CMYK and YCCK RGB, without colour
  management. Grey becomes three equal channels, or colours ITU-R 601 luma, by the channels asked.
- More than 8 bits a channel become 8 by dropping the lower ones. 32-bit integers and floats are
  refused: their range is unknown.
- Of several frames (GIF, WebP, PNG, TIFF, AVIF) the first is used, or the image rejected, as `gif`
  sets.
- Truncated, broken and empty files, zero sizes and decompression bombs are refused. Nothing that a
  file holds raises anything but `ImageRejectedError`.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from recordmill.transforms.images.extensions import format_of_name
from recordmill.transforms.images.image_spec import DecodeSpec
from recordmill.transforms.images.metadata import (
    count_frames,
    excess_metadata,
    exif_bytes,
)
from recordmill.transforms.images.pillow_internals import (
    classify_pillow_error,
    exif_orientation,
    ppm_scale,
    silence_pillow,
    stored_exif,
    stored_size,
)
from recordmill.transforms.images.source_spec import DrawnOn
from recordmill.transforms.images.stored_forms import count_scans, is_tga

silence_pillow()

Pixels = npt.NDArray[Any]

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
_SIGNATURES = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
)
_SIZE_FIELDS = {"PNG": (16, ">II"), "GIF": (6, "<HH"), "BMP": (18, "<ii")}
_GREY = ("1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N", "I")
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_BACK = {turn: {6: 8, 8: 6}.get(turn, turn) for turn in _TURNS}


class ImageRejectedError(Exception):
    """An image that cannot be used.

    Attributes:
      reason: a key of `rejects.REASONS`.
      detail: the values found, one line.
      size: `(width, height)` of a mask or region that is not of the image's; None for all else.
    """

    def __init__(
        self, reason: str, detail: str = "", *, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = " ".join(detail.split())
        self.size = size


@dataclass(frozen=True, slots=True)
class Header:
    """The header of an image file.

    Attributes:
      format: as Pillow names it, "JPEG" for MPO; "" for raw pixels.
      width, height: as stored, before any turn.
      channels: 1 for grey, else 3.
      orientation: EXIF's, 1 to 8; 1 is upright.
      turn: the orientation that decoding applies: EXIF's, or 1 to keep pixels as they are stored.
      frames: their number.
    """

    format: str
    width: int
    height: int
    channels: int
    orientation: int = 1
    turn: int = 1
    frames: int = 1

    @property
    def decoded_size(self) -> tuple[int, int]:
        """`(width, height)` of the decoded image."""
        return self._turned_size(self.turn)

    def annotated_size(self, drawn_on: DrawnOn) -> tuple[int, int]:
        """Returns `(width, height)` of the picture that annotations were drawn on."""
        return self._turned_size(self.orientation if drawn_on == "shown" else 1)

    def _turned_size(self, turn: int) -> tuple[int, int]:
        return (self.height, self.width) if turn >= 5 else (self.width, self.height)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded image.

    Attributes:
      header: of the file.
      image: mode "L" or "RGB", of the header's `decoded_size` divided by `shrink`, rounded up.
      shrink: 1, 2, 4 or 8: what libjpeg divided the size by while decoding.
    """

    header: Header
    image: Image.Image
    shrink: int = 1

    @property
    def pixels(self) -> Pixels:
        """`[height, width, channels] uint8`."""
        return to_pixels(self.image)


def to_pixels(image: Image.Image) -> Pixels:
    """Returns `[height, width, channels] uint8` of an image of mode "L" or "RGB"."""
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def check_extension(name: str, actual_format: str) -> None:
    """Checks a file name against the format of its bytes; unknown extensions promise nothing.

    Raises:
      ImageRejectedError: wrong_extension.
    """
    if format_of_name(name) not in (None, actual_format):
        extension = name[name.rfind(".") :]
        raise ImageRejectedError("wrong_extension", f"{extension} holds {actual_format}")


class OpenImage(NamedTuple):
    """An image whose header has been read; `decode_opened` gives its pixels, once."""

    header: Header
    image: Any


def open_image(data: bytes, spec: DecodeSpec) -> OpenImage:
    """Reads the header alone, without a pixel.

    Raises:
      ImageRejectedError: as `decode`, for what a header shows.
    """
    with rejecting():
        image, header = _open(data, spec)
    return OpenImage(header, image)


def probe(data: bytes, spec: DecodeSpec) -> Header:
    """Returns the header of an image.

    Raises:
      ImageRejectedError: as `decode`, for what a header shows.
    """
    return open_image(data, spec).header


def decode(data: bytes, spec: DecodeSpec, *, channels: Literal[1, 3], shrink: int = 1) -> Decoded:
    """Opens an image and decodes it, see `decode_opened`."""
    return decode_opened(open_image(data, spec), channels=channels, shrink=shrink)


def decode_opened(opened: OpenImage, *, channels: Literal[1, 3], shrink: int = 1) -> Decoded:
    """Decodes an image by the rules of this module.

    Memory: the pixels, once more while they are converted or turned.

    Args:
      opened: the image.
      channels: of the result.
      shrink: 2, 4 or 8 lets libjpeg give a JPEG of that fraction of its size, which is faster.

    Raises:
      ImageRejectedError: the image cannot be used.
    """
    header, image = opened
    with rejecting():
        if shrink > 1 and header.format == "JPEG":
            size = max(1, header.width // shrink), max(1, header.height // shrink)
            drafted = image.draft(None, size)
            shrink = round(header.width / drafted[1][2]) if drafted else 1
        else:
            shrink = 1
        image.load()
        converted = _without_transparency(_convert(image, channels))
        return Decoded(header, _turn(converted, header, header.turn), shrink)


def decode_mask(data: bytes, spec: DecodeSpec) -> tuple[Header, Image.Image]:
    """Decodes a mask: mode "L", a class a pixel, as it is stored: its own EXIF turns nothing.

    A palette's numbers are the classes, as in Pascal VOC; 1-bit masks have 0 and 1; values of 16
    or 32 bits must be below 256, and those of a PGM are as stored, whatever their largest is. Masks
    in colours are accepted where they are grey.

    Raises:
      ImageRejectedError: the mask cannot be decoded, or has colours.
    """
    with rejecting():
        image, header = _open(data, spec)
        unscale = ppm_scale(image)
        image.load()
        return header, _turn(_classes(image, unscale), header, 1)


def from_pixels(data: bytes, shape: tuple[int, ...], *, channels: Literal[1, 3]) -> Decoded:
    """Makes an image of raw pixels `[height, width, channels] uint8`, as idx files have them.

    Raises:
      ImageRejectedError: truncated_image, where there are fewer bytes.
    """
    height, width, stored_channels = (*shape, 1)[:3]
    expected_bytes = height * width * stored_channels
    if not expected_bytes:
        raise ImageRejectedError("zero_size", f"{width} x {height}")
    if len(data) != expected_bytes:
        raise ImageRejectedError(
            "truncated_image", f"{expected_bytes} bytes expected, {len(data)} found"
        )
    pixels = np.frombuffer(data, np.uint8).reshape((height, width, stored_channels))
    image = Image.fromarray(pixels[:, :, 0] if stored_channels == 1 else pixels)
    return Decoded(Header("", width, height, stored_channels), _convert(image, channels))


@contextmanager
def rejecting() -> Iterator[None]:
    """Turns whatever Pillow raises into `ImageRejectedError`, and silences its warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (ImageRejectedError, MemoryError):
        raise
    except Exception as error:
        reason = classify_pillow_error(error)
        raise ImageRejectedError(reason, f"{type(error).__name__}: {error}") from error


def _open(data: bytes, spec: DecodeSpec) -> tuple[Any, Header]:
    """Opens an image and refuses what its header shows to be of no use."""
    if not data:
        raise ImageRejectedError("empty_image")
    if excess := excess_metadata(data, spec.max_metadata_bytes, spec.max_pixels):
        raise ImageRejectedError("decompression_bomb", excess)
    try:
        image = _identify(data)
    except UnidentifiedImageError as error:
        raise _unidentified(data) from error
    format_name = "JPEG" if image.format == "MPO" else str(image.format)
    width, height = stored_size(image)
    if width * height > spec.max_pixels:
        detail = f"{width} x {height}, at most {spec.max_pixels}"
        raise ImageRejectedError("decompression_bomb", detail)
    # Each scan of a JPEG goes over all pixels, however few its bytes are.
    if format_name == "JPEG" and (scans := count_scans(data, spec.max_scans)) > spec.max_scans:
        raise ImageRejectedError("decompression_bomb", f"{scans} scans, at most {spec.max_scans}")
    frames = count_frames(image, format_name, data)
    if frames > 1:
        if spec.gif == "reject":
            raise ImageRejectedError("several_frames", f"{format_name} of {frames} frames")
        image.seek(0)
    channels = 1 if image.mode in _GREY else 3
    orientation = _orientation(image, spec.max_metadata_bytes)
    turn = 1 if spec.orientation == "keep" else orientation
    header = Header(format_name, width, height, channels, orientation, turn, frames)
    return image, header


def _identify(data: bytes) -> Any:
    try:
        return Image.open(io.BytesIO(data), formats=_FORMATS)
    except UnidentifiedImageError:
        if not is_tga(data):
            raise
    return Image.open(io.BytesIO(data), formats=("TGA",))


def _orientation(image: Image.Image, most_bytes: int) -> int:
    """Returns the EXIF orientation, 1 (upright) where it is missing or no valid one."""
    copied = exif_bytes(stored_exif(image))
    if copied > most_bytes:
        detail = f"EXIF of {copied} bytes, at most {most_bytes}"
        raise ImageRejectedError("decompression_bomb", detail)
    orientation = exif_orientation(image)
    return orientation if orientation in _TURNS else 1


def _unidentified(data: bytes) -> ImageRejectedError:
    """Returns the reason why Pillow knows no image in these bytes."""
    known = [name for magic, name in _SIGNATURES if data.startswith(magic)]
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        known = ["WEBP"]
    if data[4:12] in (b"ftypavif", b"ftypavis"):
        known = ["AVIF"]
    if not known and is_tga(data):
        known = ["TGA"]
    if not known:
        return ImageRejectedError("not_an_image", f"begins with {data[:8].hex(' ')}")
    if known[0] in _SIZE_FIELDS:
        offset, form = _SIZE_FIELDS[known[0]]
        if len(data) >= offset + struct.calcsize(form):
            width, height = struct.unpack_from(form, data, offset)
            if width == 0 or height == 0:
                return ImageRejectedError("zero_size", f"{width} x {height}")
    return ImageRejectedError("broken_image", f"the header of this {known[0]} cannot be read")


def _convert(image: Image.Image, channels: int) -> Image.Image:
    """Returns mode "L" or "RGB"."""
    mode = "L" if channels == 1 else "RGB"
    if image.mode == mode:
        return image
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ImageRejectedError("unsupported_pixels", f"pixels of mode {image.mode}")
    if image.mode in ("P", "PA", "RGBA", "CMYK", "LAB") and mode == "L":
        image = image.convert("RGB")
    return image.convert(mode)


def _turn(image: Image.Image, header: Header, turn: int) -> Image.Image:
    """Returns a loaded image with this turn, 1 or EXIF's, of its stored pixels."""
    if header.format == "TIFF":  # which alone Pillow has turned already
        turn = 1 if turn == header.orientation else _BACK.get(header.orientation, 1)
    return image.transpose(_TURNS[turn]) if turn in _TURNS else image


def _without_transparency(image: Image.Image) -> Image.Image:
    """Drops the transparent colour, which is alpha in another form.

    Pillow keeps it as the number that it was in the source's mode, and saving as PNG fails on it.
    """
    image.info.pop("transparency", None)
    return image


def _classes(image: Image.Image, unscale: float) -> Image.Image:
    if unscale != 1:
        values = np.asarray(image)
        image = Image.fromarray(np.rint(values * unscale).astype(values.dtype))
    if image.mode in ("L", "P"):
        return Image.fromarray(np.asarray(image))
    if image.mode == "1":
        return Image.fromarray(np.asarray(image).astype(np.uint8))
    if image.mode in ("LA", "PA"):
        return image.getchannel(0)
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 255:
            raise ImageRejectedError("mask_classes", f"classes from 0 to 255, got {values.max()}")
        return Image.fromarray(values.astype(np.uint8))
    if image.mode in ("RGB", "RGBA"):
        red, green, blue = image.split()[:3]
        if red.tobytes() == green.tobytes() == blue.tobytes():
            return red
    raise ImageRejectedError("mask_classes", f"a mask of classes, got colours ({image.mode})")
