"""Whole files of columns and databases, which the harness mutates."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

_SENTENCES = "The cat sat on the mat. It was happy. Then 3 dogs came by, and 9 birds left.\n"


def _rows() -> list[dict[str, Any]]:
    return [
        {
            "text": f"{_SENTENCES} {i}", "same": _SENTENCES, "id": i, "score": i / 4,
            "tags": [f"t{i % 3}"] * (i % 4), "meta": {"a": f"{i}", "b": None},
        }
        for i in range(40)
    ]  # fmt: skip


def _table() -> pa.Table:
    table = pa.Table.from_pylist(_rows())
    encoded = table.column("same").dictionary_encode()
    return table.set_column(table.schema.get_field_index("same"), "same", encoded)


def _parquet() -> bytes:
    target = io.BytesIO()
    pq.write_table(_table(), target, row_group_size=15, compression="zstd", data_page_size=300)
    return target.getvalue()


def _plain_parquet() -> bytes:
    target = io.BytesIO()
    pq.write_table(_table(), target, use_dictionary=False, compression="none")
    return target.getvalue()


def _delta_parquet() -> bytes:
    target = io.BytesIO()
    leaves = ("text", "same", "tags.list.element", "meta.a")
    pq.write_table(
        _table(), target, use_dictionary=False, compression="none", data_page_size=300,
        column_encoding=dict.fromkeys(leaves, "DELTA_BYTE_ARRAY"),
    )  # fmt: skip
    return target.getvalue()


def _arrow(new: Callable[..., Any], compression: str | None) -> bytes:
    target = io.BytesIO()
    table = _table()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(target, table.schema, options=options) as writer:
        writer.write_table(table, 15)
    return target.getvalue()


def _avro(codec: str) -> bytes:
    fields = [
        {"name": "text", "type": "string"}, {"name": "id", "type": ["null", "long"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "meta", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "inner", "type": ["null", "row"]},
    ]  # fmt: skip
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
    rows = [{**row, "inner": {**row, "inner": None} if row["id"] % 2 else None} for row in _rows()]
    target = io.BytesIO()
    fastavro.writer(target, schema, rows, codec=codec, sync_interval=2000)
    return target.getvalue()


def sqlite() -> bytes:
    """Returns a database with a table `docs` of ids and texts."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, text TEXT, extra BLOB)")
        rows = [(row["id"], row["text"], b"x" * 700) for row in _rows()]
        database.executemany("INSERT INTO docs VALUES (?, ?, ?)", rows)
        database.commit()
        return database.serialize()


# Extension, content and how many cases of each form.
COLUMNS: dict[str, tuple[str, Callable[[], bytes], int]] = {
    "Parquet": (".parquet", _parquet, 50),
    "plain Parquet": (".parquet", _plain_parquet, 30),
    "delta Parquet": (".parquet", _delta_parquet, 40),
    "Arrow": (".arrow", lambda: _arrow(pa.ipc.new_file, None), 30),
    "Arrow stream": (".arrows", lambda: _arrow(pa.ipc.new_stream, None), 30),
    "Feather": (".feather", lambda: _arrow(pa.ipc.new_file, "zstd"), 30),
    "Avro": (".avro", lambda: _avro("null"), 40),
    "packed Avro": (".avro", lambda: _avro("deflate"), 30),
}
