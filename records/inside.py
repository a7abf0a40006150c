"""Paths that a file names, such as a manifest: they must lie where the file belongs.

A dataset, its manifest and the state of a run may come from somebody else. What they name must
neither be deleted nor read where it lies outside of their folder, also not through a link.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from recordmill.records.errors import RunError


def is_inside(path: str) -> bool:
    """Tells by its text alone whether a relative path leads to a file below its folder.

    >>> is_inside("train/a")
    True
    >>> any(map(is_inside, ("../a", "/a", "gs://b/a", "a/", "", "a//b")))
    False
    """
    parts = path.split("/")
    return "\0" not in path and "://" not in path and not any(p in ("", ".", "..") for p in parts)


def check_inside(
    root: str, paths: Iterable[str], *, named_by: str = "a manifest", follow: bool = False
) -> None:
    """Checks that paths which a file names lie inside a folder, links resolved.

    Args:
      root: the folder, such as that of a dataset; local, or a URL, whose paths are checked by name.
      paths: relative to it.
      named_by: what names them, for the message.
      follow: the files themselves will be opened, so that they are resolved too; a file that is
        only deleted may be a link, which is what is deleted.

    Raises:
      RunError: names the first path that lies elsewhere.
    """
    local = "://" not in root
    real_root = os.path.realpath(root) if local else root
    folders: dict[str, bool] = {}
    for path in paths:
        inside = is_inside(path)
        if inside and local:
            folder = path.rpartition("/")[0]
            if folder not in folders:
                real = os.path.realpath(os.path.join(real_root, folder))
                folders[folder] = _is_below(real, real_root)
            inside = folders[folder]
        if inside and follow and local:
            whole = os.path.join(real_root, path)
            inside = not os.path.islink(whole) or _is_below(os.path.realpath(whole), real_root)
        if not inside:
            raise RunError(
                f"{root} has {named_by} that lists {path!r}, which is not inside of it; it is "
                "damaged or was tampered with: remove it by hand, or put copies of files in the "
                "place of links"
            )


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")
