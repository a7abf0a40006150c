"""The globs of `--input`, as people write them: comma lists, and splits before an `=`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import chain

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.bigquery_service import is_bigquery
from recordmill.transforms.sources.databases import is_database, take_password
from recordmill.transforms.sources.dataset_folders import expand_folder
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import glob_root

_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9_]*)=(.+)", re.DOTALL)


def text_patterns(patterns: Sequence[str]) -> list[str]:
    """Returns the globs of --input, each of which may be a comma list."""
    parts = [part for pattern in patterns for part in _parts(pattern)]
    return [path for part in parts for _, path in expand_folder(part)]


def split_patterns(given_patterns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the globs of --input, and for each its split, "" for none.

    The split stands before its `=`, or a folder of Hugging Face's datasets has it.

    Raises:
      UsageError: some globs have a split and others have not.
    """
    patterns: list[str] = []
    splits: list[str] = []
    for given in given_patterns:
        named = _NAMED.fullmatch(given)
        if named and files.is_local(given) and os.path.exists(glob_root(given) or given):
            named = None  # a folder such as year=2024
        split, pattern = (named[1], named[2]) if named else ("", given)
        for own_split, path in chain.from_iterable(map(expand_folder, _parts(pattern))):
            patterns.append(path)
            splits.append(split or own_split)
    if len(set(splits)) > 1 and "" in splits:
        other = patterns[splits.index("")]
        raise UsageError(
            f"--input must name a split for every glob or for none, and {other} has none; write "
            f"--input=NAME={other}"
        )
    return patterns, splits


def _parts(pattern: str) -> list[str]:
    """Splits a comma list, but no name of a file or folder that has a comma."""
    if is_bigquery(pattern):
        return [pattern]
    if is_database(pattern):
        return [take_password(pattern)]
    if files.is_local(pattern) and (os.path.exists(pattern) or _is_below_comma(pattern)):
        return [pattern]
    return [part for part in (part.strip() for part in pattern.split(",")) if part]


def _is_below_comma(pattern: str) -> bool:
    root = glob_root(pattern)
    return "," in root and os.path.isdir(root)
