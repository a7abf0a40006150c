"""Finding image files: a sorted stream of the matches of globs; archives are read like folders."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from recordmill.records.errors import UsageError
from recordmill.records.regular_files import NotRegularError
from recordmill.transforms.images.extensions import has_image_extension
from recordmill.transforms.images.listing.archives import archive_members, is_archive
from recordmill.transforms.images.listing.entries import (
    Entry,
    Listing,
    is_encodable,
    printable,
)
from recordmill.transforms.images.references import ListedReject
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.storage.boundary import Boundary, leaves
from recordmill.transforms.storage.globs import (
    BROKEN_LINK,
    NOT_REGULAR,
    OUTSIDE,
    Finder,
    FoundFile,
    Glob,
    common_root,
    is_hidden,
    relative,
    whole_folders,
)


def input_root(patterns: Iterable[str]) -> str:
    """Returns the folder that names are relative to."""
    return common_root(glob.root for glob in whole_folders(patterns))


def input_boundary(spec: SourceSpec) -> Boundary:
    """Returns what links and annotations of an input may name: files in the folders of its flags,
    and those that --allow_outside adds.
    """
    named = [*spec.patterns, *filter(None, (spec.masks, *spec.annotations))]
    return Boundary(
        (glob.root for glob in whole_folders(named)), spec.allow_outside, spec.skip_files
    )


def find_files(
    patterns: Iterable[str], listing: Listing, *, flag: str = "--input"
) -> Iterator[tuple[str, FoundFile]]:
    """Yields `(name, file)` of each file that matches, once, in order of path.

    Hidden files and folders, and what is no regular file, are counted and passed over. Links that
    leave the listing's boundary have the size `OUTSIDE`; of a folder the path ends in "/".

    Raises:
      UsageError: a pattern matches nothing, or cannot be listed.
    """
    patterns = list(patterns)
    globs = whole_folders(patterns)
    root = common_root(glob.root for glob in globs)
    last = ""
    shown = [f"{flag} {pattern}" for pattern in patterns]
    for file in heapq.merge(
        *(_matches(glob, listing, name) for glob, name in zip(globs, shown, strict=True))
    ):
        if file.path != last:
            last = file.path
            name = relative(last, root)
            if file.size == NOT_REGULAR:
                listing.pass_over("not_regular", name)
            elif listing.boundary and listing.boundary.skips(last):
                listing.pass_over("skip_files", name)
            else:
                yield name, file


def outside_reject(name: str, path: str) -> ListedReject:
    """Returns the reject of a link that leads outside of the input."""
    return ListedReject(printable(name), "outside_input", f"a link: {printable(leaves(path))}")


def find_entries(
    patterns: Iterable[str], listing: Listing, *, flag: str = "--input"
) -> Iterator[Entry | ListedReject]:
    """Yields image files and members of archives, in order of path.

    Raises:
      UsageError: a pattern matches nothing, or an archive cannot be used.
    """
    for name, file in find_files(patterns, listing, flag=flag):
        if file.size == OUTSIDE and file.path.endswith("/"):
            yield outside_reject(name.rstrip("/"), file.path.rstrip("/"))
            continue
        archive = is_archive(file.path)
        if not archive and not has_image_extension(file.path):
            listing.pass_over("no_image_extension", name)
        elif not is_encodable(name):
            yield ListedReject(printable(name), "bad_name", "the name is not UTF-8; rename it")
        elif file.size == BROKEN_LINK:
            yield ListedReject(name, "no_image", "a link to nothing")
        elif file.size == OUTSIDE:
            yield outside_reject(name, file.path)
        else:
            listing.on_file(*file)
            if archive:
                for item in archive_members(name, file.path, listing):
                    if isinstance(item, Entry):
                        item = item._replace(modified_ns=file.modified_ns)
                    yield item
            else:
                yield Entry(name, file.path, size=file.size, modified_ns=file.modified_ns)


def _matches(glob: Glob, listing: Listing, shown: str) -> Iterator[FoundFile]:
    def skip(name: str) -> bool:
        hidden = is_hidden(name)
        if hidden:
            listing.pass_over("hidden", name)
        return hidden

    finder = Finder(
        skip, follow_links=True, scratch=listing.scratch, held_bytes=listing.held_bytes,
        boundary=listing.boundary,
    )  # fmt: skip
    matched = False
    try:
        for file in finder.find(glob):
            matched = True
            yield file
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        if isinstance(error, NotRegularError):
            raise UsageError(f"{shown} is {error.strerror}") from error
        raise UsageError(f"{shown} cannot be listed: {error}") from error
    if not matched:
        raise UsageError(f"{shown} matches no file")
