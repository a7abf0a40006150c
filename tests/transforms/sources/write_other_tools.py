"""Writes other_tools.zip: a few documents as other tools write them, for `test_other_tools.py`.

    python -m venv build/other_tools
    build/other_tools/bin/pip install backports.zstd chdb datafusion datasets deltalake duckdb \\
        fastavro fastparquet pandas polars pyspark webdataset
    build/other_tools/bin/python tests/transforms/sources/write_other_tools.py

Spark needs a Java runtime. The tests need none of it: they read the files in the zip. What those
hold is `rows.json`, and what each is read with `forms.json`, both in the zip too.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import chdb
import datafusion
import datasets
import deltalake
import duckdb
import fastavro
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import webdataset
from pyspark.sql import SparkSession

TEXTS = [
    "One sentence. Another one!", "two\nlines", "Straße, naïve façade; e\u0301 ﬁn ½", None, "",
    "日本語の文。もう一つ。", "שלום مرحبا नमस्ते", "🙂 👩‍👩‍👧 “quoted”",
    'a "quote", a comma', "it's;\ta",
    "ends with a blank ", "x" * 300, "the same", "the same", "the same\n\nand more", '"', "a\\b",
    "one\r\ntwo",
]  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {
        "id": i, "text": text, "lang": ("de", "en", "ja")[i % 3], "score": i / 4 if i % 5 else None,
        "meta": {"text": text and f"in {text}", "n": i}, "tags": ["a", "b"][: i % 3],
    }
    for i, text in enumerate(TEXTS)
]  # fmt: skip
FLAT = [{name: row[name] for name in ("id", "text", "lang", "score")} for row in ROWS]
TABLE, FLAT_TABLE = pa.Table.from_pylist(ROWS), pa.Table.from_pylist(FLAT)
IDS = {"keep_fields": "id:int,lang"}
PARTITIONED = {"keep_fields": "id:int"}  # the other column is in the names of folders
OF_META = {"keep_fields": "id:int", "text_field": "meta.text"}

forms: list[dict[str, Any]] = []
root = Path(tempfile.mkdtemp())


def form(
    tool: str, name: str, write: Callable[[Path], Any], pattern: str = "", *,
    nulls: str = "field_not_text", **options: Any,
) -> None:  # fmt: skip
    """Has a tool write its file, or a folder of which the files that match are read.

    Args:
      tool: its distribution.
      name: of what it writes.
      write: does so.
      pattern: below it; "" for the file itself.
      nulls: the reason for which they are rejected; "empty" where they cannot be told from empty
        texts, or "left out" with empty texts.
      options: of `ReadDocuments`.
    """
    path = root / tool / name
    path.parent.mkdir(exist_ok=True)
    write(path)
    forms.append({
        "tool": f"{tool} {version(tool)}", "input": f"{tool}/{name}" + (pattern and f"/{pattern}"),
        "nulls": nulls, "options": options or IDS,
    })  # fmt: skip


def by_polars() -> None:
    frame, flat = pl.DataFrame(ROWS), pl.DataFrame(FLAT)
    for codec in ("snappy", "zstd", "gzip", "brotli", "lz4", "uncompressed"):
        form("polars", f"{codec}.parquet", lambda p, c=codec: frame.write_parquet(p, compression=c))
    form("polars", "small.parquet",
         lambda p: frame.write_parquet(p, row_group_size=5, data_page_size=100))  # fmt: skip
    form("polars", "meta.parquet", frame.write_parquet, **OF_META)
    categories = flat.with_columns(pl.col("text").cast(pl.Categorical))
    form("polars", "categorical.parquet", categories.write_parquet)
    form("polars", "hive", lambda p: flat.write_parquet(p, partition_by="lang"), "**/*.parquet",
         **PARTITIONED)  # fmt: skip
    for level in ("oldest", "newest"):
        how = {"compat_level": getattr(pl.CompatLevel, level)()}
        form("polars", f"{level}.arrow", lambda p, how=how: frame.write_ipc(p, **how))
        form("polars", f"{level}.arrows", lambda p, how=how: frame.write_ipc_stream(p, **how))
    form("polars", "zstd.arrow", lambda p: frame.write_ipc(p, compression="zstd"))
    for codec in ("uncompressed", "snappy", "deflate"):
        form("polars", f"{codec}.avro", lambda p, c=codec: flat.write_avro(p, compression=c))
    form("polars", "usual.csv", flat.write_csv, nulls="empty")
    form("polars", "always.csv", nulls="empty", write=lambda p: flat.write_csv(
        p, quote_style="always", line_terminator="\r\n", include_bom=True))  # fmt: skip
    form("polars", "usual.jsonl", frame.write_ndjson)
    form("polars", "usual.json", frame.write_json)


def by_duckdb() -> None:
    connection = duckdb.connect()
    connection.register("nested", TABLE)
    connection.register("flat", FLAT_TABLE)

    def copy(table: str, how: str) -> Callable[[Path], Any]:
        return lambda path: connection.execute(f"COPY {table} TO '{path}' ({how})")

    for codec in ("snappy", "zstd", "gzip", "brotli", "lz4_raw", "uncompressed"):
        form("duckdb", f"{codec}.parquet", copy("nested", f"COMPRESSION {codec}"))
    form("duckdb", "v2.parquet", copy("nested", "PARQUET_VERSION V2"))
    form("duckdb", "deltas.parquet", copy("nested", "PARQUET_VERSION V2, DICTIONARY_SIZE_LIMIT 1"))
    form("duckdb", "meta.parquet", copy("nested", "PARQUET_VERSION V2"), **OF_META)
    form("duckdb", "hive", copy("flat", "FORMAT parquet, PARTITION_BY (lang), OVERWRITE_OR_IGNORE"),
         "**/*.parquet", **PARTITIONED)  # fmt: skip
    form("duckdb", "usual.csv", copy("flat", "HEADER"), nulls="empty")
    form("duckdb", "pipes.csv", copy("flat", "HEADER, DELIMITER '|', FORCE_QUOTE *"), nulls="empty",
         delimiter="|", **IDS)  # fmt: skip
    form("duckdb", "usual.tsv", copy("flat", "HEADER, DELIMITER '\t'"), nulls="empty")
    form("duckdb", "usual.jsonl", copy("nested", "FORMAT json"))
    form("duckdb", "array.json", copy("nested", "FORMAT json, ARRAY true"))


def by_arrow_rs() -> None:
    context = datafusion.SessionContext()
    context.from_arrow(FLAT_TABLE, name="flat")

    def copy(how: str) -> Callable[[Path], Any]:
        return lambda path: context.sql(f"COPY flat TO '{path}' STORED AS {how}").collect()

    form("datafusion", "usual.parquet", copy("PARQUET"))
    form("datafusion", "v2.parquet", copy("PARQUET OPTIONS ('format.writer_version' '2.0')"))
    for coding in ("delta_byte_array", "delta_length_byte_array", "plain"):
        how = f"'format.encoding::text' '{coding}', 'format.dictionary_enabled' 'false'"
        form("datafusion", f"{coding}.parquet",
             copy(f"PARQUET OPTIONS ({how}, 'format.compression' 'lz4_raw')"))  # fmt: skip
    form("datafusion", "usual.arrow", copy("ARROW"))
    form("datafusion", "usual.csv", copy("CSV OPTIONS ('format.has_header' 'true')"),
         nulls="empty")  # fmt: skip
    form("deltalake", "table", pattern="**/*.parquet", **PARTITIONED,
         write=lambda p: deltalake.write_deltalake(p, FLAT_TABLE, partition_by=["lang"]),
    )  # fmt: skip


def by_clickhouse() -> None:
    source = root / "source.parquet"
    pq.write_table(FLAT_TABLE, source)

    def write(kind: str, *settings: str) -> Callable[[Path], Any]:
        how = f" SETTINGS {', '.join(settings)}" if settings else ""
        return lambda path: chdb.query(
            f"INSERT INTO FUNCTION file('{path}', '{kind}') SELECT * FROM file('{source}'){how}"
        )

    form("chdb", "usual.parquet", write("Parquet"))
    for codec in ("snappy", "lz4", "zstd", "brotli", "gzip"):
        form("chdb", f"{codec}.parquet",
             write("Parquet", f"output_format_parquet_compression_method='{codec}'",
                   "output_format_parquet_row_group_size=5"))  # fmt: skip
    form("chdb", "usual.arrow", write("Arrow"))
    form("chdb", "usual.arrows", write("ArrowStream"))
    for codec in ("null", "deflate", "snappy", "zstd"):
        form("chdb", f"{codec}.avro", write(
            "Avro", f"output_format_avro_codec='{codec}'",
            "output_format_avro_string_column_pattern='.*'"))  # fmt: skip
    form("chdb", "bytes.avro", write("Avro"))
    form("chdb", "usual.jsonl", write("JSONEachRow"))
    source.unlink()


def by_fastparquet() -> None:
    frame = pd.DataFrame(FLAT).astype({"text": object, "lang": object})
    for codec in ("SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI"):
        form("fastparquet", f"{codec.lower()}.parquet",
             lambda p, c=codec: fastparquet.write(str(p), frame, compression=c,
                                                  row_group_offsets=7))  # fmt: skip
    form("fastparquet", "hive", pattern="**/*.parquet", **PARTITIONED,
         write=lambda p: fastparquet.write(str(p), frame, file_scheme="hive",
                                           partition_on=["lang"]))  # fmt: skip


def by_hugging_face() -> None:
    datasets.disable_progress_bars()
    data = datasets.Dataset.from_list(FLAT)
    form("datasets", "usual.parquet", lambda p: data.to_parquet(str(p), batch_size=5))
    form("datasets", "usual.jsonl", lambda p: data.to_json(str(p)))
    form("datasets", "usual.csv", lambda p: data.to_csv(str(p)), nulls="empty")
    form("datasets", "saved", lambda p: data.save_to_disk(str(p), num_shards=3))
    large = data.cast_column("text", datasets.Value("large_string"))
    form("datasets", "large", lambda p: large.save_to_disk(str(p)))
    form("datasets", "cache.arrow", lambda p: data.map(
        lambda row: row, cache_file_name=str(p), load_from_cache_file=False))  # fmt: skip


def by_webdataset() -> None:
    def write(folder: Path, *, compress: str = "", **how: Any) -> None:
        folder.mkdir()
        name = str(folder / f"%02d.tar{compress and '.' + compress}")
        with webdataset.ShardWriter(name, maxcount=7, verbose=0, compress=compress or None) as out:
            for row in filter(lambda row: row["text"], ROWS):
                out.write({"__key__": f"{row['id']:05d}", **how["sample"](row)})

    def as_text(row: dict[str, Any]) -> dict[str, Any]:
        return {"txt": row["text"], "json": {"id": row["id"], "lang": row["lang"]}}

    form("webdataset", "json", lambda p: write(p, sample=lambda row: {"json": row}), "*.tar",
         nulls="left out")  # fmt: skip
    form("webdataset", "txt", lambda p: write(p, sample=as_text), "*.tar", nulls="left out")
    form("webdataset", "gz", lambda p: write(p, compress="gz", sample=as_text), "*.tar.gz",
         nulls="left out")  # fmt: skip


def by_pandas() -> None:
    frame, flat = pd.DataFrame(ROWS), pd.DataFrame(FLAT)
    form("pandas", "index.parquet", flat.set_index("lang").to_parquet)
    form("pandas", "category.parquet", flat.astype({"text": "category"}).to_parquet)
    for codec in ("lz4", "zstd"):
        form("pandas", f"{codec}.feather", lambda p, c=codec: frame.to_feather(p, compression=c))
    form("pandas", "usual.csv", flat.to_csv, nulls="empty")
    form("pandas", "semicolons.csv", lambda p: flat.to_csv(p, sep=";", quoting=1, decimal=","),
         nulls="empty", delimiter=";", **IDS)  # fmt: skip
    form("pandas", "usual.jsonl", lambda p: frame.to_json(p, orient="records", lines=True))
    for codec in ("gz", "bz2", "xz", "zst"):
        form("pandas", f"usual.csv.{codec}", flat.to_csv, nulls="empty")


def by_fastavro() -> None:
    fields = [{"name": "text", "type": ["null", "string"]}, {"name": "n", "type": "long"}]
    kinds = {"id": "int", "text": ["string", "null"], "score": ["null", "double"],
             "lang": {"type": "enum", "name": "Lang", "symbols": ["de", "en", "ja"]},
             "day": {"type": "int", "logicalType": "date"},
             "digest": {"type": "fixed", "name": "Digest", "size": 4},
             "attributes": {"type": "map", "values": ["null", "string"]},
             "tags": {"type": "array", "items": "string"},
             "meta": ["null", {"type": "record", "name": "Meta", "fields": fields}]}  # fmt: skip
    schema = fastavro.parse_schema({
        "type": "record", "name": "Doc", "namespace": "org.example",
        "fields": [{"name": name, "type": kind} for name, kind in kinds.items()],
    })  # fmt: skip
    rows = [row | {"day": 9, "digest": b"1234", "attributes": {"k": None}} for row in ROWS]

    def write(path: Path, codec: str) -> None:
        with path.open("wb") as out:
            fastavro.writer(out, schema, rows, codec=codec, sync_interval=200)

    for codec in ("null", "deflate", "snappy", "zstandard", "bzip2", "xz"):
        form("fastavro", f"{codec}.avro", lambda p, c=codec: write(p, c))
    form("fastavro", "meta.avro", lambda p: write(p, "deflate"), **OF_META)


def by_spark() -> None:
    source = root / "source.parquet"
    pq.write_table(TABLE, source)
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = session.getOrCreate()
    frame = spark.read.parquet(str(source)).repartition(2, "id")
    for codec in ("snappy", "gzip", "zstd", "lz4", "lz4_raw"):
        form("pyspark", codec, pattern="*.parquet",
             write=lambda p, c=codec: frame.write.parquet(str(p), compression=c))  # fmt: skip
    form("pyspark", "folder", lambda p: frame.write.parquet(str(p)))
    form("pyspark", "hive", pattern="**/*.parquet", **PARTITIONED,
         write=lambda p: frame.write.partitionBy("lang").parquet(str(p)))  # fmt: skip
    second = frame.write.option("parquet.writer.version", "v2")
    form("pyspark", "v2", lambda p: second.parquet(str(p)), "*.parquet")
    form("pyspark", "meta", lambda p: second.parquet(str(p)), "*.parquet", **OF_META)
    deltas = second.option("parquet.enable.dictionary", "false").option("parquet.page.size", "99")
    form("pyspark", "deltas", lambda p: deltas.parquet(str(p)), "*.parquet")
    form("pyspark", "json", lambda p: frame.write.json(str(p)), "*.json",
         nulls="field_missing")  # fmt: skip
    table = frame.select("id", "text", "lang").write.option("header", "true")
    for name in ("escape", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"):
        table = table.option(name, '"' if name == "escape" else "false")
    form("pyspark", "csv", lambda p: table.csv(str(p)), "*.csv", nulls="empty")
    spark.stop()
    source.unlink()


def main() -> None:
    for write in (by_polars, by_duckdb, by_arrow_rs, by_clickhouse, by_fastparquet,
                  by_hugging_face, by_webdataset, by_pandas, by_fastavro, by_spark):  # fmt: skip
        write()
    (root / "rows.json").write_text(json.dumps(ROWS))
    (root / "forms.json").write_text(json.dumps(forms, indent=1))
    target = Path(__file__).with_name("other_tools.zip")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for path in sorted(root.rglob("*")):
            if path.is_file():
                out.write(path, path.relative_to(root))
    shutil.rmtree(root)
    print(f"{len(forms)} forms, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
