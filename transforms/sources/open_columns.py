"""Open a file of columns by its format."""

from __future__ import annotations

from contextlib import AbstractContextManager

from recordmill.transforms.sources.column_format import ColumnFormat
from recordmill.transforms.sources.formats import FORMATS, load
from recordmill.transforms.sources.input_spec import USUAL_COMPRESSION_RATIO
from recordmill.transforms.sources.work_items import SourceRange


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
    opened: AbstractContextManager[ColumnFormat] = load(FORMATS[source.format].opened)(
        source, ratio, lists=lists
    )
    return opened
