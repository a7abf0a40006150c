"""What an input may name: files below its own roots, or below folders that a flag allows.

A corpus may come from a stranger, and its links and annotations can name any file of the machine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from recordmill.records.errors import UsageError
from recordmill.transforms.storage import files

_KEPT_FOLDERS = 4096


class Boundary:
    """Tells whether paths lie inside, links resolved.

    Cost: local folders are resolved once, and of a file in a known folder only whether it is a
    link is asked. Remote paths are compared as text: object stores have neither links nor "..".

    Args:
      roots: the folders of the input, local or remote, and files.
      allowed: folders or files beyond them.
      skipped: files, folders and globs that are left out.
    """

    def __init__(
        self, roots: Iterable[str], allowed: Iterable[str] = (), skipped: Iterable[str] = ()
    ) -> None:
        self._skipped = {pattern: _absolute(pattern.rstrip("/")) for pattern in skipped}
        self._found = Counter[str]()
        paths = dict.fromkeys([*roots, *allowed])
        self._inside = tuple(
            (os.path.realpath(path or "/") if files.is_local(path) else path).rstrip("/") + "/"
            for path in paths
        )
        self._holds_folder = lru_cache(_KEPT_FOLDERS)(self._resolves_inside)

    def holds(self, path: str, *, is_link: bool | None = None) -> bool:
        """Tells whether a file lies inside, wherever its name leads.

        Args:
          path: of the file.
          is_link: whether it is a link itself, where that is known.
        """
        if not files.is_local(path):
            return self._has(path)
        folder, _, name = path.rpartition("/")
        try:
            if is_link is None:
                is_link = os.path.islink(path)
            is_plain = not is_link and name not in ("", ".", "..")
            if is_plain and self._holds_folder(folder or ("/" if path[:1] == "/" else ".")):
                return True
            return self._resolves_inside(path)
        except ValueError:
            return True  # with a NUL byte it is no path: whoever opens it says so

    def skips(self, path: str) -> bool:
        """Tells whether a file is left out by its name, and counts it."""
        if not self._skipped:
            return False
        whole = _absolute(path)
        for pattern, skipped in self._skipped.items():
            if whole == skipped or whole.startswith(f"{skipped}/") or fnmatchcase(whole, skipped):
                self._found[pattern] += 1
                return True
        return False

    def check_skipped(self) -> None:
        """Checks that each pattern of files to be left out was that of some, at the end of a list.

        Raises:
          UsageError: which one was not.
        """
        for pattern in self._skipped:
            if not self._found[pattern]:
                raise UsageError(
                    f"--skip_files must match files of --input, and {pattern} matches none; leave "
                    "it out, or correct it"
                )

    def _resolves_inside(self, path: str) -> bool:
        return self._has(os.path.realpath(path))

    def _has(self, path: str) -> bool:
        if "/../" in f"{path}/":  # of a remote path, which some storage may resolve
            return False
        return f"{path.rstrip('/')}/".startswith(self._inside)


def _absolute(path: str) -> str:
    return os.path.abspath(path) if files.is_local(path) else path


def leaves(path: str) -> str:
    """Returns the rest of a message about a path that leads outside: where to, and what to do."""
    target = os.path.realpath(path) if files.is_local(path) else path
    return (
        f"{target} is outside of the input; --allow_outside={target.rpartition('/')[0] or '/'} "
        "lets it be read"
    )
