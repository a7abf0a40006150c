"""Refuse files that have the name of text and are not text, while a job is planned."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterable

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.blocks import BROKEN_STREAM
from recordmill.transforms.sources.content import HEAD_BYTES, binary_format
from recordmill.transforms.sources.delimited import csv_rows
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.formats import FORMATS
from recordmill.transforms.sources.json_values import SNIFFED_BYTES, has_object_lines
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.unpacking import open_decompressed

_MOST_LOCAL, _MOST_REMOTE = 1000, 32
_FORMAT_OF_FORM = {form: name for name, each in FORMATS.items() for form in each.forms}
_EXTENSIONS = {"gz": "gzip", "bz2": "bzip2", "xz": "xz", "zst": "Zstandard"}
_JSON_OBJECT = re.compile(r'[\s,]*\{\s*"(?:[^"\\]|\\.)*"\s*:')
_NAME = re.compile(r"(?:[A-Za-z_]\w{0,31})?")  # of a column; that of an index has none
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_LEAST_ROWS = 5
# The delimiters by which rows are recognized, and the options that read them.
_DELIMITERS = (
    ("\t", "tsv", ""), (",", "csv", ""), (";", "csv", " --delimiter=';'"),
    ("|", "csv", " --delimiter='|'"),
)  # fmt: skip


def check_contents(
    sources: Iterable[SourceRange], spec: DocumentSpec, *, by_name: bool = True
) -> None:
    """Checks that files are text, or of columns as their names say, by their first bytes.

    It looks at the first 1,000, or 32 on other storage.

    Args:
      sources: the input.
      spec: names the encoding.
      by_name: names of files said their formats: then plain text that has rows is refused.

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
        problem = _problem(source, spec, by_name=by_name)
        if problem:
            raise UsageError(f"--input {source.path} is {problem}")


def _problem(source: SourceRange, spec: DocumentSpec, *, by_name: bool) -> str:
    """Returns the format of a file that is not text, and what to do about it; "" for text."""
    inside = ""
    try:
        with files.open_read(source.path) as handle:
            sample = handle.read(SNIFFED_BYTES)
        head = sample[:HEAD_BYTES]
        if FORMATS[source.format].has_columns:
            return _column_problem(source, head)
        form, own_forms = binary_format(head), FORMATS[source.format].forms
        if own_forms and form in ("", *own_forms):
            return ""
        own = _EXTENSIONS.get(source.compression)
        if own and form == f"{own}-compressed":
            inside, sample = f"{form} and holds ", _decompressed(source)
            head = sample[:HEAD_BYTES]
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
    if source.format == "text" and by_name:
        text = sample.decode(spec.encoding, "replace").removeprefix("\ufeff").lstrip("\r\n ")
        return _row_problem(text, spec.text_field, is_cut=len(sample) == SNIFFED_BYTES)
    return ""


def _row_problem(text: str, text_field: str, *, is_cut: bool) -> str:
    """Returns what plain text is that begins as JSON or a table does; "" for prose."""
    more = kind = ""
    if _is_json(text, text_field):
        kind = "jsonl" if has_object_lines(text.encode()) else "json"
    else:
        text = (is_cut and text.rpartition("\n")[0]) or text
        for delimiter, name, flag in _DELIMITERS:
            if _is_table(text, delimiter, text_field):
                kind, more = name, flag
                break
    if not kind:
        return ""
    return (
        f"{FORMATS[kind].title} by its content, and its name does not say so; give "
        f"--input_format={kind}{more}, or --input_format=text if it is plain text, each with an "
        "--input of such files alone; or leave it out with --skip_files"
    )


def _is_json(text: str, text_field: str) -> bool:
    """Tells whether a file begins with records of JSON: two objects, or all of it is one."""
    start = 1 if text.startswith("[") else 0
    if not _JSON_OBJECT.match(text, start):
        return False
    try:
        first, end = json.JSONDecoder().raw_decode(text, text.index("{", start))
    except (ValueError, RecursionError):
        return "\n" not in text  # a record longer than what was read, if there is nothing else
    return bool(
        _JSON_OBJECT.match(text, end) or (text_field in first and not text[end:].strip("] \t\r\n"))
    )


def _is_table(text: str, delimiter: str, text_field: str) -> bool:
    """Tells whether text is a table, by what no prose has; a small table may pass for prose."""
    rows = _equal_rows(text, delimiter)
    has_names = bool(rows) and all(map(_NAME.fullmatch, rows[0]))
    if has_names and text_field in rows[0]:
        return True
    if len(rows) < _LEAST_ROWS:
        return False
    columns = zip(*rows[1:], strict=True)
    if has_names and any(all(map(_NUMBER.fullmatch, column)) for column in columns):
        return True
    is_in_numbers = delimiter == "," and re.search(r"\d,\d", text)  # 1,204 or 3,50
    return len(rows[0]) > 2 and not is_in_numbers


def _equal_rows(text: str, delimiter: str) -> list[list[str]]:
    """Returns the rows of a beginning; [] where not all have as many fields, two or more."""
    rows: list[list[str]] = []
    is_over = False
    try:
        # Quotes of TSV are characters in many files, which is all the same here.
        for row in csv_rows(text, delimiter, quotes=delimiter != "\t", strict=True):
            if is_over or len(row) == 1 or (row and rows and len(row) != len(rows[0])):
                return []
            if any(field[:1].isspace() for field in row[1:]):  # a comma of a sentence
                return []
            is_over = not row
            rows += [row] if row else []
    except csv.Error as error:
        if "end of data" not in str(error):  # of the last row, which is cut
            return []
    # Indented lines have no first field, and lines of verse no last one.
    is_filled = all(any(row[i].strip() for row in rows) for i in (0, -1))
    return rows if is_filled else []


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
            return open_decompressed(handle, source.compression).read(SNIFFED_BYTES)
    except (*BROKEN_STREAM, OSError):
        return b""


def _has_nul_bytes(encoding: str) -> bool:
    return b"\0" in "a".encode(encoding)
