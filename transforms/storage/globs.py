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

from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems

from recordmill.records.manifest import MANIFEST_PATH, REJECTED_PATH, SUCCESS_PATH
from recordmill.records.shards import ShardName
from recordmill.transforms.storage import compat, files
from recordmill.transforms.storage.external_sort import HELD_BYTES, Row, sort_rows

_WILDCARD = re.compile(r"[*?\[]")
BROKEN_LINK = -2
_WRITTEN = (
    SUCCESS_PATH, MANIFEST_PATH, f"{REJECTED_PATH}/rejected-000000.jsonl", "features.json",
    ShardName("train", 0, 1).path, "_tmp/plan.json",
)  # fmt: skip


class FoundFile(NamedTuple):
    """A file that a glob matches; a broken link has the size `BROKEN_LINK`, and no stamp."""

    path: str
    size: int
    modified_ns: int


def absolute(pattern: str) -> str:
    """Returns a local glob as an absolute one, so that a file has one path; others unchanged."""
    if not files.is_local(pattern):
        return pattern
    if not pattern.startswith("/") and has_wildcard(os.getcwd()):
        return pattern if "/" in pattern else f"./{pattern}"  # where we are is no pattern
    parts = os.path.join(os.getcwd(), pattern).split("/")
    return "/".join(["", *(part for part in parts[:-1] if part not in ("", ".")), parts[-1]])


def own_files(pattern: str) -> str:
    """Returns a glob of the files in a folder if the pattern ends in "/", else the pattern."""
    return f"{pattern}*" if pattern.endswith("/") else pattern


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


def matches_output(pattern: str, output: str) -> bool:
    """Returns whether a glob matches files that a job writes to its output."""
    pattern, folder = own_files(absolute(pattern)), absolute(output)
    if files.is_local(pattern):
        pattern, folder = os.path.normpath(pattern), os.path.normpath(folder)
    matches = re.compile(FileSystem.translate_pattern(pattern)).match
    return any(matches(files.join(folder, name)) for name in _WRITTEN)


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
    """

    skip: Callable[[str], bool] | None = None
    follow_links: bool = False
    scratch: str = ""
    held_bytes: int = HELD_BYTES

    def find(self, pattern: str) -> Iterator[FoundFile]:
        """Yields the files that match a glob, in order of path.

        Raises:
          OSError: a folder that may hold matches cannot be read; Beam and its file systems may
            raise more.
        """
        if not files.is_local(pattern):
            yield from self._remote(pattern)
        elif has_wildcard(pattern):
            yield from self._local(pattern)
        elif os.path.exists(pattern) and not os.path.isdir(pattern):
            status = os.stat(pattern)
            yield FoundFile(pattern, status.st_size, status.st_mtime_ns)

    def _sorted(self, rows: Iterable[Row]) -> Iterator[Row]:
        return sort_rows(rows, scratch=self.scratch, held_bytes=self.held_bytes)

    def _remote(self, pattern: str) -> Iterator[FoundFile]:
        if not has_wildcard(pattern):
            yield from map(_of_metadata, FileSystems.match([pattern])[0].metadata_list)
            return
        system = FileSystems.get_filesystem(pattern)
        root = glob_root(pattern)
        prefix = root if system.has_dirs() else _WILDCARD.split(pattern, maxsplit=1)[0]
        matches = re.compile(FileSystem.translate_pattern(pattern)).match
        rows = (
            (item.path, "", tuple(_of_metadata(item)))
            for item in compat.list_remote(system, prefix)
            if matches(item.path)
            and not (self.skip and any(map(self.skip, item.path[len(root) :].split("/"))))
        )
        for _, _, content in self._sorted(rows):
            yield FoundFile(*content)

    def _local(self, pattern: str) -> Iterator[FoundFile]:
        root = glob_root(pattern)
        if not os.path.isdir(root or "/"):
            return
        parts = pattern[len(root) :].lstrip("/").split("/")
        # Folders that cannot match are not opened; a part in which one wildcard may stand for
        # several folders ends that.
        simple = [not re.search(r"\*\*|[?\[]", part) for part in parts]
        endless = False in simple
        count = simple.index(False) if endless else len(parts) - 1
        prune = [re.compile(FileSystem.translate_pattern(part)).match for part in parts[:count]]
        whole = re.compile(FileSystem.translate_pattern(pattern)).match
        for found in _below(self._walk(root or "/", prune, endless=endless)):
            if whole(found.path):
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
            if prune[0](name) if prune else endless:
                yield self._walk(f"{base}/{name}", prune[1:], endless=endless, above=(*above, here))

    def _scan(self, folder: str) -> Iterator[tuple[str, str, tuple[int, int]]]:
        """Yields a folder's own files and folders; a folder's key ends in "/", as its files' paths
        go on."""
        with os.scandir(folder) as entries:
            for entry in entries:
                if self.skip and self.skip(entry.name):
                    continue
                try:
                    status = entry.stat()
                except OSError:
                    if not entry.is_symlink():
                        raise
                    yield entry.name, "file", (BROKEN_LINK, 0)
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    yield entry.name, "file", (status.st_size, status.st_mtime_ns)
                elif self.follow_links or not entry.is_symlink():
                    yield f"{entry.name}/", "folder", (0, 0)


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
