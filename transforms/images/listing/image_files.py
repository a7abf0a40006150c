"""Finding image files: a sorted stream of the matches of globs; archives are read like folders."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator

from apache_beam.io.filesystem import BeamIOError

from recordmill.records.errors import UsageError
from recordmill.transforms.images.extensions import has_image_extension
from recordmill.transforms.images.listing.archives import archive_members, is_archive
from recordmill.transforms.images.listing.entries import (
    Entry,
    Listing,
    is_encodable,
    is_hidden,
    printable,
)
from recordmill.transforms.images.references import ListedReject
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import (
    BROKEN_LINK,
    Finder,
    FoundFile,
    absolute,
    common_root,
    glob_root,
    has_wildcard,
    relative,
)


def whole_folders(patterns: Iterable[str]) -> list[str]:
    """Returns the globs; a folder becomes the glob of all files below it."""
    out = []
    for pattern in patterns:
        path = pattern.rstrip("/") or "/"
        if files.is_local(path):
            is_folder = os.path.isdir(path)
        else:
            is_folder = not has_wildcard(path) and not files.exists(path)
        if is_folder or path != pattern:
            pattern = files.join(path, "**")
        out.append(absolute(pattern))
    return out


def input_root(patterns: Iterable[str]) -> str:
    """Returns the folder that names are relative to."""
    return common_root(glob_root(pattern) for pattern in whole_folders(patterns))


def find_files(
    patterns: Iterable[str], listing: Listing, *, flag: str = "--input"
) -> Iterator[tuple[str, FoundFile]]:
    """Yields `(name, file)` of each file that matches, once, in order of path.

    Hidden files and folders are counted and passed over.

    Raises:
      UsageError: a pattern matches nothing, or cannot be listed.
    """
    patterns = list(patterns)
    globs = whole_folders(patterns)
    root = input_root(globs)
    last = ""
    shown = [f"{flag} {pattern}" for pattern in patterns]
    for file in heapq.merge(
        *(_matches(pattern, listing, name) for pattern, name in zip(globs, shown, strict=True))
    ):
        if file.path != last:
            last = file.path
            yield relative(last, root), file


def find_entries(
    patterns: Iterable[str], listing: Listing, *, flag: str = "--input"
) -> Iterator[Entry | ListedReject]:
    """Yields image files and members of archives, in order of path.

    Raises:
      UsageError: a pattern matches nothing, or an archive cannot be used.
    """
    for name, file in find_files(patterns, listing, flag=flag):
        archive = is_archive(file.path)
        if not archive and not has_image_extension(file.path):
            listing.pass_over("no_image_extension", name)
        elif not is_encodable(name):
            yield ListedReject(printable(name), "bad_name", "the name is not UTF-8; rename it")
        elif file.size == BROKEN_LINK:
            yield ListedReject(name, "no_image", "a link to nothing")
        else:
            listing.on_file(*file)
            if archive:
                for item in archive_members(name, file.path, listing):
                    if isinstance(item, Entry):
                        item = item._replace(modified_ns=file.modified_ns)
                    yield item
            else:
                yield Entry(name, file.path, size=file.size, modified_ns=file.modified_ns)


def _matches(pattern: str, listing: Listing, shown: str) -> Iterator[FoundFile]:
    def skip(name: str) -> bool:
        hidden = is_hidden(name)
        if hidden:
            listing.pass_over("hidden", name)
        return hidden

    finder = Finder(skip, follow_links=True, scratch=listing.scratch, held_bytes=listing.held_bytes)
    matched = False
    try:
        for file in finder.find(pattern):
            matched = True
            yield file
    except (BeamIOError, OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{shown} cannot be listed: {error}") from error
    if not matched:
        raise UsageError(f"{shown} matches no file")
