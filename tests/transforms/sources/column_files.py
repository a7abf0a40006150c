"""Files of columns for tests, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.work_items import SourceRange, list_sources

TEXTS = [
    "One sentence. Another one!\nA second line.\n\nA paragraph  of  its own",
    "", "   \n\t", "plain", "日本語の文。もう一つ。\nüber\r\nall\r\n", "x\n" * 40,
    "\u3000\n\u00a0 a",
]  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {
        "text": text, "other": f"o{i} {text}", "id": i, "split": ("train", "test")[i % 2],
        "meta": {"text": f"in {text}", "n": i}, "label": f"l{i % 3}", "score": i / 4,
    }
    for i, text in enumerate(TEXTS * 5)
]  # fmt: skip

Document = tuple[list[bytes], int, int, tuple[str, ...]]
Read = tuple[list[Document], list[int], list[int], list[Reject]]


def parquet(path: Path, table: pa.Table, part_rows: int) -> None:
    pq.write_table(table, path, row_group_size=part_rows)


def arrow_file(path: Path, table: pa.Table, part_rows: int, codec: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table, part_rows)


def arrow_stream(path: Path, table: pa.Table, part_rows: int) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, part_rows)


def avro(path: Path, table: pa.Table, part_rows: int, codec: str = "null") -> None:
    """Writes Avro, without what has no type there; each block has about so many rows."""
    schema = {"type": "record", "name": "row", "fields": _avro_fields(table.schema, "row")}
    rows = table.to_pylist()
    with path.open("wb") as handle:
        writer = fastavro.write.Writer(handle, fastavro.parse_schema(schema), codec)
        for number, row in enumerate(rows):
            if number and number % part_rows == 0:
                writer.dump()
            writer.write(row)
        writer.flush()


def _avro_fields(fields: Any, path: str) -> list[dict[str, Any]]:
    return [
        {"name": field.name, "type": ["null", _avro_type(field.type, f"{path}_{field.name}")]}
        for field in fields
    ]


def _avro_type(kind: pa.DataType, path: str) -> Any:
    if pa.types.is_struct(kind):
        return {"type": "record", "name": path, "fields": _avro_fields(list(kind), path)}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _avro_type(kind.value_type, path)}
    types = {pa.int64(): "long", pa.float64(): "double", pa.binary(): "bytes"}
    return types.get(kind, "string")


# Name of a form -> its extension, and what writes it in parts of so many rows.
FORMS: dict[str, tuple[str, Callable[[Path, pa.Table, int], None]]] = {
    "parquet": (".parquet", parquet),
    "arrow": (".arrow", arrow_file),
    "lz4": (".feather", lambda *given: arrow_file(*given, "lz4")),
    "zstd": (".feather", lambda *given: arrow_file(*given, "zstd")),
    "stream": (".arrow", arrow_stream),
    "avro": (".avro", avro),
    "deflate": (".avro", lambda *given: avro(*given, "deflate")),
    "zstandard": (".avro", lambda *given: avro(*given, "zstandard")),
}


def write(
    form: str, folder: Path, rows: list[dict[str, Any]] | pa.Table, part_rows: int = 1 << 20
) -> Path:
    """Writes rows as a file `a` of a form; returns its path."""
    extension, writer = FORMS[form]
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    writer(folder / f"a{extension}", table, part_rows)
    return folder / f"a{extension}"


def ranges(path: Path, target_bytes: int = 1 << 25) -> list[SourceRange]:
    """Returns the ranges of a file that work items of about so many bytes have."""
    listed = list_sources([str(path)])
    items = cut_work_items(listed, target_bytes)
    return [source for item in items for source in item]


def read(
    path: Path,
    spec: DocumentSpec,
    *,
    limits: DocumentLimits = READ_LIMITS,
    target_bytes: int = 1 << 25,
) -> Read:
    """Returns the documents, their positions and keys, and the rejects of a file."""
    return read_sources(ranges(path, target_bytes), spec, limits)


def read_sources(
    sources: list[SourceRange], spec: DocumentSpec, limits: DocumentLimits = READ_LIMITS
) -> Read:
    """Returns the same of ranges."""
    documents: list[Document] = []
    positions: list[int] = []
    keys: list[int] = []
    rejects: list[Reject] = []
    for source in sources:
        for batch in read_documents(source, spec, limits=limits):
            rejects += batch.rejects
            positions += batch.positions.tolist()
            keys += batch.keys.tolist()
            for i in range(len(batch.keys)):
                chosen = np.flatnonzero(batch.line_documents == i)
                assert batch.lines.select(chosen).non_ascii.tolist() == [
                    not batch.lines[j].isascii() for j in chosen
                ]
                documents.append(
                    (
                        [batch.lines[j] for j in chosen],
                        int(batch.groups[i]),
                        -1 if batch.splits is None else int(batch.splits[i]),
                        batch.carried[i] if batch.carried is not None else (),
                    )
                )
    return documents, positions, keys, rejects
