"""A sample of the rows of a file of columns, for the estimate of `recordmill plan`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.column_format import Rows, column_type
from recordmill.transforms.sources.column_reader import column_names
from recordmill.transforms.sources.document_spec import READ_LIMITS, DocumentSpec
from recordmill.transforms.sources.open_columns import open_columns
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files


def sample_columns(
    source: SourceRange, spec: DocumentSpec, folder: str, number: int, wanted: int
) -> list[SourceRange]:
    """Copies the first rows of a file, as Parquet, with the columns that the job reads.

    Args:
      source: the file.
      spec: names the columns.
      folder: the copy is written to.
      number: of the copy; what it is named after.
      wanted: about how many bytes the columns should have.

    Returns:
      The copy, whose size is the share of the source's text bytes that its rows are; none where
      the file has no rows that can be read.
    """
    parts: list[pa.Table] = []
    rows = size = 0
    try:
        with open_columns(source) as opened:
            total = opened.num_rows
            names = [n for n in column_names(spec) if column_type(opened.schema, n) is not None]
            for batch in opened.rows(names, READ_LIMITS.block_bytes):
                if not isinstance(batch, Rows) or size >= wanted:
                    break
                part = pa.table(batch.columns) if names else pa.table({"rows": range(batch.count)})
                parts.append(part)
                rows += batch.count
                size += part.nbytes
    except (BrokenFileError, OSError):
        return []
    if not rows:
        return []
    path = files.join(folder, f"part-{number:03d}")
    pq.write_table(pa.concat_tables(parts), path)
    share = max(1, int(source.text_bytes * rows / total))
    return [SourceRange(path, f"{number:03d}", "parquet", "", share)]
