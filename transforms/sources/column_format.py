"""What formats of columns have in common: rows as Arrow's arrays, a damage, columns by path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.blocks import BrokenFileError

MOST_ROWS = 4096  # of a batch: sizes of columns do not show how long single texts are


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that follow each other.

    Attributes:
      first: the number of the first one in its file, from 0 on.
      count: how many there are.
      columns: by name, `[count]` each.
      hashes: `[count] int64`, at least 0: what stands for the numbers of rows without an order.
    """

    first: int
    count: int
    columns: dict[str, pa.Array]
    hashes: Int64s | None = None

    def positions(self) -> Int64s:
        """Returns `[count] int64`: what identifies the rows."""
        if self.hashes is not None:
            return self.hashes
        return np.arange(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True)
class Damage:
    """Rows cannot be read, from number `position` on; `reason` is a key of `rejects.REASONS`."""

    position: int
    reason: str
    detail: str


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


class ColumnFormat(Protocol):
    """A range of an open file of columns."""

    schema: pa.Schema

    @property
    def num_rows(self) -> int:
        """The number of rows in the whole file."""
        ...

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows | Damage]:
        """Yields the rows of the range in order.

        Args:
          names: of the columns, as `column_type` takes them, all of which there are.
          batch_bytes: about what the columns of one batch have, unless a single row has more.
        """
        ...


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
