"""Everything that this folder uses of Pillow and zipfile beyond their documented interfaces.

Each function has a canary in `tests/transforms/images/test_compat.py`, which fails when a release
changes what the function relies on.
"""

from __future__ import annotations

import logging
import zipfile
from typing import IO, Any, Literal

from PIL import ExifTags, Image

# Pillow raises plain OSError and ValueError for these; only the messages differ.
TRUNCATION_MESSAGES = ("image file is truncated", "APNG contains truncated")
TEXT_BOMB_MESSAGE = "Decompressed data too large"
# Where Pillow keeps the EXIF data of a PNG that it met before the pixels.
_ENTRIES_TOTAL = 4  # of zipfile's record of a zip's end
_PNG_EXIF_KEYS = ("exif", "Raw profile type exif")


DecodeFailure = Literal["decompression_bomb", "truncated_image", "broken_image"]


def silence_pillow() -> None:
    """Stops Pillow from logging what it raises as well; a reject reports it once."""
    logging.getLogger("PIL").setLevel(logging.CRITICAL)


def classify_pillow_error(error: Exception) -> DecodeFailure:
    """Returns the reject reason for an exception that Pillow raised on an image's bytes."""
    message = str(error)
    if isinstance(error, Image.DecompressionBombError) or TEXT_BOMB_MESSAGE in message:
        return "decompression_bomb"
    if isinstance(error, EOFError) or any(text in message for text in TRUNCATION_MESSAGES):
        return "truncated_image"
    return "broken_image"


def stored_size(image: Image.Image) -> tuple[int, int]:
    """Returns width and height as stored; for a TIFF, Pillow may give those after EXIF's turn."""
    tags = getattr(image, "tag_v2", None) if image.format == "TIFF" else None
    return (int(tags[256]), int(tags[257])) if tags else image.size


def exif_orientation(image: Image.Image) -> Any:
    """Returns the EXIF orientation as stored, of any type, 1 where EXIF is missing or unreadable.

    For a PNG, `getexif` would decode all pixels to look for EXIF behind them, where nobody writes
    it; so only EXIF that Pillow met before the pixels counts.
    """
    if image.format == "PNG" and not any(key in image.info for key in _PNG_EXIF_KEYS):
        return 1
    try:
        return image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # broken EXIF around intact pixels
        return 1


def stored_exif(image: Image.Image) -> bytes | None:
    """Returns the EXIF data that `exif_orientation` would read, None where there is none.

    A TIFF has it among its own tags, for which this returns None.
    """
    if "exif" in image.info:
        exif = image.info["exif"]
        return exif if isinstance(exif, bytes) else None
    lines = str(image.info.get("Raw profile type exif", "")).split("\n")[3:]
    try:
        return bytes.fromhex("".join(lines)) or None
    except ValueError:  # which is no EXIF for Pillow either
        return None


def avif_exif(data: bytes) -> bytes | None:
    """Returns the EXIF data of an AVIF, which `Image.open` reads at once; None where it fails."""
    try:
        from PIL import _avif

        return _avif.AvifDecoder(data, "auto", 1).get_info()[4] or None
    except Exception:  # no AVIF, which Pillow says
        return None


def ppm_scale(image: Image.Image) -> float:
    """Returns what gives a grey PPM's stored values, which Pillow scales when it loads the pixels.

    Pillow stretches the largest value that the header allows to 255, or to 65535 of two bytes.
    """
    if image.format != "PPM" or image.mode not in ("L", "I"):
        return 1
    arguments: Any = image.tile[0][3]  # type: ignore[attr-defined]
    if isinstance(arguments, str):  # not scaled
        return 1
    return float(arguments[-1]) / (255 if image.mode == "L" else 65535)


def stated_zip_members(handle: IO[bytes]) -> int:
    """Returns how many members the record at the end of a zip says that its directory has, -1 where
    there is no such record.
    """
    record = zipfile._EndRecData(handle)  # type: ignore[attr-defined]
    return int(record[_ENTRIES_TOTAL]) if record else -1
