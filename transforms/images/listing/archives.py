"""Members of tar and zip archives: where each one's bytes are, so that workers read only those."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

from recordmill.records.errors import UsageError
from recordmill.transforms.images.extensions import has_image_extension
from recordmill.transforms.images.listing.entries import (
    Entry,
    Listing,
    is_encodable,
    printable,
)
from recordmill.transforms.images.pillow_internals import stated_zip_members
from recordmill.transforms.images.references import ListedReject, Storage
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row, cogroup
from recordmill.transforms.storage.globs import is_hidden
from recordmill.transforms.storage.tar_files import DamagedTarError, plain_name, read_headers

_COMPRESSED_TARS = (
    ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst",
)  # fmt: skip
_ENCRYPTED = 1
_MOST_STATED = 1 << 16  # the end of a zip that is no zip64 counts members up to it
_ZIP_ERRORS = (
    zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, OverflowError,
    struct.error,
)  # fmt: skip


class Member(NamedTuple):
    """A member of an archive: where its bytes are, or why they cannot be used.

    Attributes:
      storage, offset, size, crc32: as in `StoredBytes`.
      problem: why it cannot be read, "" where it can.
    """

    storage: Storage
    offset: int
    size: int
    crc32: int | None
    problem: str


def is_archive(path: str) -> bool:
    """Returns whether a file is an archive, by its name.

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

    Names and offsets of a tar's members are sorted through temporary files; a zip's directory is
    held in memory, a kilobyte a member.
    """
    rows = _zip_rows(path) if path.lower().endswith(".zip") else tar_rows(path)
    for member, contents in cogroup(rows, scratch=listing.scratch):
        full = f"{name}/{member}".rstrip("/")
        for position, detail in contents.get("broken_archive", []):
            yield ListedReject(full, "broken_archive", detail, position)
        if not member:
            for _ in contents.get("member", ()):
                yield ListedReject(full, "bad_name", "a member of the archive has no name")
            continue
        if not is_encodable(full):
            yield ListedReject(printable(full), "bad_name", "the member's name is not UTF-8")
            continue
        if any(map(is_hidden, member.split("/"))):
            listing.pass_over("hidden", full)
            continue
        if not has_image_extension(member):
            listing.pass_over("no_image_extension", full)
            continue
        members = [Member(*content) for content in contents["member"]]
        for _ in members[:-1]:
            yield ListedReject(full, "duplicate", "a later member of the archive has that name")
        last = members[-1]
        if last.problem:
            yield ListedReject(full, "no_image", last.problem)
        else:
            yield Entry(
                full, path, last.storage, last.offset, last.size,
                inner=len(name) + 1, crc32=last.crc32,
            )  # fmt: skip


def tar_rows(path: str) -> Iterator[Row]:
    """Yields `(name, "member", content of a Member)` for each member, and what breaks a tar off."""
    try:
        with files.open_read(path) as handle:
            for member in read_headers(handle):
                if member.isdir():
                    continue
                is_plain = member.isreg() and not member.issparse()
                problem = "" if is_plain else "a link or sparse file"
                content = Member("range", member.offset_data, member.size, None, problem)
                yield plain_name(member.name), "member", tuple(content)
    except DamagedTarError as error:
        detail = f"cannot be read on as tar from byte {error.position}: {error}"
        yield "", "broken_archive", (error.position, detail)
    except (EOFError, OSError) as error:
        yield "", "broken_archive", (0, f"cannot be read on as tar: {error}")


def _zip_rows(path: str) -> Iterator[Row]:
    try:
        with files.open_read(path) as handle, zipfile.ZipFile(handle) as archive:
            stated, found = stated_zip_members(handle), len(archive.infolist())
            if stated not in (found, found % _MOST_STATED):
                detail = f"its directory has {found} members, and its end says {stated}"
                yield "", "broken_archive", (archive.start_dir, detail)
            for member in archive.infolist():
                if member.filename.endswith("/"):  # is_dir fails on a name that is empty
                    continue
                problem = ""
                if member.flag_bits & _ENCRYPTED:
                    problem = "encrypted"
                elif member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    problem = f"compressed by method {member.compress_type}; only deflate is read"
                # The directory has the checksum also of a member that was written as a stream,
                # whose own header has none.
                content = Member(
                    "zip", member.header_offset, member.compress_size, member.CRC, problem
                )
                yield plain_name(member.filename), "member", tuple(content)
    except _ZIP_ERRORS as error:
        yield "", "broken_archive", (0, f"cannot be read as zip: {error}")
