"""Documents that other tools wrote are read as what those were given.

The tools' own files are in other_tools.zip, which `write_other_tools.py` makes. What takes more
room, long texts in many pages and codings, is written here.
"""

from __future__ import annotations

import csv
import json
import random
import sqlite3
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import apache_beam as beam
import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that

from recordmill.transforms import ReadDocuments

pytestmark = pytest.mark.slow

ZIP = Path(__file__).with_name("other_tools.zip")
with zipfile.ZipFile(ZIP) as _stored:
    FORMS: list[dict[str, Any]] = json.loads(_stored.read("forms.json"))
    SMALL: list[dict[str, Any]] = json.loads(_stored.read("rows.json"))

Row = tuple[int | None, str | None, str]  # the id, the language where it is read, and the text


def wanted(rows: list[dict[str, Any]], nulls: str, options: dict[str, Any]) -> list[Row]:
    """Returns what must be read of rows.

    Args:
      rows: that a tool was given.
      nulls: why they are rejected, "empty", or "left out" as empty texts are.
      options: of `ReadDocuments`.
    """
    kept = options.get("keep_fields", "")
    found = []
    for row in rows:
        text = row["meta"]["text"] if options.get("text_field") == "meta.text" else row["text"]
        if text or (text == "" and nulls != "left out") or nulls == "empty":
            number = row["id"] if "id" in kept else None
            found.append((number, row["lang"] if "lang" in kept else None, text or ""))
    return found


def check_documents(
    source: str, given: list[dict[str, Any]], nulls: str, options: dict[str, Any]
) -> None:
    """Reads documents by a pipeline, and compares them with what a tool was given."""
    rows = wanted(given, nulls, options)
    is_rejected = nulls not in ("empty", "left out")
    rejects = [nulls for row in given if row["text"] is None and is_rejected]

    def compare(documents: list[Any]) -> None:
        found = Counter(
            (each.fields.get("id"), each.fields.get("lang"), each.text) for each in documents
        )
        assert not Counter(rows) - found, "documents are not read"
        assert not found - Counter(rows), "documents are not those that were written"
        assert len({each.key for each in documents}) == len(rows), "documents share a key"

    def count(rejected: list[Any]) -> None:
        assert [each["reason"] for each in rejected] == rejects

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        # Small ranges, so that files are cut wherever their form allows it.
        read = ReadDocuments(source, rejects="output", item_bytes=20_000, **options)
        found = pipeline | read
        assert_that(found["documents"], compare, label="Documents")
        assert_that(found["rejects"], count, label="Rejects")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other_tools")
    with zipfile.ZipFile(ZIP) as file:
        file.extractall(folder)
    return folder


@pytest.mark.parametrize("form", FORMS, ids=[form["input"] for form in FORMS])
def test_files_of_other_tools(stored: Path, form: dict[str, Any]) -> None:
    check_documents(str(stored / form["input"]), SMALL, form["nulls"], form["options"])


def many_rows() -> list[dict[str, Any]]:
    """Some hundred documents: of many scripts, long, equal, empty and null."""
    draws = random.Random(7)
    words = [word for row in SMALL for word in (row["text"] or "").split()] + ["\n", "\r\n", "\t"]
    rows = []
    for i in range(600):
        text: str | None = " ".join(draws.choices(words, k=draws.randint(1, 60)))
        if i % 100 == 7:
            text = " ".join(draws.choices(words, k=30_000))
        text = {13: None, 17: "", 19: "many rows have this text"}.get(i % 50, text)
        rows.append({"id": i, "text": text, "lang": f"l{i % 3}",
                     "meta": {"text": text and text[:90], "n": [i] * (i % 3)}})  # fmt: skip
    return rows


MANY = many_rows()
NESTED = pa.Table.from_pylist(MANY)
FLAT = NESTED.drop_columns(["meta"])
IDS = {"keep_fields": "id:int,lang"}


def parquet(table: pa.Table = NESTED, **options: Any) -> Callable[[Path], Any]:
    return lambda folder: pq.write_table(table, folder / "a.parquet", **options)


def of_type(kind: pa.DataType) -> pa.Table:
    return FLAT.set_column(1, "text", FLAT["text"].cast(kind))


def coded(coding: str, **options: Any) -> Callable[[Path], Any]:
    codings = {"text": coding, "id": "DELTA_BINARY_PACKED"}
    return parquet(FLAT, use_dictionary=False, column_encoding=codings, **options)


def partitioned(folder: Path) -> None:
    """Writes folders of Hive, `lang=l0/…`, with what Spark puts beside."""
    schema = pa.schema([("lang", pa.string())])
    pyarrow.dataset.write_dataset(
        FLAT, folder, format="parquet", max_rows_per_file=90, max_rows_per_group=40,
        basename_template="part-{i}.snappy.parquet",
        partitioning=pyarrow.dataset.partitioning(schema, flavor="hive"),
    )  # fmt: skip
    for path in list(folder.rglob("*.parquet")):
        path.with_name(f".{path.name}.crc").write_bytes(b"crc\0\0\0\2\0")
    (folder / "_SUCCESS").touch()
    (folder / "._SUCCESS.crc").write_bytes(b"crc\0\0\0\2\0")


def arrow(maker: Any, name: str, table: pa.Table = NESTED, **how: Any) -> Callable[[Path], Any]:
    def write(folder: Path) -> None:
        options = pa.ipc.IpcWriteOptions(**how)
        with maker(folder / name, table.schema, options=options) as writer:
            writer.write_table(table, 50)

    return write


def dictionary_deltas(folder: Path) -> None:
    """Writes a stream in which each batch adds texts to the dictionary of those before."""
    kind = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("id", pa.int64()), ("text", kind), ("lang", pa.string())])
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    texts: dict[str, int] = {}
    with pa.ipc.new_stream(folder / "a.arrows", schema, options=options) as writer:
        for begin in range(0, len(MANY), 100):
            rows = MANY[begin : begin + 100]
            for row in filter(lambda row: row["text"] is not None, rows):
                texts.setdefault(row["text"], len(texts))
            indices = pa.array([texts.get(row["text"]) for row in rows], pa.int32())
            column = pa.DictionaryArray.from_arrays(indices, pa.array(list(texts)))
            ids, langs = ([row[name] for row in rows] for name in ("id", "lang"))
            columns = [pa.array(ids), column, pa.array(langs)]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def avro(codec: str) -> Callable[[Path], Any]:
    kinds = {"id": "long", "text": ["null", "string"], "lang": "string"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = fastavro.parse_schema({"type": "record", "name": "Doc", "fields": fields})

    def write(folder: Path) -> None:
        with (folder / "a.avro").open("wb") as out:
            fastavro.writer(out, schema, FLAT.to_pylist(), codec=codec, sync_interval=9000)

    return write


def table(name: str, **options: Any) -> Callable[[Path], Any]:
    return lambda folder: FLAT.to_pandas().to_csv(folder / name, index=False, **options)


def spreadsheet(folder: Path) -> None:
    """Writes what Excel saves in countries whose comma is decimal."""
    with (folder / "a.csv").open("w", encoding="utf-8-sig", newline="") as out:
        writer = csv.writer(out, "excel", delimiter=";")
        writer.writerow(["id", "text", "lang"])
        writer.writerows([row["id"], row["text"], row["lang"]] for row in MANY)


def sqlite(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "a.db")) as connection, connection:
        connection.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, text TEXT, lang TEXT)")
        connection.executemany("INSERT INTO docs VALUES (:id, :text, :lang)", FLAT.to_pylist())


def archive(form: int) -> Callable[[Path], Any]:
    def write(folder: Path) -> None:
        with tarfile.open(folder / "a.tar", "w", format=form) as tar:
            for row in filter(lambda row: row["text"], MANY):
                member = tarfile.TarInfo(f"{'ünï' * 40}/{row['id']:05d}.json")
                data = json.dumps(row).encode()
                member.size, member.mtime = len(data), 1.5
                tar.addfile(member, BytesIO(data))

    return write


REJECTED = "field_not_text"
STREAM, FILE = pa.ipc.new_stream, pa.ipc.new_file
SQL = {"query": "SELECT * FROM docs", "partition_column": "id", **IDS}
OF_META = {"keep_fields": "id:int", "text_field": "meta.text"}
# How it is written, what is read of the folder, what becomes of nulls, and the options.
WRITTEN: dict[str, tuple[Callable[[Path], Any], str, str, dict[str, Any]]] = {
    **{
        f"parquet-{codec}": (parquet(compression=codec, row_group_size=170), "", REJECTED, IDS)
        for codec in ("snappy", "zstd", "gzip", "brotli", "lz4", "none")
    },
    "parquet-second-pages": (parquet(data_page_version="2.0"), "", REJECTED, IDS),
    "parquet-small-pages": (
        parquet(data_page_version="2.0", data_page_size=512, write_batch_size=10),
        "", REJECTED, IDS,
    ),
    "parquet-prefixes": (coded("DELTA_BYTE_ARRAY"), "", REJECTED, IDS),
    "parquet-prefixes-second-pages": (
        coded("DELTA_BYTE_ARRAY", data_page_version="2.0", row_group_size=37), "", REJECTED, IDS
    ),
    "parquet-lengths": (coded("DELTA_LENGTH_BYTE_ARRAY"), "", REJECTED, IDS),
    "parquet-plain": (parquet(use_dictionary=False), "", REJECTED, IDS),
    "parquet-dictionary-given-up": (parquet(dictionary_pagesize_limit=900), "", REJECTED, IDS),
    "parquet-groups-of-one-row": (parquet(FLAT, row_group_size=1), "", REJECTED, IDS),
    "parquet-large-strings": (parquet(of_type(pa.large_string())), "", REJECTED, IDS),
    "parquet-views": (parquet(of_type(pa.string_view())), "", REJECTED, IDS),
    "parquet-dictionaries": (
        parquet(of_type(pa.dictionary(pa.int32(), pa.string()))), "", REJECTED, IDS
    ),
    "parquet-first-version": (parquet(version="1.0", store_schema=False), "", REJECTED, IDS),
    "parquet-checksums": (
        parquet(write_page_checksum=True, write_page_index=True), "", REJECTED, IDS
    ),
    "parquet-structs": (parquet(data_page_version="2.0"), "", REJECTED, OF_META),
    "parquet-partitions": (partitioned, "lang=*/*.parquet", REJECTED, {"keep_fields": "id:int"}),
    "arrow-file": (arrow(FILE, "a.arrow"), "", REJECTED, IDS),
    "arrow-file-lz4": (arrow(FILE, "a.feather", compression="lz4"), "", REJECTED, IDS),
    "arrow-stream": (arrow(STREAM, "a.arrows"), "", REJECTED, IDS),
    "arrow-stream-zstd": (arrow(STREAM, "a.arrow", compression="zstd"), "", REJECTED, IDS),
    "arrow-fourth-version": (
        arrow(FILE, "a.arrow", FLAT, metadata_version=pa.ipc.MetadataVersion.V4), "", REJECTED, IDS,
    ),
    "arrow-views": (arrow(FILE, "a.arrow", of_type(pa.string_view())), "", REJECTED, IDS),
    "arrow-large-strings": (
        arrow(STREAM, "a.arrows", of_type(pa.large_string())), "", REJECTED, IDS
    ),
    "arrow-dictionary-deltas": (dictionary_deltas, "", REJECTED, IDS),
    **{
        f"avro-{codec}": (avro(codec), "", REJECTED, IDS)
        for codec in ("null", "deflate", "zstandard", "bzip2", "xz")
    },
    "csv": (table("a.csv"), "", "empty", IDS),
    "csv-all-quoted": (
        table("a.csv", quoting=csv.QUOTE_ALL, lineterminator="\r\n"), "", "empty", IDS
    ),
    "csv-no-names": (
        table("a.csv", header=False), "", "empty",
        {"header": "none", "columns": ("id", "text", "lang"), **IDS},
    ),
    "csv-utf-16": (table("a.csv", encoding="utf-16"), "", "empty", {"encoding": "utf-16", **IDS}),
    "csv-spreadsheet": (spreadsheet, "", "empty", {"delimiter": ";", **IDS}),
    "csv-gz": (table("a.csv.gz"), "", "empty", IDS),
    "csv-zst": (table("a.csv.zst"), "", "empty", IDS),
    "tsv": (table("a.tsv", sep="\t"), "", "empty", IDS),
    "jsonl": (
        lambda folder: pd.DataFrame(MANY).to_json(folder / "a.jsonl", orient="records", lines=True),
        "", REJECTED, IDS,
    ),
    "json-indented": (
        lambda folder: pd.DataFrame(MANY).to_json(folder / "a.json", orient="records", indent=1),
        "", REJECTED, IDS,
    ),
    "sqlite": (sqlite, "sqlite:///{folder}/a.db", REJECTED, SQL),
    "tar-pax": (archive(tarfile.PAX_FORMAT), "", "left out", IDS),
    "tar-gnu": (archive(tarfile.GNU_FORMAT), "", "left out", IDS),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_forms_that_libraries_write(tmp_path: Path, name: str) -> None:
    write, pattern, nulls, options = WRITTEN[name]
    write(tmp_path)
    source = pattern if "://" in pattern else "{folder}/" + (pattern or "*")
    check_documents(source.format(folder=tmp_path), MANY, nulls, options)
