"""Finding image files: a sorted stream of what globs match, without a list of all of it.

A local tree is walked folder by folder; whoever holds one folder's names beyond memory sorts them
through temporary files. Archives are walked like folders.
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from apache_beam.io.filesystem import BeamIOError, FileSystem
from apache_beam.io.filesystems import FileSystems

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.external_sort import sort_rows
from recordmill.transforms.image_archives import archive_members, is_archive
from recordmill.transforms.image_entries import (
    Entry,
    Listing,
    has_image_ending,
    is_encodable,
    is_hidden,
    printable,
)
from recordmill.transforms.image_references import ListedReject
from recordmill.transforms.sources import common_root, glob_root

_WILDCARD = re.compile(r"[*?\[]")


class FoundFile(NamedTuple):
    """A file that a glob matches; a broken link has size -2."""

    path: str
    size: int
    modified_ns: int


_BROKEN_LINK = -2


def whole_folders(patterns: Iterable[str]) -> list[str]:
    """Returns the globs, where a folder stands for all that is below it."""
    out = []
    for pattern in patterns:
        path = pattern.rstrip("/") or "/"
        if files.is_local(path):
            is_folder = os.path.isdir(path)
        else:
            is_folder = not _WILDCARD.search(path) and not files.exists(path)
        if is_folder or path != pattern:
            pattern = files.join(path, "**")
        # Beam finds no file for a wildcard without a folder.
        out.append(pattern if "/" in pattern else f"./{pattern}")
    return out


def input_root(patterns: Iterable[str]) -> str:
    """Returns the folder that names are relative to."""
    return common_root(glob_root(pattern) for pattern in whole_folders(patterns))


def relative(path: str, root: str) -> str:
    """Returns a path's name below the input root."""
    return path[len(root) :].lstrip("/") if root else path


def find_files(
    patterns: Iterable[str], listing: Listing, *, flag: str = "--input"
) -> Iterator[tuple[str, FoundFile]]:
    """Yields `(name, file)` of what matches, each once, in order of path.

    Hidden files and folders are counted and passed over.

    Raises:
      UsageError: a pattern matches nothing, or cannot be listed.
    """
    globs = whole_folders(patterns)
    root = input_root(globs)
    last = ""
    for found in heapq.merge(*(_matches(pattern, listing, flag) for pattern in globs)):
        if found.path != last:
            last = found.path
            yield relative(last, root), found


def find_entries(
    patterns: Iterable[str], listing: Listing, *, flag: str = "--input"
) -> Iterator[Entry | ListedReject]:
    """Yields image files and members of archives, in order of path.

    Raises:
      UsageError: a pattern matches nothing, or an archive cannot be used.
    """
    for name, found in find_files(patterns, listing, flag=flag):
        archive = is_archive(found.path)
        if not archive and not has_image_ending(found.path):
            listing.filtered["no_image_ending"] += 1
        elif not is_encodable(name):
            yield ListedReject(printable(name), "bad_name", "the name is not UTF-8; rename it")
        elif found.size == _BROKEN_LINK:
            yield ListedReject(name, "no_image", "a link to nothing")
        else:
            listing.saw(*found)
            if archive:
                yield from archive_members(name, found.path, listing)
            else:
                yield Entry(name, found.path, size=found.size)


def _matches(pattern: str, listing: Listing, flag: str) -> Iterator[FoundFile]:
    matched = False
    try:
        listed = _local if files.is_local(pattern) else _remote
        for found in listed(pattern, listing):
            matched = True
            yield found
    except (BeamIOError, OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{flag} {pattern} cannot be listed: {error}") from error
    if not matched:
        raise UsageError(f"{flag} {pattern} matches no file")


def _remote(pattern: str, listing: Listing) -> Iterator[FoundFile]:
    if not _WILDCARD.search(pattern):
        for item in FileSystems.match([pattern])[0].metadata_list:
            yield _of_metadata(item)
        return
    # FileSystems.match makes a list of all; the generator below it does not.
    system = FileSystems.get_filesystem(pattern)
    prefix = glob_root(pattern) if system.has_dirs() else _WILDCARD.split(pattern, maxsplit=1)[0]
    matches = re.compile(FileSystem.translate_pattern(pattern)).match
    root = glob_root(pattern)
    rows = (
        (item.path, "", tuple(_of_metadata(item)))
        for item in system._list(prefix)
        if matches(item.path)
    )
    for path, _, content in sort_rows(rows, scratch=listing.scratch):
        if any(map(is_hidden, path[len(root) :].split("/"))):
            listing.filtered["hidden"] += 1
        else:
            yield FoundFile(*content)


def _of_metadata(item: Any) -> FoundFile:
    stamp = int((item.last_updated_in_seconds or 0) * 10**9)
    return FoundFile(item.path, item.size_in_bytes, stamp)


def _local(pattern: str, listing: Listing) -> Iterator[FoundFile]:
    if not _WILDCARD.search(pattern):
        if os.path.isfile(pattern):
            status = os.stat(pattern)
            yield FoundFile(pattern, status.st_size, status.st_mtime_ns)
        return
    root = glob_root(pattern)
    if not os.path.isdir(root or "/"):
        return
    parts = pattern[len(root) :].lstrip("/").split("/")
    # Folders that cannot match are not opened; a part in which one wildcard may stand for several
    # folders ends that.
    simple = [not re.search(r"\*\*|[?\[]", part) for part in parts]
    count = simple.index(False) if False in simple else len(parts) - 1
    endless = False in simple
    prune = [re.compile(FileSystem.translate_pattern(part)).match for part in parts[:count]]
    walk = partial(_walk, prune=prune, endless=endless, listing=listing)
    whole = re.compile(FileSystem.translate_pattern(pattern)).match
    for found in walk(root or "/", depth=0, above=()):
        if whole(found.path):
            yield found


def _walk(
    folder: str,
    *,
    depth: int,
    above: tuple[tuple[int, int], ...],
    prune: Sequence[Callable[[str], Any]],
    endless: bool,
    listing: Listing,
) -> Iterator[FoundFile]:
    """Yields all files below a folder in order of path; links are followed, but not in circles."""
    status = os.stat(folder)
    here = (status.st_dev, status.st_ino)
    if here in above:
        return
    base = folder.rstrip("/")
    for key, kind, content in sort_rows(_scan(folder, listing), scratch=listing.scratch):
        if kind == "file":
            yield FoundFile(f"{base}/{key}", *content)
            continue
        name = key[:-1]
        wanted = prune[depth](name) if depth < len(prune) else endless
        if wanted:
            yield from _walk(
                f"{base}/{name}", depth=depth + 1, above=(*above, here), prune=prune,
                endless=endless, listing=listing,
            )  # fmt: skip


def _scan(folder: str, listing: Listing) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Yields a folder's own files and folders; a folder's key ends in "/", as its files' paths go
    on."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                listing.filtered["hidden"] += 1
                continue
            try:
                status = entry.stat()
            except OSError:
                if not entry.is_symlink():
                    raise
                yield entry.name, "file", (_BROKEN_LINK, 0)
                continue
            if stat.S_ISDIR(status.st_mode):
                yield f"{entry.name}/", "folder", (0, 0)
            else:
                yield entry.name, "file", (status.st_size, status.st_mtime_ns)
