"""Refuse files that have the name of text and are not text, while a job is planned."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.blocks import BROKEN_STREAM
from recordmill.transforms.sources.content import HEAD_BYTES, binary_format
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.formats import FORMATS
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.unpacking import open_decompressed

_MOST_LOCAL, _MOST_REMOTE = 1000, 32
_FORMAT_OF_FORM = {form: name for name, each in FORMATS.items() for form in each.forms}
_EXTENSIONS = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "Zstandard"}


def check_contents(sources: Iterable[SourceRange], spec: DocumentSpec) -> None:
    """Checks that files are text, or of columns as their names say, by their first bytes.

    It looks at the first 1,000, or 32 on other storage.

    Args:
      sources: the input.
      spec: names the encoding.

    Raises:
      UsageError: names the first file that is not text, and its format; or one of columns that is
        not of its format, or is compressed as a whole.
    """
    looked_at = 0
    for source in sources:
        if not source.size or source.query or source.stream:
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
        if FORMATS[source.format].has_columns:
            return _column_problem(source, head)
        form, own_forms = binary_format(head), FORMATS[source.format].forms
        if own_forms and form in ("", *own_forms):
            return ""
        own = _EXTENSIONS.get(source.compression)
        if own and form == f"{own}-compressed":
            inside, head = f"{form} and holds ", _decompressed(source)
            form = binary_format(head)
            if own_forms and form in ("", *own_forms):
                return ""
    except OSError:
        return ""  # the reader reports the error
    if form.endswith("-compressed") and not inside:
        extension = next(key for key, name in _EXTENSIONS.items() if form.startswith(name))
        return f"{form}, and its name does not say so; give --input_compression={extension}"
    if form in _FORMAT_OF_FORM and not inside:
        own_title = FORMATS[source.format].title
        return f"{form}, not {own_title}; give --input_format={_FORMAT_OF_FORM[form]}"
    if form:
        return f"{inside}{form}, not text; leave it out, or convert it to JSONL"
    if (mark := FORMATS[source.format].mark) and mark not in head:
        return f"not {FORMATS[source.format].title}; for plain text give --input_format=text"
    if b"\0" in head and not _has_nul_bytes(spec.encoding):
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return f"{inside}UTF-16; give --encoding=utf-16"
        return f"{inside}binary (byte {head.index(0)} is NUL), not text; leave it out"
    return ""


def _column_problem(source: SourceRange, head: bytes) -> str:
    """Returns what is wrong with a file of columns, by its first bytes; "" for nothing."""
    name = FORMATS[source.format].title
    if source.compression:
        own = _EXTENSIONS[source.compression]
        return f"{name} inside of {own}; unpack it, {name} compresses its own columns"
    if head.startswith(b"PARE"):
        return "an encrypted Parquet file; decrypt it first"
    form = binary_format(head)
    if _FORMAT_OF_FORM.get(form) == source.format:
        return ""
    if form.startswith("a Feather file"):
        return f"{form}; write it anew, as pyarrow.feather.write_feather does"
    article = "an" if name[0] in "A" else "a"
    hint = "leave it out, or name the format with --input_format"
    return f"{form or 'no'}{', not ' + article if form else ''} {name} file; {hint}"


def _decompressed(source: SourceRange) -> bytes:
    try:
        with files.open_read(source.path) as handle:
            return open_decompressed(handle, source.compression).read(HEAD_BYTES)
    except (*BROKEN_STREAM, OSError):
        return b""


def _has_nul_bytes(encoding: str) -> bool:
    return b"\0" in "a".encode(encoding)
