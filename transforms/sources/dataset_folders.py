"""Folders that `save_to_disk` of Hugging Face's datasets writes, as the files and splits in them.

The folder of a dataset has `state.json`, which names its Arrow files; that of several splits has
`dataset_dict.json`, which names their folders.
"""

from __future__ import annotations

import msgspec

from recordmill.records.errors import UsageError
from recordmill.records.inside import is_inside
from recordmill.records.state import FormatError, T, decode
from recordmill.transforms.sources.bigquery_service import is_bigquery
from recordmill.transforms.sources.databases import is_database
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import has_wildcard

_MOST_BYTES = 1 << 26


class _DataFile(msgspec.Struct):
    filename: str


class _SavedState(msgspec.Struct):
    data_files: list[_DataFile] = msgspec.field(name="_data_files")


class _SavedSplits(msgspec.Struct):
    splits: list[str]


def expand_folder(pattern: str) -> list[tuple[str, str]]:
    """Returns what a pattern of --input stands for.

    Returns:
      `(split, path)` of each file of the dataset in a folder, in order, with the split "" where the
      folder has none; for any other pattern it and the split "".

    Raises:
      UsageError: the folder says what it has, and has it not.
    """
    folder = pattern.rstrip("/")
    name = folder.rpartition("/")[2]
    if (
        is_bigquery(pattern)
        or is_database(pattern)
        or has_wildcard(pattern)
        or (not files.is_local(pattern) and "." in name)
    ):
        return [("", pattern)]
    splits = _read(files.join(folder, "dataset_dict.json"), _SavedSplits)
    if splits is None:
        found = _data_files(folder)
        return [("", path) for path in found] if found else [("", pattern)]
    expanded = []
    for split in splits.splits:
        paths = _data_files(files.join(folder, split)) if is_inside(split) else []
        if not paths:
            raise UsageError(
                f"--input {pattern} has no dataset in its folder {split!r}, which its "
                "dataset_dict.json names; save it again, or give globs of its .arrow files"
            )
        expanded += [(split, path) for path in paths]
    return expanded


def _data_files(folder: str) -> list[str]:
    """Returns the paths of the files of a dataset; [] where the folder is none."""
    path = files.join(folder, "state.json")
    state = _read(path, _SavedState)
    if state is None:
        return []
    names = [each.filename for each in state.data_files]
    for name in names:
        if not is_inside(name) or not files.exists(files.join(folder, name)):
            raise UsageError(
                f"--input {folder} has no file {name!r}, which its state.json names; save the "
                "dataset again, or give globs of its .arrow files"
            )
    return [files.join(folder, name) for name in names]


def _read(path: str, kind: type[T]) -> T | None:
    """Returns a file of JSON; None where there is none of this kind: names do not decide."""
    try:
        return decode(files.read_limited(path, _MOST_BYTES), kind)
    except (OSError, FormatError):
        return None
