"""Open a file of columns by its format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recordmill.transforms.dataset.worker_note import noted
from recordmill.transforms.sources.column_format import ColumnFormat
from recordmill.transforms.sources.formats import FORMATS, load
from recordmill.transforms.sources.input_spec import USUAL_COMPRESSION_RATIO
from recordmill.transforms.sources.work_items import SourceRange


@contextmanager
def open_columns(
    source: SourceRange, *, lists: bool = False, ratio: int = USUAL_COMPRESSION_RATIO
) -> Iterator[ColumnFormat]:
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
    open_range = load(FORMATS[source.format].opened)
    with noted(source.path), open_range(source, ratio, lists=lists) as opened:
        yield opened
