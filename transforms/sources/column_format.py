"""What formats of columns have in common: rows as Arrow's arrays, a damage, columns by path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

MOST_ROWS = 4096  # of a batch: sizes of columns do not show how long single texts are


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that follow each other.

    Attributes:
      first: the number of the first one in its file, from 0 on.
      count: how many there are.
      columns: by name, `[count]` each.
    """

    first: int
    count: int
    columns: dict[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Damage:
    """Rows cannot be read, from number `position` on; `reason` is a key of `rejects.REASONS`."""

    position: int
    reason: str
    detail: str


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
