"""Paths that a file names, such as a manifest's: they must stay inside of the dataset.

A dataset may come from somebody else. This looks at the text of a path alone; who deletes or
overwrites files also has to resolve links.
"""

from __future__ import annotations


def is_inside(path: str) -> bool:
    """Tells whether a relative path leads to a file below the folder that it is relative to.

    >>> [is_inside(path) for path in ("train/a", "../a", "/a", "gs://b/a", "a/", "", "a//b")]
    [True, False, False, False, False, False, False]
    """
    parts = path.split("/")
    return "\0" not in path and "://" not in path and not any(p in ("", ".", "..") for p in parts)
