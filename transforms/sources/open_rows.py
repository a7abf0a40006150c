"""Open a source of rows by its format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import cast

from recordmill.transforms.dataset.worker_note import noted
from recordmill.transforms.sources.formats import FORMATS, load
from recordmill.transforms.sources.rows import RowOptions, RowSource
from recordmill.transforms.sources.work_items import SourceRange

_USUAL = RowOptions()


@contextmanager
def open_rows(source: SourceRange, options: RowOptions = _USUAL) -> Iterator[RowSource]:
    """Opens a range of a source of a format that has rows: all but plain text.

    Args:
      source: the range.
      options: how it is read.

    Raises:
      BrokenFileError: it is none of its format, or damaged or encrypted; see its `reason`.
      InputChangedError: it is another file than was planned.
      RunError: a database, or BigQuery, does not answer.
    """
    kind = FORMATS[source.format]
    # Only what reads columns is native code that a forged file can end.
    noting = noted(source.path) if kind.has_columns else nullcontext()
    with noting, load(kind.opened)(source, options) as opened:
        yield cast(RowSource, opened)
