"""Recognize the format of a file by its first bytes; text alone has no signature."""

from __future__ import annotations

HEAD_BYTES = 4096
# The offset of a signature, the signature, and the format that has it.
_SIGNATURES = (
    (0, b"PAR1", "a Parquet file"),
    (0, b"ARROW1\0\0", "an Arrow file"),
    (0, b"FEA1", "a Feather file of version 1"),
    (0, b"Obj\x01", "an Avro file"),
    (0, b"\x89PNG\r\n", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"GIF87a", "a GIF picture"),
    (0, b"GIF89a", "a GIF picture"),
    (0, b"II*\0", "a TIFF picture"),
    (0, b"MM\0*", "a TIFF picture"),
    (8, b"WEBPVP8", "a WebP picture"),
    (0, b"%PDF-", "a PDF"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x1f\x8b\x08", "gzip-compressed"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard-compressed"),
    (0, b"\xfd7zXZ\0", "xz-compressed"),
    (4, b"1AY&SY", "bzip2-compressed"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x89HDF\r\n", "an HDF5 file"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x7fELF", "a program"),
)  # fmt: skip


def binary_format(head: bytes) -> str:
    """Returns the format of a file that begins with `head`, such as "a PDF"; "" for text."""
    for at, signature, name in _SIGNATURES:
        if head.startswith(signature, at):
            return name
    return "an Arrow stream" if _begins_message(head) else ""


def _begins_message(head: bytes) -> bool:
    """Tells whether a message of Arrow begins here: its mark, and the bytes of its metadata.

    The mark alone is no signature: text in a wrong encoding may begin with it.
    """
    metadata_bytes = int.from_bytes(head[4:8], "little")
    return head.startswith(b"\xff" * 4) and 0 < metadata_bytes < 1 << 24 and metadata_bytes % 8 == 0
