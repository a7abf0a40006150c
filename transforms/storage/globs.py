"""Finding files by globs: a stream in order of path, without a list of all of them.

A local tree is walked folder by folder, and a remote one as its service lists it; names beyond
memory are sorted through temporary files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from recordmill.records.errors import UsageError
from recordmill.records.manifest import (
    CONFIG_PATH,
    DROPPED_PATH,
    MANIFEST_PATH,
    REJECTED_PATH,
    REPORT_PATH,
    SUCCESS_PATH,
)
from recordmill.records.regular_files import not_regular, odd_kind
from recordmill.records.shards import ShardName
from recordmill.transforms.storage import beam_storage_internals as compat
from recordmill.transforms.storage import files
from recordmill.transforms.storage.boundary import Boundary
from recordmill.transforms.storage.external_sort import HELD_BYTES, Row, sort_rows

_WILDCARD = re.compile(r"[*?\[]")
_WILDCARDS = {"**": ".*", "*": r"[^/\\]*", "?": "."}
# A set ends at its first "]" that is not its first character; one that does not end is no set. What
# a look-ahead has found is not tried otherwise.
_PARTS = re.compile(r"\*\*|\[(?=(?P<set>!?\]?[^\]]*))(?P=set)\]|.", re.DOTALL)
_SPECIAL_IN_SET = re.compile(r"[\\\[&~|]")
# Sizes of what is found and cannot be read: a link to nothing, one that leaves the boundary (a
# folder's path ends in "/"), and what is no regular file.
BROKEN_LINK, OUTSIDE, NOT_REGULAR = -2, -3, -4
ALL_BELOW = "**"  # the pattern of all files below a folder
# Of the files of a dataset some of each kind.
WRITTEN = (
    SUCCESS_PATH, MANIFEST_PATH, CONFIG_PATH, REPORT_PATH, "_meta/vocab.txt",
    f"{REJECTED_PATH}/rejected-000000.jsonl", f"{DROPPED_PATH}/dropped-000000.jsonl.gz",
    "features.json",
    ShardName("train", 0, 1).path, "_tmp/plan.json",
)  # fmt: skip


def _translated(pattern: str) -> Callable[[str], Any]:
    """Returns the test of a glob, which means what Beam's file systems take it for.

    Raises:
      UsageError: it has a range of characters that ends before it begins.
    """
    expression = "".join(map(_expression, _PARTS.finditer(pattern)))
    try:
        return re.compile(expression, re.DOTALL).fullmatch
    except re.error as error:
        raise UsageError(
            f"a range of characters must end behind its beginning, as in [a-z]; {pattern} has a "
            f"{error.msg}"
        ) from error


def _expression(part: re.Match[str]) -> str:
    """Returns the regular expression of a wildcard, a set of characters, or a character."""
    text, inside = part.group(), part["set"]
    if inside:
        negation = "^" if inside[0] == "!" else ""
        inside = _SPECIAL_IN_SET.sub(r"\\\g<0>", inside.removeprefix("!"))
        return f"[{negation}{inside}]" if negation or inside[0] != "^" else f"[\\{inside}]"
    return _WILDCARDS.get(text) or re.escape(text)


class FoundFile(NamedTuple):
    """A file that a glob matches; `BROKEN_LINK`, `OUTSIDE` and `NOT_REGULAR` are sizes without a
    stamp.
    """

    path: str
    size: int
    modified_ns: int


class Glob(NamedTuple):
    """A pattern from the root on, so that a file has one path.

    Attributes:
      root: the folder before the first wildcard, as it is.
      rest: the pattern below it; a name as it is where `is_path`.
      is_path: it is the path of one file, whatever characters are in it.
    """

    root: str
    rest: str
    is_path: bool = False

    @property
    def pattern(self) -> str:
        """The whole pattern, or path."""
        return f"{self.root}/{self.rest}"

    def matches(self) -> Callable[[str], Any]:
        """Returns what tells of a path whether it matches."""
        if self.is_path:
            return lambda path: path == self.pattern
        if not files.is_local(self.pattern):
            return _translated(self.pattern)
        start, below = f"{self.root}/", _translated(self.rest)
        return lambda path: path.startswith(start) and below(path[len(start) :])


def parse_glob(pattern: str) -> Glob:
    """Reads a pattern. A local path that exists as it is written is that path, and no pattern.

    The same holds for its first folders, as in `set[12]/*.txt` where there is such a folder. A name
    with `*` remains a pattern, which matches the file of that very name too.
    """
    if not files.is_local(pattern):
        root = glob_root(pattern)
        return Glob(root, pattern[len(root) :].lstrip("/"), not has_wildcard(pattern))
    parts = [part for part in os.path.join(os.getcwd(), pattern).split("/") if part != "."]
    *folders, name = [part for part in parts[:-1] if part] + parts[-1:]
    below_here = 0 if pattern.startswith("/") else len(list(filter(None, os.getcwd().split("/"))))
    root = ""
    for number, part in enumerate(folders):
        inner = f"{root}/{part}"
        if (
            number >= below_here
            and has_wildcard(part)
            and ("*" in part or not os.path.isdir(inner))
        ):
            return Glob(root, "/".join([*folders[number:], name]))
        root = inner
    is_path = not has_wildcard(name) or ("*" not in name and os.path.lexists(f"{root}/{name}"))
    return Glob(root, name, is_path)


def whole_folders(patterns: Iterable[str]) -> list[Glob]:
    """Returns the globs; a folder becomes the glob of all files below it."""
    out = []
    for pattern in patterns:
        path = pattern.rstrip("/") or "/"
        if files.is_local(path) and os.path.isdir(path):
            parts = os.path.join(os.getcwd(), path).split("/")
            root = "/".join(["", *(part for part in parts if part not in ("", "."))]).rstrip("/")
            out.append(Glob(root, ALL_BELOW))
            continue
        is_folder = not (files.is_local(path) or has_wildcard(path) or files.exists(path))
        if is_folder or path != pattern:
            pattern = files.join(path, ALL_BELOW)
        out.append(parse_glob(pattern))
    return out


def is_hidden(name: str) -> bool:
    """Returns whether a file or folder is a system's, not the user's."""
    return name.startswith(".") or name in ("__MACOSX", "Thumbs.db", "desktop.ini")


def glob_root(pattern: str) -> str:
    """Returns the folder before the first wildcard."""
    return _WILDCARD.split(pattern, maxsplit=1)[0].rpartition("/")[0]


def common_root(roots: Iterable[str]) -> str:
    """Returns the longest folder above some folders, so that names relative to it are unique."""
    roots = list(roots)
    root = roots[0]
    while not all(f"{other}/".startswith(f"{root}/") for other in roots) and root:
        root = root.rpartition("/")[0]
    return root


def relative(path: str, root: str) -> str:
    """Returns a path's name below the input root."""
    return path[len(root) :].lstrip("/") if root else path


def matches_output(pattern: str, output: str, names: Sequence[str] = WRITTEN) -> bool:
    """Tells whether a glob matches files that a job writes to its output, also through links.

    Args:
      pattern: a glob, or a folder.
      output: a folder.
      names: of files below it.
    """
    (glob,) = whole_folders([pattern])
    if not files.is_local(pattern):
        matches = glob.matches()
        return any(matches(files.join(output, name)) for name in names)
    for resolved in (os.path.abspath, os.path.realpath):
        root = resolved(glob.root or "/").rstrip("/")
        matches, folder = glob._replace(root=root).matches(), resolved(output)
        if any(matches(files.join(folder, name)) for name in names):
            return True
    return False


def has_wildcard(pattern: str) -> bool:
    """Returns whether a pattern may match other paths than itself."""
    return bool(_WILDCARD.search(pattern))


@dataclass(frozen=True)
class Finder:
    """Finds files by globs.

    Attributes:
      skip: returns whether a file or folder of this name is passed over; None passes over none.
      follow_links: whether links to folders are followed, but not in circles.
      scratch: a local folder for temporary files.
      held_bytes: about how much of a folder is held in memory; what is more goes through files.
      boundary: links that lead beyond it are not followed, and found as `OUTSIDE`; None: all are.
    """

    skip: Callable[[str], bool] | None = None
    follow_links: bool = False
    scratch: str = ""
    held_bytes: int = HELD_BYTES
    boundary: Boundary | None = None

    def find(self, pattern: str | Glob) -> Iterator[FoundFile]:
        """Yields the files that match a glob, in order of path.

        Raises:
          OSError: a folder that may hold matches cannot be read, or the one file that is named is
            no regular one; Beam's file systems may raise more.
        """
        glob = parse_glob(pattern) if isinstance(pattern, str) else pattern
        path = glob.pattern
        if not files.is_local(path):
            yield from self._remote(glob)
        elif not glob.is_path:
            yield from self._local(glob)
        elif os.path.exists(path) and not os.path.isdir(path):
            status = os.stat(path)
            if kind := odd_kind(status):
                raise not_regular(path, kind)
            yield FoundFile(path, status.st_size, status.st_mtime_ns)

    def _sorted(self, rows: Iterable[Row]) -> Iterator[Row]:
        return sort_rows(rows, scratch=self.scratch, held_bytes=self.held_bytes)

    def _remote(self, glob: Glob) -> Iterator[FoundFile]:
        from apache_beam.io.filesystem import BeamIOError
        from apache_beam.io.filesystems import FileSystems

        root, pattern = glob.root, glob.pattern
        try:
            if glob.is_path:
                yield from map(_of_metadata, FileSystems.match([pattern])[0].metadata_list)
                return
            system = FileSystems.get_filesystem(pattern)
            prefix = root if system.has_dirs() else _WILDCARD.split(pattern, maxsplit=1)[0]
            matches = glob.matches()
            rows = (
                (item.path, "", tuple(_of_metadata(item)))
                for item in compat.list_remote(system, prefix)
                if matches(item.path)
                and not (self.skip and any(map(self.skip, item.path[len(root) :].split("/"))))
            )
            for _, _, content in self._sorted(rows):
                yield FoundFile(*content)
        except BeamIOError as error:  # who handles it needs nothing of Beam
            raise OSError(str(error)) from error

    def _local(self, glob: Glob) -> Iterator[FoundFile]:
        root = glob.root
        if not os.path.isdir(root or "/"):
            return
        parts = glob.rest.split("/")
        # Folders that cannot match are not opened; a part in which one wildcard may stand for
        # several folders ends that.
        simple = [not re.search(r"\*\*|[?\[]", part) for part in parts]
        endless = False in simple
        count = simple.index(False) if endless else len(parts) - 1
        prune = [_translated(part) for part in parts[:count]]
        whole = glob.matches()
        for found in _below(self._walk(root or "/", prune, endless=endless)):
            if found.path.endswith("/") or whole(found.path):
                yield found

    def _walk(
        self,
        folder: str,
        prune: Sequence[Callable[[str], Any]],
        *,
        endless: bool,
        above: tuple[tuple[int, int], ...] = (),
    ) -> Iterator[FoundFile | Iterator[Any]]:
        """Yields the files of a folder, and what this yields of a folder below, in order of path.

        `prune` tells which folders to open.
        """
        status = os.stat(folder)
        here = (status.st_dev, status.st_ino)
        if here in above:
            return
        base = folder.rstrip("/")
        for key, kind, content in self._sorted(self._scan(folder)):
            if kind == "file":
                yield FoundFile(f"{base}/{key}", *content)
                continue
            name = key[:-1]
            is_wanted = prune[0](name) if prune else endless
            if is_wanted and content[0] == OUTSIDE:
                yield FoundFile(f"{base}/{key}", *content)
            elif is_wanted:
                yield self._walk(f"{base}/{name}", prune[1:], endless=endless, above=(*above, here))

    def _scan(self, folder: str) -> Iterator[tuple[str, str, tuple[int, int]]]:
        """Yields a folder's own files and folders; a folder's key ends in "/", as its files' paths
        go on."""
        with os.scandir(folder) as entries:
            for entry in entries:
                if self.skip and self.skip(entry.name):
                    continue
                is_link = entry.is_symlink()
                try:
                    status = entry.stat()
                except OSError:
                    if not is_link:
                        raise
                    yield entry.name, "file", (BROKEN_LINK, 0)
                    continue
                is_folder = stat.S_ISDIR(status.st_mode)
                if is_folder and is_link and not self.follow_links:
                    continue
                size, modified = (0, 0) if is_folder else (status.st_size, status.st_mtime_ns)
                if is_link and self.boundary and not self.boundary.holds(entry.path):
                    size, modified = OUTSIDE, 0
                elif not is_folder and odd_kind(status):
                    size, modified = NOT_REGULAR, 0
                yield (
                    entry.name + "/" * is_folder,
                    "folder" if is_folder else "file",
                    (size, modified),
                )


def _below(walk: Iterator[FoundFile | Iterator[Any]]) -> Iterator[FoundFile]:
    """Yields all files of nested walks in order, however deep they are."""
    walks = [walk]
    while walks:
        for item in walks[-1]:
            if not isinstance(item, FoundFile):
                walks.append(item)
                break
            yield item
        else:
            walks.pop()


def _of_metadata(item: Any) -> FoundFile:
    stamp = int((item.last_updated_in_seconds or 0) * 10**9)
    return FoundFile(item.path, item.size_in_bytes, stamp)
