"""Members of tar and zip archives: where each one's bytes are, so that workers read only those."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.external_sort import Row, cogroup
from recordmill.transforms.image_entries import (
    Entry,
    Listing,
    has_image_ending,
    is_encodable,
    is_hidden,
    printable,
)
from recordmill.transforms.image_references import ListedReject

_COMPRESSED_TARS = (
    ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst",
)  # fmt: skip
_ENCRYPTED = 1


def is_archive(path: str) -> bool:
    """Tells whether a file is an archive, by its name.

    Raises:
      UsageError: it is a compressed tar, whose members cannot be read one by one.
    """
    if path.lower().endswith(_COMPRESSED_TARS):
        raise UsageError(
            f"--input {path} must be a plain .tar or a .zip: members of a compressed tar cannot be "
            "read one by one; decompress it (gunzip, xz -d, …) or unpack it"
        )
    return path.lower().endswith((".tar", ".zip"))


def archive_members(name: str, path: str, listing: Listing) -> Iterator[Entry | ListedReject]:
    """Yields the images in an archive in order of name; of members of one name the last counts.

    Names and places of a tar's members are sorted through temporary files; a zip's directory is
    held in memory, a kilobyte a member.
    """
    rows = _zip_rows(path) if path.lower().endswith(".zip") else _tar_rows(path)
    for member, contents in cogroup(rows, scratch=listing.scratch):
        full = f"{name}/{member}".rstrip("/")
        for detail in contents.get("broken_archive", []):
            yield ListedReject(full, "broken_archive", detail)
        if not member:
            continue
        if not is_encodable(full):
            yield ListedReject(printable(full), "bad_name", "the member's name is not UTF-8")
            continue
        if any(map(is_hidden, member.split("/"))):
            listing.filtered["hidden"] += 1
            continue
        if not has_image_ending(member):
            listing.filtered["no_image_ending"] += 1
            continue
        places = contents["member"]
        for _ in places[:-1]:
            yield ListedReject(full, "duplicate", "a later member of the archive has that name")
        storage, offset, size, problem = places[-1]
        if problem:
            yield ListedReject(full, "no_image", problem)
        else:
            yield Entry(full, path, storage, offset, size, inner=len(name) + 1)


def _plain_name(name: str) -> str:
    return name.replace("\\", "/").lstrip("/").removeprefix("./")


def _tar_rows(path: str) -> Iterator[Row]:
    try:
        with files.open_read(path) as handle, tarfile.open(fileobj=handle, mode="r:") as archive:
            while (member := archive.next()) is not None:
                # A TarFile remembers every member it has seen.
                archive.members = []  # type: ignore[attr-defined]
                if member.isdir():
                    continue
                problem = "" if member.isreg() and not member.sparse else "a link or sparse file"
                content = ("range", member.offset_data, member.size, problem)
                yield _plain_name(member.name), "member", content
    except (tarfile.TarError, EOFError, OSError) as error:
        yield "", "broken_archive", f"cannot be read on as tar: {error}"


def _zip_rows(path: str) -> Iterator[Row]:
    try:
        with files.open_read(path) as handle, zipfile.ZipFile(handle) as archive:
            for member in archive.infolist():
                if member.is_dir():
                    continue
                problem = ""
                if member.flag_bits & _ENCRYPTED:
                    problem = "encrypted"
                elif member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    problem = f"compressed by method {member.compress_type}; only deflate is read"
                content = ("zip", member.header_offset, member.compress_size, problem)
                yield _plain_name(member.filename), "member", content
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        yield "", "broken_archive", f"cannot be read as zip: {error}"
