"""Read JSON: an object on each line (JSONL), an array of objects, or objects in sequence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
import orjson
import pyarrow as pa

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.blocks import BrokenFileError, first_line, read_blocks
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.input_spec import DecodingErrors
from recordmill.transforms.sources.json_texts import read_texts
from recordmill.transforms.sources.json_values import (
    SNIFFED_BYTES,
    has_object_lines,
    read_beginning,
    scan_values,
)
from recordmill.transforms.sources.record_rows import RecordBlock, RecordRows, without_empty_lines
from recordmill.transforms.sources.row_fields import RecordRejectedError
from recordmill.transforms.sources.rows import (
    RowMaker,
    RowOptions,
    Rows,
    column_of,
    column_values,
)
from recordmill.transforms.sources.work_items import SourceRange, equal_starts, ranges_at
from recordmill.transforms.storage import files


def parse_object(text: bytes, errors: DecodingErrors, wanted: Sequence[str]) -> dict[str, object]:
    """Returns the members of an object of JSON.

    Args:
      text: UTF-8.
      errors: "replace" puts U+FFFD for half of a surrogate pair, which JSON's escapes can spell.
      wanted: the fields that are read of it, or paths to them; in others halves are replaced.

    Raises:
      RecordRejectedError: the text is none, or a field that is read has a half.
    """
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            content = json.loads(text)  # takes NaN and halves of pairs, which Python writes
            if isinstance(content, dict) and b"\\ud" in text.lower():
                content = _without_halves(content, errors, wanted)
        except (ValueError, RecursionError):
            raise RecordRejectedError("not_json", str(error)) from error
    if not isinstance(content, dict):
        raise RecordRejectedError("not_json", type(content).__name__)
    return content


def _without_halves(
    content: dict[str, object], errors: DecodingErrors, wanted: Sequence[str]
) -> dict[str, object]:
    """Returns an object in which no half of a surrogate pair is left; see `parse_object`."""
    if errors == "strict":
        for name in {part for each in wanted for part in (each, each.partition(".")[0])}:
            try:
                json.dumps(content.get(name), ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                raise RecordRejectedError("lone_surrogate", repr(name)) from error
    shown = json.dumps(content, ensure_ascii=False).encode("utf-16", "surrogatepass")
    found: dict[str, object] = json.loads(shown.decode("utf-16", "replace"))
    return found


class _JsonRows(RecordRows):
    """Objects of JSON, of which some fields are read."""

    _names: Sequence[str] = ()

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the rows of the range in order."""
        self._names = names
        return super().rows(names, batch_bytes)

    def parse(self, record: bytes) -> dict[str, object] | None:
        """Returns the members of an object."""
        return parse_object(record, self.options.spec.encoding_errors, self._names)


class JsonLines(_JsonRows):
    """See `rows.RowSource`: an object on each line."""

    def start(self) -> int:
        """Returns the byte where the first line of the range begins."""
        if self.source.compression:
            return 0
        return first_line(self.source, self.options.limits)[0]

    def record_ends(self, block: bytes) -> Int64s:
        """Returns `[num_ends] int64`: the offsets in the next block just after each line."""
        return np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1

    def first_names(self) -> list[str]:
        """Returns the names of the members of the first object that has any, [] for none."""
        maker = RowMaker([])
        for block in self.blocks(self.options.limits.block_bytes, maker):
            for _, record in self.records(block, maker):
                with suppress(RecordRejectedError):
                    if names := list(parse_object(record, "replace", ())):
                        return names
        return []

    def block_rows(self, block: RecordBlock, maker: RowMaker) -> Rows:
        """Returns the rows of some lines: one field that is text by a kernel, see `json_texts`."""
        block = without_empty_lines(block)
        if len(maker.names) != 1 or "." in maker.names[0]:
            return super().block_rows(block, maker)
        data, position, starts, ends = block
        texts = read_texts(
            data, starts, ends, name=maker.names[0],
            most_bytes=self.options.limits.record_bytes,
        )  # fmt: skip
        offsets = np.append(texts.starts, texts.ends[-1:]) if len(starts) else np.zeros(1, np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts.pool)]
        array = pa.Array.from_buffers(pa.large_string(), len(starts), buffers)
        offsets = position + starts
        if texts.taken.all():
            return maker.rows([array], offsets)
        others = ~texts.taken
        self.add_records(block._replace(starts=starts[others], ends=ends[others]), maker)
        parsed = maker.take()
        for reject in parsed.rejects:
            maker.reject(*reject)
        array, column = array.filter(pa.array(~others)), parsed.columns[maker.names[0]]
        offsets = np.concatenate([offsets[~others], parsed.positions()])
        order = np.argsort(offsets, kind="stable")
        if pa.types.is_string(column.type):
            joined = pa.concat_arrays([array, column.cast(pa.large_string())])
            return maker.rows([joined.take(pa.array(order))], offsets[order])
        values = [*array.to_pylist(), *column_values(column)]
        return maker.rows([column_of([values[i] for i in order.tolist()])], offsets[order])


class JsonValues(_JsonRows):
    """See `rows.RowSource`: the elements of an array, or objects over several lines.

    A record ends with the comma after an element, or with the end of an object.
    """

    def __init__(self, source: SourceRange, options: RowOptions) -> None:
        super().__init__(source, options)
        self._state = np.zeros(3, np.int64)

    def record_ends(self, block: bytes) -> Int64s:
        """Returns `[num_ends] int64`: the offsets in the next block just after each value."""
        return scan_values(np.frombuffer(block, np.uint8), self._state)

    def parse(self, record: bytes) -> dict[str, object] | None:
        """Returns the members of an object; None for what is left of an array without one."""
        value = record.lstrip(b"[, \t\r\n").rstrip(b"], \t\r\n")
        return super().parse(value) if value else None


@contextmanager
def open_json_lines(source: SourceRange, options: RowOptions) -> Iterator[JsonLines]:
    """Opens a range of JSONL, see `formats.SourceFormat.opened`."""
    yield JsonLines(source, options)


@contextmanager
def open_json(source: SourceRange, options: RowOptions) -> Iterator[RecordRows]:
    """Opens JSON, which may be objects on a line each."""
    try:
        beginning = read_beginning(read_blocks(source, options.spec, 0, SNIFFED_BYTES))
    except BrokenFileError:
        beginning = b""
    has_lines = has_object_lines(beginning)
    yield JsonLines(source, options) if has_lines else JsonValues(source, options)


def cut_json(source: SourceRange, target_bytes: int, options: CutOptions) -> Iterator[SourceRange]:
    """Yields ranges of a file of an object on each line, and any other file as it is."""
    with files.open_read(source.path) as handle:
        has_lines = options.splittable and has_object_lines(handle.read(SNIFFED_BYTES))
    if has_lines:
        source = replace(source, format="jsonl")
    yield from ranges_at(source, equal_starts(source, target_bytes) if has_lines else [0])
