"""Recognize images by their names: the list of extensions, and the format of each."""

from __future__ import annotations

FORMAT_BY_EXTENSION = {
    ".avif": "AVIF",
    ".bmp": "BMP",
    ".dib": "BMP",
    ".gif": "GIF",
    ".j2c": "JPEG2000",
    ".j2k": "JPEG2000",
    ".jfif": "JPEG",
    ".jp2": "JPEG2000",
    ".jpc": "JPEG2000",
    ".jpe": "JPEG",
    ".jpeg": "JPEG",
    ".jpf": "JPEG2000",
    ".jpg": "JPEG",
    ".jpx": "JPEG2000",
    ".pbm": "PPM",
    ".pgm": "PPM",
    ".png": "PNG",
    ".pnm": "PPM",
    ".ppm": "PPM",
    ".tga": "TGA",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WEBP",
}
IMAGE_EXTENSIONS = tuple(FORMAT_BY_EXTENSION)


def has_image_extension(path: str) -> bool:
    """Returns whether a file may be an image, by its name."""
    return path.lower().endswith(IMAGE_EXTENSIONS)


def format_of_name(name: str) -> str | None:
    """Returns the format that a file name promises, None for an unknown extension."""
    dot = name.rfind(".")
    return FORMAT_BY_EXTENSION.get(name[dot:].lower()) if dot > name.rfind("/") else None
