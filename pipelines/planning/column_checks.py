"""Checks of the columns that flags name, in files that hold columns, such as Parquet."""

from __future__ import annotations

from collections.abc import Iterable

from recordmill.records.errors import UsageError, listed
from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.formats import COLUMN_FORMATS
from recordmill.transforms.sources.open_rows import open_rows
from recordmill.transforms.sources.rows import column_type
from recordmill.transforms.sources.source_list import SourceList
from recordmill.transforms.sources.text_arrays import is_text

_TEXTS = ("--text_field", "--text_pair_field", "--prompt_field")


def check_column_types(sources: SourceList, flags: Iterable[tuple[str, str]]) -> None:
    """Checks that the first file of each format of columns has those that flags name.

    Args:
      sources: the input.
      flags: flag -> column, "" where none is asked for.

    Raises:
      UsageError: names the columns that there are, or the type of one that is no text; or the file
        is encrypted.
    """
    flags = list(flags)
    for first in (sources.first[kind] for kind in COLUMN_FORMATS if kind in sources.first):
        try:
            with open_rows(first) as opened:
                schema = opened.schema
        except BrokenFileError as error:
            if error.reason == "unreadable_file":
                raise UsageError(f"--input {first.path}: {error}") from error
            continue  # a reject of the job
        for flag, name in flags:
            if not name:
                continue
            kind = column_type(schema, name)
            if kind is None:
                raise UsageError(
                    f"{flag} must be a column of {first.path}: {listed(schema.names)}; got {name!r}"
                )
            if flag in _TEXTS and not is_text(kind):
                raise UsageError(
                    f"{flag} must be a column of strings, and {name!r} of {first.path} is {kind}"
                )
