"""Refuse files that have the name of text and are not text, while a job is planned."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from apache_beam.io.filesystem import BeamIOError

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.blocks import BROKEN_STREAM
from recordmill.transforms.sources.content import HEAD_BYTES, binary_format
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.unpacking import open_decompressed

_MOST_LOCAL, _MOST_REMOTE = 1000, 32
_EXTENSIONS = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "Zstandard"}


def check_contents(sources: Iterable[SourceRange], spec: DocumentSpec) -> None:
    """Checks that files are text by their first bytes: the first 1,000, or 32 on other storage.

    Args:
      sources: the input.
      spec: names the encoding.

    Raises:
      UsageError: names the first file that is not text, and its format.
    """
    looked_at = 0
    for source in sources:
        if not source.size:
            continue
        looked_at += 1
        if looked_at > (_MOST_LOCAL if files.is_local(source.path) else _MOST_REMOTE):
            return
        problem = _problem(source, spec)
        if problem:
            raise UsageError(f"--input {source.path} is {problem}")


def _problem(source: SourceRange, spec: DocumentSpec) -> str:
    """Returns the format of a file that is not text, and what to do about it; "" for text."""
    inside = ""
    try:
        with files.open_read(source.path) as handle:
            head = handle.read(HEAD_BYTES)
        form = binary_format(head)
        own = _EXTENSIONS.get(source.compression)
        if own and form == f"{own}-compressed":
            inside, head = f"{form} and holds ", _decompressed(source)
            form = binary_format(head)
    except (OSError, BeamIOError):
        return ""  # the reader reports the error
    if form.endswith("-compressed") and not inside:
        extension = next(key for key, name in _EXTENSIONS.items() if form.startswith(name))
        return f"{form}, and its name does not say so; rename it to end in .{extension}"
    if form:
        return f"{inside}{form}, not text; leave it out, or convert it to JSONL"
    if b"\0" in head and not _has_nul_bytes(spec.encoding):
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return f"{inside}UTF-16; give --encoding=utf-16"
        return f"{inside}binary (byte {head.index(0)} is NUL), not text; leave it out"
    return ""


def _decompressed(source: SourceRange) -> bytes:
    try:
        with files.open_read(source.path) as handle:
            return open_decompressed(handle, source.compression).read(HEAD_BYTES)
    except (*BROKEN_STREAM, OSError):
        return b""


def _has_nul_bytes(encoding: str) -> bool:
    return b"\0" in "a".encode(encoding)
