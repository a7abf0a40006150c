"""Deleting what a dataset or a run wrote, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePath

from recordmill.records import manifest as m
from recordmill.records.errors import RunError
from recordmill.records.inside import check_inside
from recordmill.records.manifest import Manifest
from recordmill.records.seqio_metadata import COMPLETED_PATH
from recordmill.records.shards import DEFAULT_TEMPLATE, is_shard_path
from recordmill.transforms.storage import files


def remove_dataset(output: str, manifest: Manifest) -> None:
    """Deletes exactly what the manifest lists and we wrote, and what its run left; marks first.

    Raises:
      RunError: the manifest lists a path outside of the dataset, or a folder; nothing is deleted
        then.
    """
    check_inside(output, manifest.paths)
    check_removable(output, written_paths(manifest))
    delete_inside(output, [m.SUCCESS_PATH, *({COMPLETED_PATH} & manifest.files.keys())])
    delete_inside(output, [*manifest.own_paths, *m.RUN_PATHS])
    delete_inside(output, [m.MANIFEST_PATH])


def written_paths(manifest: Manifest) -> list[str]:
    """Returns all files of a dataset that we wrote, relative to it."""
    return [m.SUCCESS_PATH, *manifest.own_paths, *m.RUN_PATHS, m.MANIFEST_PATH]


def damaged_paths(
    output: str, names: Iterable[str], templates: Iterable[str], *, in_place: bool
) -> list[str]:
    """Returns what is of a dataset whose manifest cannot be read; marks first.

    That is what only a dataset of ours has. The paths are relative to it.

    Args:
      output: the dataset.
      names: of metadata, relative to it.
      templates: of the paths of shards, beside the usual one.
      in_place: the shards are not ours, and stay.
    """
    known = {m.SUCCESS_PATH, m.MANIFEST_PATH, *m.RUN_PATHS, *names}
    patterns = set() if in_place else {DEFAULT_TEMPLATE, *templates}
    paths = []
    for path in files.list_files(output):
        name = path[len(output) :].lstrip("/")
        folders = ("_meta/index/", f"{m.REJECTED_PATH}/", f"{m.DROPPED_PATH}/")
        ours = name in known or name.startswith(folders)
        if ours or any(is_shard_path(name, template) for template in patterns):
            paths.append(name)
    return sorted(paths, key=lambda n: n not in (m.SUCCESS_PATH, COMPLETED_PATH))


def delete_inside(output: str, paths: Iterable[str], *, named_by: str = "a manifest") -> None:
    """Deletes files of a dataset, and the folders that are empty then."""
    paths = list(paths)
    check_removable(output, paths, named_by=named_by)
    files.delete_quietly(files.join(output, path) for path in paths)
    if files.is_local(output):
        folders = {str(folder) for path in paths for folder in PurePath(path).parents}
        inner = sorted(folders - {"."}, reverse=True)
        remove_empty(files.join(output, folder) for folder in inner)


def check_removable(output: str, paths: Iterable[str], *, named_by: str = "a manifest") -> None:
    """Checks that files of a dataset lie in it, and that nobody put a folder in the place of one.

    Raises:
      RunError: names the first that is not so.
    """
    paths = list(paths)
    check_inside(output, paths, named_by=named_by)
    for path in (files.join(output, path) for path in paths):
        if files.is_local(path) and os.path.isdir(path) and not os.path.islink(path):
            raise RunError(
                f"{path} must be a file of the dataset, and is a folder; move it away, and run the "
                "same command again"
            )


def remove_empty(folders: Iterable[str]) -> None:
    """Deletes those of some folders that hold nothing."""
    for folder in dict.fromkeys(folders):
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)
