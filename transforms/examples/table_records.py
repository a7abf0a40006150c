"""Rows of tables as tf.Examples: Parquet, Arrow, Avro, CSV and TSV.

A row is a record, a column a feature: integers and booleans int64, floats float32, text and bytes
bytes, lists of these all their values; a null is no feature. Columns are encoded by the kernels
that encode all records, so no row becomes an object of Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.records.codec.encoding import encode_batch
from recordmill.records.schema import Feature, Schema
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.examples.example_elements import frame_records
from recordmill.transforms.examples.examples_spec import TableSpec
from recordmill.transforms.examples.record_source import (
    BLOCK_BYTES,
    KEYED_ELEMENTS,
    RecordBatch,
    RecordFileRange,
    read_elements,
    read_records,
)
from recordmill.transforms.examples.table_columns import (
    RecordColumn,
    UnfitColumnError,
    record_column,
)
from recordmill.transforms.examples.typed_rows import typed_rows
from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.formats import DELIMITED, ELEMENTS, ROW_FORMATS
from recordmill.transforms.sources.open_rows import open_rows
from recordmill.transforms.sources.row_documents import missing_column
from recordmill.transforms.sources.rows import RowOptions, Rows, without_column
from recordmill.transforms.storage.buffers import BlockPool

_MOST_BYTES = 1 << 22  # of the columns of a batch


def read_batches(
    source: RecordFileRange, spec: TableSpec, block_bytes: int, pool: BlockPool | None = None
) -> Iterator[RecordBatch]:
    """Yields the records of a range of a file of any form.

    Args:
      source: the range.
      spec: of the rows of tables.
      block_bytes: how much is read at once.
      pool: of blocks for bytes of files, None for fresh ones.

    Raises:
      InputChangedError: it is another file than was planned.
    """
    if source.format in (ELEMENTS, KEYED_ELEMENTS):
        return read_elements(source, block_bytes, pool)
    if source.format not in ROW_FORMATS:
        batches = read_records(source, block_bytes, pool)
    else:
        batches = _read_rows(source, spec, min(block_bytes, _MOST_BYTES))
    return _first_records(batches, source) if source.most else batches


def count_records(source: RecordFileRange, most: int, spec: TableSpec) -> RecordFileRange:
    """Returns a file with how many records it has, up to so many, their bytes and their end."""
    count = size = end = 0
    for batch in read_batches(replace(source, most=most), spec, BLOCK_BYTES):
        count += len(batch.begins)
        size += int((batch.ends - batch.begins).sum())
        end = int(batch.positions[-1]) + 1 if len(batch.begins) else end
    return replace(source, most=count, most_bytes=size, most_end=end)


def _first_records(
    batches: Iterator[RecordBatch], source: RecordFileRange
) -> Iterator[RecordBatch]:
    """Yields so many records as are read of a file, and what is rejected before the last one."""
    left = source.most
    for batch in batches:
        if len(batch.begins) >= left:
            end = batch.positions[left - 1]
            batch = replace(
                batch, begins=batch.begins[:left], ends=batch.ends[:left],
                rejects=tuple(each for each in batch.rejects if each.position < end),
                origins=None if batch.origins is None else batch.origins[:left],
            )  # fmt: skip
        left -= len(batch.begins)
        yield replace(batch, extent=source.most_end)
        if not left:
            return


def _read_rows(source: RecordFileRange, spec: TableSpec, size: int) -> Iterator[RecordBatch]:
    types = dict(spec.types)
    options = RowOptions(spec.delimited, lists=True, strict=True)
    try:
        with open_rows(source, options) as opened:
            names = list(spec.columns) or opened.schema.names
            missing = missing_column(opened.schema, names)
            extent = opened.num_rows
            for rows in opened.rows([] if missing else names, size):
                if missing:
                    rows = without_column(rows, missing)
                elif source.format in DELIMITED:
                    rows = typed_rows(rows, types)
                yield _encoded(source, rows, extent)
    except BrokenFileError as error:
        yield _nothing([Reject(source.name, 0, "read", error.reason, str(error))])


def _nothing(rejects: list[Reject]) -> RecordBatch:
    none = np.zeros(0, np.int64)
    return RecordBatch(np.zeros(0, np.uint8), none, none, 0, 0, tuple(rejects), none)


def _encoded(source: RecordFileRange, rows: Rows, extent: int) -> RecordBatch:
    """Encodes the rows of a batch; those that no record can hold are rejects."""
    count, positions = rows.count, rows.positions()
    rejects = [Reject(source.name, *reject) for reject in rows.rejects]
    columns: dict[str, RecordColumn] = {}
    unfit: dict[int, str] = {}
    for name, array in rows.columns.items():
        try:
            column = record_column(name, array)
        except (UnfitColumnError, pa.ArrowInvalid) as error:
            unfit = dict.fromkeys(range(count), str(error)) | unfit
            continue
        if column is None:
            continue
        columns[name] = column
        unfit = {**column.unfit, **unfit}
    for row, why in sorted(unfit.items()):
        rejects.append(Reject(source.name, int(positions[row]), "parse", "bad_row", why))
    kept = np.delete(np.arange(count), list(unfit))
    if not len(kept):
        return _nothing(rejects)
    if columns:
        schema = Schema(tuple(Feature(n, c.dtype, (None,), "") for n, c in columns.items()))
        values: dict[str, Any] = {name: column.values for name, column in columns.items()}
        encoded = encode_batch(schema, values)
        data, offsets = encoded.buffer, encoded.offsets
    else:
        data, offsets = frame_records([b""] * count)
    return RecordBatch(
        data, offsets[:-1][kept], offsets[1:][kept], 0, len(data), tuple(rejects),
        positions[kept], extent=extent,
    )  # fmt: skip
