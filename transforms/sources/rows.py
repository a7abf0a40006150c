"""Rows of any source: Arrow's columns, the position of each row, and what of them is rejected.

A format of rows gives `RowSource`: files of columns by their schema, records of lines by what each
has. So text, images and existing records read the same rows of all formats.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.records.arrays import Int64s
from recordmill.records.hashing import U64
from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.row_fields import (
    MISSING,
    RecordRejectedError,
    find_field,
    required_field,
    without_surrogates,
)

NO_SCHEMA = pa.schema([])
_MOST_LEVELS = 100  # of a value of JSON
MOST_ROWS = 4096  # of a batch: sizes of columns do not show how long single texts are
_TYPES: dict[type, pa.DataType] = {
    str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64(),
}  # fmt: skip


class RowReject(NamedTuple):
    """What cannot be read, from `position` on; `reason` is a key of `rejects.REASONS`."""

    position: int
    stage: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that follow each other, and rejects among or behind them.

    Attributes:
      first: the number of the first one in its file, from 0 on.
      count: how many there are.
      columns: by name, `[count]` each, without those that nobody asked for.
      offsets: `[count] int64`, at least 0: the byte where each begins, or what stands for its
        number where there is no order; None: numbers from `first` on.
      rejects: beside these.
      identities: `[count] uint64`: what keys are made of; None: the positions.
      names: what a person finds each row by; () where its position says it.
      is_utf8: text is valid, and need not be looked at.
    """

    first: int
    count: int
    columns: dict[str, pa.Array]
    offsets: Int64s | None = None
    rejects: tuple[RowReject, ...] = ()
    identities: U64 | None = None
    names: tuple[str, ...] = ()
    is_utf8: bool = False

    def positions(self) -> Int64s:
        """Returns `[count] int64`: what identifies the rows."""
        if self.offsets is not None:
            return self.offsets
        return np.arange(self.first, self.first + self.count)


def without_column(rows: Rows, problem: str) -> Rows:
    """Returns no row, and each as a reject, because a column that is asked for is not there.

    Args:
      rows: of any columns.
      problem: see `missing_column`.
    """
    missing = [
        RowReject(position, "parse", "field_missing", problem)
        for position in rows.positions().tolist()
    ]
    return Rows(rows.first, 0, {}, rejects=(*rows.rejects, *missing))


def rejected(position: int, reason: str, detail: str) -> Rows:
    """Returns no row, and that none can be read from a position on."""
    return Rows(position, 0, {}, rejects=(RowReject(position, "read", reason, detail),))


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How the rows of a source are read.

    Attributes:
      spec: how they lie in files.
      limits: sizes.
      lists: of Avro too, arrays have types of Arrow; else they are JSON, as text.
      strict: a field of CSV must end behind its second quote.
      partial: a record that lacks a field has null there; else it is a reject.
    """

    spec: DocumentSpec = field(default_factory=DocumentSpec)
    limits: DocumentLimits = READ_LIMITS
    lists: bool = False
    strict: bool = False
    partial: bool = False

    @property
    def ratio(self) -> int:
        """To how many times its bytes a part of a file may unpack, beyond 64 MiB."""
        return self.spec.max_compression_ratio


class RowSource(Protocol):
    """A range of an open source.

    Attributes:
      schema: of its columns; `NO_SCHEMA` where each record has fields of its own.
    """

    schema: pa.Schema

    @property
    def num_rows(self) -> int:
        """The number of rows in the whole file; 0 where that is not known."""
        ...

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the rows of the range in order.

        Args:
          names: of the columns, as `column_type` takes them, all of which there are.
          batch_bytes: about what the columns of one batch have, unless a single row has more.
        """
        ...


class JsonType(pa.ExtensionType):
    """A column whose values are of several types, or objects and arrays: each is JSON."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "recordmill.json")

    def __arrow_ext_serialize__(self) -> bytes:
        """Returns nothing: all are alike."""
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> JsonType:
        """Returns the type."""
        return cls()


class RowMaker:
    """Makes rows of records that were parsed.

    Args:
      names: of the fields that become columns, or paths to them, as "meta.text".
      partial: see `RowOptions`.
    """

    def __init__(self, names: Sequence[str], *, partial: bool = False) -> None:
        self.names = names
        self._partial = partial
        self._rejects: list[RowReject] = []
        self._begin()

    def _begin(self) -> None:
        self._columns: list[list[object]] = [[] for _ in self.names]
        self._offsets: list[int] = []
        self._identities: list[int] = []
        self._shown: list[str] = []

    def add(
        self,
        position: int,
        fields: Mapping[str, object],
        identity: int | None = None,
        name: str | None = None,
    ) -> None:
        """Adds a record.

        Args:
          position: where it is.
          fields: of it.
          identity: see `Rows.identities`; of all records or none.
          name: see `Rows.names`; of all records or none.

        Raises:
          RecordRejectedError: it lacks a field, or has one that is nested too deeply.
        """
        values = [find_field(fields, each) for each in self.names]
        if MISSING in values:
            if not self._partial:
                for each in self.names:
                    required_field(fields, each)
            values = [None if value is MISSING else value for value in values]
        if any(isinstance(value, list | dict) and _is_too_deep(value) for value in values):
            detail = f"a value is nested more than {_MOST_LEVELS} levels deep"
            raise RecordRejectedError("not_json", detail)
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self._offsets.append(position)
        if identity is not None:
            self._identities.append(identity)
        if name is not None:
            self._shown.append(name)

    def reject(self, position: int, stage: str, reason: str, detail: str = "") -> None:
        """Adds a reject."""
        self._rejects.append(RowReject(position, stage, reason, detail))

    def take(self) -> Rows:
        """Returns the rows and rejects since the last ones."""
        arrays = [column_of(values) for values in self._columns]
        rows = self.rows(arrays, np.array(self._offsets, np.int64))
        identities = np.array(self._identities, np.uint64) if self._identities else None
        rows = replace(rows, identities=identities, names=tuple(self._shown))
        self._begin()
        return rows

    def rows(self, arrays: Sequence[pa.Array], offsets: Int64s) -> Rows:
        """Returns rows of columns in the order of the names, with the rejects since the last."""
        rejects, self._rejects = tuple(self._rejects), []
        columns = dict(zip(self.names, arrays, strict=True))
        return Rows(0, len(offsets), columns, offsets, rejects, is_utf8=True)


def _is_too_deep(value: list[Any] | dict[str, Any]) -> bool:
    """Returns whether a value of JSON has more levels than are read, which C's stack must hold."""
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [v for each in inner for v in each if isinstance(v, list | dict)]
        if not level:
            return False
    return True


def column_of(values: Sequence[object]) -> pa.Array:
    """Returns a column of values as JSON knows them: of their type, or of `JsonType`.

    Lone surrogates of text, which no UTF-8 has, become question marks.
    """
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values), pa.string())
    kind = _TYPES.get(next(iter(kinds))) if len(kinds) == 1 else None
    if kind is not None:
        try:
            return pa.array(values, kind)
        except UnicodeEncodeError:
            return pa.array([v and without_surrogates(str(v)) for v in values], kind)
        except OverflowError:  # beyond 64 bits
            pass
    texts = [None if value is None else json.dumps(value) for value in values]
    return pa.ExtensionArray.from_storage(JsonType(), pa.array(texts, pa.string()))


def column_values(array: pa.Array) -> list[Any]:
    """Returns the values of which `column_of` has made a column."""
    if not isinstance(array.type, JsonType):
        return list(array.to_pylist())
    return [None if text is None else json.loads(text) for text in array.storage.to_pylist()]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """So many rows that lie together in a file, from byte `position` to `end`."""

    position: int
    end: int
    rows: int


def count_rows(blocks: Iterable[RowBlock]) -> int:
    """Returns the number of rows in the blocks of a file, up to where it is damaged."""
    count = 0
    with suppress(BrokenFileError):
        for block in blocks:
            count += block.rows
    return count


def cut_blocks(blocks: Iterable[RowBlock], target_bytes: int) -> tuple[list[int], list[int]]:
    """Returns where to cut a file of blocks into ranges of about that many bytes.

    Returns:
      Where ranges begin, from 0 on, and the number of the first row of each.
    """
    starts, firsts, first = [0], [0], 0
    with suppress(BrokenFileError):  # the range that reads it rejects it
        for block in blocks:
            if block.end - starts[-1] > target_bytes and first:
                starts.append(block.position)
                firsts.append(first)
            first += block.rows
    return starts, firsts


def rows_without_columns(first: int, end: int) -> Iterator[Rows]:
    """Yields the rows from number `first` to `end`, of which no column is asked for."""
    for begin in range(first, end, MOST_ROWS):
        yield Rows(begin, min(MOST_ROWS, end - begin), {})


def whole_batch(batch: pa.RecordBatch, names: Sequence[str], first: int) -> Rows:
    """Returns columns of a batch that is in memory.

    Args:
      batch: of any size.
      names: of the columns, as `column_type` takes them, all of which there are.
      first: the number of the first row.

    Raises:
      pyarrow.ArrowException: the batch is damaged.
    """
    picked = pick_columns(batch, names)
    for array in picked.values():
        array.validate(full=True)
    return Rows(first, batch.num_rows, picked)


def slice_batch(
    batch: pa.RecordBatch, names: Sequence[str], batch_bytes: int, first: int
) -> Iterator[Rows]:
    """Yields what `whole_batch` returns in parts of about so many bytes.

    Raises:
      pyarrow.ArrowException: the batch is damaged.
    """
    picked = whole_batch(batch, names, first).columns
    step = max(1, min(batch_bytes * batch.num_rows // (batch.nbytes or 1), MOST_ROWS))
    for begin in range(0, batch.num_rows, step):
        count = min(step, batch.num_rows - begin)
        yield Rows(
            first + begin,
            count,
            {name: array.slice(begin, count) for name, array in picked.items()},
        )


def column_type(schema: pa.Schema, name: str) -> pa.DataType | None:
    """Returns the type of a column by its name, or by a path such as "meta.text" in structs.

    Returns:
      None where there is no such column, or several.
    """
    path = _path(schema, name)
    kind: Any = schema
    for step in path:
        kind = (schema if kind is schema else kind).field(step).type
    return kind if path else None


def outer_names(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Returns the columns that hold those of some names, each once; all must be there."""
    return list(dict.fromkeys(_path(schema, name)[0] for name in names))


def pick_columns(batch: pa.RecordBatch, names: Sequence[str]) -> dict[str, pa.Array]:
    """Returns columns of a batch, as `column_type` finds them; all must be there."""
    picked = {}
    for name in names:
        first, *rest = _path(batch.schema, name)
        array = batch.column(first)
        for step in rest:
            array = pc.struct_field(array, step)
        picked[name] = array
    return picked


def _path(fields: Any, name: str) -> list[str]:
    """Returns the fields from the outermost to the one of that name; [] where there is none."""
    if fields.get_field_index(name) >= 0:
        return [name]
    outer, dot, inner = name.partition(".")
    if not dot or fields.get_field_index(outer) < 0:
        return []
    kind = fields.field(outer).type
    rest = _path(kind, inner) if pa.types.is_struct(kind) else []
    return [outer, *rest] if rest else []
