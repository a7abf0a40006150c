"""Open a file of columns by its format."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from recordmill.transforms.sources.arrow_rows import open_arrow
from recordmill.transforms.sources.avro_rows import open_avro
from recordmill.transforms.sources.bigquery_rows import open_table
from recordmill.transforms.sources.column_format import ColumnFormat
from recordmill.transforms.sources.input_spec import USUAL_COMPRESSION_RATIO
from recordmill.transforms.sources.parquet_rows import open_parquet
from recordmill.transforms.sources.query_rows import open_query
from recordmill.transforms.sources.work_items import SourceRange

_LIMITED: dict[str, Callable[[SourceRange, int], AbstractContextManager[ColumnFormat]]] = {
    "arrow": open_arrow,
    "avro": open_avro,
    "parquet": open_parquet,
}
_OPEN: dict[str, Callable[[SourceRange], AbstractContextManager[ColumnFormat]]] = {
    "bigquery": open_table,
    "sql": open_query,
}


def open_columns(
    source: SourceRange, *, lists: bool = False, ratio: int = USUAL_COMPRESSION_RATIO
) -> AbstractContextManager[ColumnFormat]:
    """Opens a range of a file of one of `COLUMN_FORMATS`.

    Args:
      source: the range.
      lists: of Avro too, arrays have types of Arrow.
      ratio: to how many times its bytes a row group of Parquet, a batch of Arrow or a block of
        Avro may unpack, beyond 64 MiB.

    Raises:
      BrokenFileError: it is none of its format, or damaged or encrypted; see its `reason`.
      InputChangedError: it is another file than was planned.
      RunError: a database, or BigQuery, does not answer.
    """
    if lists and source.format == "avro":
        return open_avro(source, ratio, lists=True)
    if source.format in _LIMITED:
        return _LIMITED[source.format](source, ratio)
    return _OPEN[source.format](source)
