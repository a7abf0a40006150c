"""What an input may name: files below its own roots, or below folders that a flag allows.

A corpus may come from a stranger, and its links and annotations can name any file of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache

from recordmill.transforms.storage import files

_KEPT_FOLDERS = 4096


class Boundary:
    """Tells whether paths lie inside, links resolved.

    Cost: local folders are resolved once, and of a file in a known folder only whether it is a
    link is asked. Remote paths are compared as text: object stores have neither links nor "..".

    Args:
      roots: the folders of the input, local or remote, and files.
      allowed: folders or files beyond them.
    """

    def __init__(self, roots: Iterable[str], allowed: Iterable[str] = ()) -> None:
        paths = dict.fromkeys([*roots, *allowed])
        self._inside = tuple(
            (os.path.realpath(path or "/") if files.is_local(path) else path).rstrip("/") + "/"
            for path in paths
        )
        self._folder = lru_cache(_KEPT_FOLDERS)(os.path.realpath)

    def holds(self, path: str) -> bool:
        """Tells whether a file lies inside, wherever its name leads."""
        if not files.is_local(path):
            return self._has(path)
        folder, _, name = path.rpartition("/")
        try:
            if name in ("", ".", "..") or os.path.islink(path):
                return self._has(os.path.realpath(path))
            above = self._folder(folder or ("/" if path.startswith("/") else "."))
        except ValueError:
            return True  # with a NUL byte it is no path: whoever opens it says so
        return self._has(f"{above.rstrip('/')}/{name}")

    def _has(self, path: str) -> bool:
        if "/../" in f"{path}/":  # of a remote path, which some storage may resolve
            return False
        return f"{path.rstrip('/')}/".startswith(self._inside)


def leaves(path: str) -> str:
    """Returns the rest of a message about a path that leads outside: where to, and what to do."""
    target = os.path.realpath(path) if files.is_local(path) else path
    return (
        f"{target} is outside of the input; --allow_outside={target.rpartition('/')[0] or '/'} "
        "lets it be read"
    )
