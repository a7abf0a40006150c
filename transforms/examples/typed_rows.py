"""Columns of CSV and TSV, which are text, as columns of the types that they show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.records.schema import DType
from recordmill.transforms.sources.rows import RowReject, Rows

_TYPES: dict[DType, pa.DataType] = {
    "int64": pa.int64(), "float32": pa.float64(), "bytes": pa.string(),
}  # fmt: skip


def typed_rows(rows: Rows, types: Mapping[str, DType]) -> Rows:
    """Returns rows of CSV with columns of their types; a row with another value is a reject.

    Args:
      rows: whose columns are text.
      types: of columns; those of others are text.
    """
    columns: dict[str, pa.Array] = {}
    problems: dict[int, str] = {}
    for name, array in rows.columns.items():
        dtype = types.get(name, "bytes")
        columns[name], unfit = typed_column(array, dtype)
        for row in unfit:
            detail = f"{name!r} is {array[row].as_py()!r:.80} and must be {dtype}"
            problems.setdefault(row, detail)
    if not problems:
        return replace(rows, columns=columns)
    positions = rows.positions()
    rejects = [RowReject(int(positions[i]), "parse", "bad_row", problems[i]) for i in problems]
    fits = np.ones(rows.count, np.bool_)
    fits[list(problems)] = False
    return replace(
        rows, count=int(fits.sum()), offsets=positions[fits], rejects=(*rows.rejects, *rejects),
        columns={name: array.filter(pa.array(fits)) for name, array in columns.items()},
    )  # fmt: skip


def infer_types(columns: Mapping[str, pa.Array]) -> tuple[tuple[str, DType], ...]:
    """Returns the types of columns that some rows of CSV show: numbers where all values are.

    A value without characters is none; a column that has only such is text.

    Args:
      columns: name -> texts.
    """
    return tuple((name, _infer(array)) for name, array in columns.items())


def _infer(array: pa.Array) -> DType:
    array = array.filter(pc.not_equal(array, ""))
    if len(array):
        for dtype in ("int64", "float32"):
            try:
                array.cast(_TYPES[dtype])
            except pa.ArrowInvalid:
                continue
            return dtype
    return "bytes"


def typed_column(array: pa.Array, dtype: DType) -> tuple[pa.Array, list[int]]:
    """Returns a column of text as one of a type, and the rows whose value is not of it.

    A number without characters is null.
    """
    if dtype == "bytes":
        return array, []
    given = pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)
    try:
        return given.cast(_TYPES[dtype]), []
    except pa.ArrowInvalid:
        found: list[pa.Scalar | None] = []
        unfit = []
        for row, value in enumerate(given):
            try:
                found.append(value.cast(_TYPES[dtype]).as_py())
            except pa.ArrowInvalid:
                unfit.append(row)
                found.append(None)
        return pa.array(found, _TYPES[dtype]), unfit
