"""The texts of rows to sentences or lines, or whole, as a job asks for them."""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.sentences import split_sentences
from recordmill.transforms.sources.text_arrays import cut_lines


def cut_rows(rows: Lines, texts: int, spec: DocumentSpec) -> tuple[Lines, Int64s]:
    """Cuts texts into sentences or lines, or leaves them whole, as `spec` says.

    Args:
      rows: the texts of rows, row by row, valid UTF-8.
      texts: of each row.
      spec: of the documents.

    Returns:
      The lines, and `[num_lines] int64`: of which row each is.
    """
    if spec.row.is_example or spec.keeps_text:
        return rows, np.repeat(np.arange(len(rows) // texts), texts)
    return split_sentences(rows) if spec.by_punctuation("parquet") else cut_lines(rows)
