"""Read JSON: an object on each line (JSONL), an array of objects, or objects in sequence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import orjson

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.blocks import BrokenFileError, first_line, read_blocks
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.json_texts import JsonTexts, read_texts
from recordmill.transforms.sources.json_values import (
    SNIFFED_BYTES,
    has_object_lines,
    read_beginning,
    scan_values,
)
from recordmill.transforms.sources.record_reader import RecordReader
from recordmill.transforms.sources.row_fields import RecordRejectedError
from recordmill.transforms.sources.work_items import SourceRange, equal_starts, ranges_at
from recordmill.transforms.storage import files


class JsonLines:
    """See `record_reader.RecordFormat`."""

    blank_bytes: bytes | None = None
    number_field = ""

    def record_ends(self, block: bytes) -> Int64s:
        """Returns `[num_ends] int64`: the offsets in the next block just after each line."""
        return np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1

    def parse(self, record: bytes) -> dict[str, object]:
        """Returns the members of a line's object.

        Raises:
          RecordRejectedError: the line is not a JSON object.
        """
        try:
            content = orjson.loads(record)
        except orjson.JSONDecodeError as error:
            try:
                content = json.loads(record)  # takes NaN and lone surrogates, which Python writes
            except (ValueError, RecursionError):
                raise RecordRejectedError("not_json", str(error)) from error
        if not isinstance(content, dict):
            raise RecordRejectedError("not_json", type(content).__name__)
        return content

    def read_texts(
        self, data: bytes, starts: Int64s, ends: Int64s, *, name: str, most_bytes: int
    ) -> JsonTexts | None:
        """Returns a field of lines by a kernel, see `json_texts`."""
        return read_texts(data, starts, ends, name=name, most_bytes=most_bytes)


class JsonValues(JsonLines):
    """See `record_reader.RecordFormat`: the elements of an array, or objects over several lines.

    A record ends with the comma after an element, or with the end of an object.
    """

    def __init__(self) -> None:
        self._state = np.zeros(3, np.int64)

    def record_ends(self, block: bytes) -> Int64s:
        """Returns `[num_ends] int64`: the offsets in the next block just after each value."""
        return scan_values(np.frombuffer(block, np.uint8), self._state)

    def parse(self, record: bytes) -> dict[str, object] | None:  # type: ignore[override]
        """Returns the members of an object; None for what is left of an array without one.

        Raises:
          RecordRejectedError: the value is not a JSON object.
        """
        value = record.lstrip(b"[, \t\r\n").rstrip(b"], \t\r\n")
        return super().parse(value) if value else None

    def read_texts(
        self, data: bytes, starts: Int64s, ends: Int64s, *, name: str, most_bytes: int
    ) -> None:
        """Returns None: values are not one on each line."""


def read_json_lines(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
) -> Iterator[DocumentBatch]:
    """Yields the documents of a range of JSONL, see `formats.SourceFormat.read`."""
    start = 0 if source.compression else first_line(source, limits)[0]
    return RecordReader(source, spec, limits, maker, JsonLines()).read(start)


def read_json(
    source: SourceRange, spec: DocumentSpec, limits: DocumentLimits, maker: BatchMaker
) -> Iterator[DocumentBatch]:
    """Yields the documents of JSON, which may be objects on a line each."""
    try:
        beginning = read_beginning(read_blocks(source, spec, 0, SNIFFED_BYTES))
    except BrokenFileError:
        beginning = b""
    if has_object_lines(beginning):
        return read_json_lines(source, spec, limits, maker)
    return RecordReader(source, spec, limits, maker, JsonValues()).read(0)


def cut_json(source: SourceRange, target_bytes: int, options: CutOptions) -> Iterator[SourceRange]:
    """Yields ranges of a file of an object on each line, and any other file as it is."""
    with files.open_read(source.path) as handle:
        has_lines = options.splittable and has_object_lines(handle.read(SNIFFED_BYTES))
    if has_lines:
        source = replace(source, format="jsonl")
    yield from ranges_at(source, equal_starts(source, target_bytes) if has_lines else [0])
