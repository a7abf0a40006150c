"""The formats of text: an entry each says how a file is recognized, cut and read.

A format is a module with functions that an entry names, and this entry. Nothing else asks for a
format by its name, but for what only one of them has. The table loads no module before it is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

_SOURCES = "recordmill.transforms.sources"
_ROWS = f"{_SOURCES}.row_documents:read_rows"


class CutOptions(NamedTuple):
    """What decides where a file can be cut.

    Attributes:
      splittable: a range can be read without what comes before it.
      delimiter: between the fields of CSV and TSV, "" for the usual one.
      quotes: have a meaning in these.
    """

    splittable: bool = True
    delimiter: str = ""
    quotes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFormat:
    """A format of text.

    Attributes:
      title: its name for people.
      read: MODULE:FUNCTION, (range, `DocumentSpec`, limits, `BatchMaker`) -> batches of documents;
        by default of its rows.
      cut: MODULE:FUNCTION, (file, bytes of a range, `CutOptions`) -> ranges; "" where it is read
        as a whole.
      opened: MODULE:FUNCTION: (range, `RowOptions`) -> a `rows.RowSource`; "" where it has none.
      has_columns: it holds columns of types, of which those that flags name are read.
      extensions: of names of files.
      forms: what `content.binary_format` says of files of it.
      ratio: about how many bytes of text a stored byte has: columns are compressed.
      is_limited: parts of a file may be compressed, and unpack to too much.
      is_choice: of people; others follow from the input.
      cuts_all: also small files are cut.
      cuts_packed: also compressed files are cut.
      end: bytes behind which a file can be ended; b"" where that is not known.
      pattern: of the ends of names that say no less than an extension.
      mark: what the beginning of a file has; b"" where nothing is asked for.
      options: that have an effect on no other format.
      versions: MODULE:FUNCTION, (`DocumentSpec`) -> name -> version of what decides the text.
    """

    title: str
    read: str = _ROWS
    cut: str = ""
    opened: str = ""
    has_columns: bool = False
    extensions: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    ratio: int = 1
    is_limited: bool = False
    is_choice: bool = True
    cuts_all: bool = False
    cuts_packed: bool = False
    end: bytes = b""
    pattern: str = ""
    mark: bytes = b""
    options: tuple[str, ...] = ()
    versions: str = ""


_OF_TABLES = ("header", "delimiter", "quoting")
_TABLE = f"{_SOURCES}.delimited_rows:open_table"
ELEMENTS = "elements"  # of a PCollection, in files of a run
FORMATS = {
    "text": SourceFormat(
        title="plain text",
        read=f"{_SOURCES}.plain_text:read_text",
        cut=f"{_SOURCES}.item_cutting:cut_by_bytes",
        end=b"\n",
    ),
    "jsonl": SourceFormat(
        title="JSONL",
        opened=f"{_SOURCES}.json_rows:open_json_lines",
        cut=f"{_SOURCES}.item_cutting:cut_by_bytes",
        extensions=(".jsonl", ".ndjson"),
        end=b"\n",
    ),
    "json": SourceFormat(
        title="JSON",
        opened=f"{_SOURCES}.json_rows:open_json",
        cut=f"{_SOURCES}.json_rows:cut_json",
        extensions=(".json",),
    ),
    "csv": SourceFormat(
        title="CSV",
        opened=_TABLE,
        cut=f"{_SOURCES}.delimited_rows:cut_table_rows",
        extensions=(".csv",),
        options=_OF_TABLES,
    ),
    "tsv": SourceFormat(
        title="TSV",
        opened=_TABLE,
        cut=f"{_SOURCES}.delimited_rows:cut_table_rows",
        extensions=(".tsv",),
        options=_OF_TABLES,
    ),
    "arrow": SourceFormat(
        title="Arrow",
        has_columns=True,
        cut=f"{_SOURCES}.arrow_rows:cut_arrow",
        opened=f"{_SOURCES}.arrow_rows:open_arrow",
        extensions=(".arrow", ".arrows", ".feather", ".ipc"),
        forms=("an Arrow file", "an Arrow stream"),
        is_limited=True,
    ),
    "avro": SourceFormat(
        title="Avro",
        has_columns=True,
        cut=f"{_SOURCES}.avro_rows:cut_avro",
        opened=f"{_SOURCES}.avro_rows:open_avro",
        extensions=(".avro",),
        forms=("an Avro file",),
        ratio=2,
    ),
    "parquet": SourceFormat(
        title="Parquet",
        has_columns=True,
        cut=f"{_SOURCES}.parquet_rows:cut_parquet",
        opened=f"{_SOURCES}.parquet_rows:open_parquet",
        extensions=(".parquet", ".pq"),
        forms=("a Parquet file",),
        ratio=2,
        is_limited=True,
    ),
    "webdataset": SourceFormat(
        title="WebDataset",
        opened=f"{_SOURCES}.tar_samples:open_samples",
        extensions=(".tar",),
        forms=("a tar archive",),
    ),
    "mediawiki": SourceFormat(
        title="a MediaWiki dump",
        opened=f"{_SOURCES}.mediawiki:open_pages",
        cut=f"{_SOURCES}.mediawiki:cut_pages",
        extensions=(".xml",),
        pattern=r"\.xml-p\d+p\d+$",
        mark=b"<mediawiki",
        options=("wiki_markup", "wiki_namespaces"),
        versions=f"{_SOURCES}.mediawiki:parser_versions",
        cuts_packed=True,
        end=b"</page>",
    ),
    "sql": SourceFormat(
        title="a database",
        has_columns=True,
        cut=f"{_SOURCES}.query_rows:cut_query",
        opened=f"{_SOURCES}.query_rows:open_query",
        is_choice=False,
    ),
    "bigquery": SourceFormat(
        title="BigQuery",
        has_columns=True,
        cut=f"{_SOURCES}.bigquery_tables:cut_table",
        opened=f"{_SOURCES}.bigquery_rows:open_table",
        is_choice=False,
        cuts_all=True,  # which takes the same time for a small one
    ),
    ELEMENTS: SourceFormat(
        title="elements", read=f"{_SOURCES}.element_rows:read_elements", is_choice=False
    ),
}
CHOICES = ("auto", *(name for name, each in FORMATS.items() if each.is_choice))
COLUMN_FORMATS = tuple(name for name, each in FORMATS.items() if each.has_columns)
DELIMITED = ("csv", "tsv")
# Those of which each row is a record of columns that have names, without objects in them.
ROW_FORMATS = ("arrow", "avro", "parquet", *DELIMITED)


def format_of_name(path: str, extension: str) -> str:
    """Returns the format that the name of a file says, "" where it says none.

    Args:
      path: without the extension of its compression.
      extension: of it.
    """
    for name, each in FORMATS.items():
        if extension.lower() in each.extensions or (each.pattern and re.search(each.pattern, path)):
            return name
    return ""


@cache
def load(name: str) -> Any:
    """Returns the function that MODULE:FUNCTION names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
