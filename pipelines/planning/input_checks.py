"""Check the input of a job against its output, and the splits that it names against --limit."""

from __future__ import annotations

import os
from collections.abc import Iterable

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.bigquery_service import is_bigquery
from recordmill.transforms.sources.databases import is_database
from recordmill.transforms.storage.globs import WRITTEN, matches_output


def check_outside(patterns: Iterable[str], output: str, *, is_file: bool = False) -> None:
    """Checks that the next run would not read what this one writes.

    Args:
      patterns: globs and folders, or the URL of a database.
      output: the folder of a dataset, or a file.
      is_file: which of both.

    Raises:
      UsageError: a pattern matches what is written.
    """
    folder, name = os.path.split(output) if is_file else (output, "")
    for pattern in patterns:
        if is_database(pattern) or is_bigquery(pattern):
            continue
        if matches_output(pattern, folder, [name] if is_file else WRITTEN):
            raise UsageError(
                f"--input {pattern} also matches what is written to --output {output}; "
                "choose an output outside of the input"
            )


def without_input(split: str, limit: int | None, *, reached: bool) -> UsageError:
    """Returns the error that a split which --input names has no input.

    Args:
      split: its name.
      limit: how many inputs are read; None: all.
      reached: whether a file of the split is among them.
    """
    if limit is None:
        return UsageError(f"--input {split}=… matches only empty files")
    if reached:
        return UsageError(
            f"--input {split}=… has nothing but empty files and documents up to --limit={limit}; "
            f"give a larger one, or leave out --input={split}=…"
        )
    return UsageError(
        f"--limit={limit} ends before the first file of {split}, in order of name; give a larger "
        f"one, or leave out --input={split}=…"
    )
