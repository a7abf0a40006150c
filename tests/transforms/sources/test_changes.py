"""Input that changes between its listing and its reading."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from recordmill.transforms.images.listing.archives import archive_members
from recordmill.transforms.images.listing.entries import Entry, Listing
from recordmill.transforms.images.references import StoredBytes
from recordmill.transforms.images.stored_bytes import ImageReader
from recordmill.transforms.sources.changes import (
    InputChangedError,
    check_opened,
    check_read,
    check_unchanged,
    reading,
)
from recordmill.transforms.sources.document_spec import DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.work_items import list_sources
from recordmill.transforms.storage import files

CHANGED = "changed since the run was planned: "


def touched(path: Path) -> None:
    """As if it was written to in another second, with the same bytes."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def test_size_and_time_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"0123")
    status = path.stat()
    stamp = (status.st_size, status.st_mtime_ns)
    check_read(str(path), *stamp)
    with files.open_read(str(path), 2) as handle:
        check_opened(str(path), handle, *stamp)
        assert handle.read() == b"23"
        with path.open("ab") as more:
            more.write(b"4")
        with pytest.raises(InputChangedError, match=f"{CHANGED}it had 4 bytes, and has 5; see"):
            check_opened(str(path), handle, *stamp)
    path.write_bytes(b"0123")
    touched(path)
    with pytest.raises(InputChangedError, match=f"{CHANGED}it was written to; see that nothing"):
        check_read(str(path), *stamp)
    path.unlink()
    removed = pytest.raises(
        InputChangedError, match="was removed while the run read the input; put"
    )
    with removed, reading(str(path), *stamp), files.open_read(str(path)):
        pass
    check_read(str(path), 4, 0)  # of storage that knows no times


def test_an_object_is_compared_by_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123")

    class Remote:
        stamp = (4, 1_700_000_000_123_456_000)

    handle: object = Remote()
    for shift in (0, 3600 * 10**9, -3600 * 10**9, 1000):  # listings shift by the time zone
        check_opened("gs://b/a", handle, 4, Remote.stamp[1] + shift)  # type: ignore[arg-type]
    with pytest.raises(InputChangedError, match="it was written to"):
        check_opened("gs://b/a", handle, 4, Remote.stamp[1] + 10**9)  # type: ignore[arg-type]
    with pytest.raises(InputChangedError, match="it had 5 bytes, and has 4"):
        check_opened("gs://b/a", handle, 5, Remote.stamp[1])  # type: ignore[arg-type]


def test_files_that_nobody_has_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123")
    stamps = {str(path): (4, path.stat().st_mtime_ns)}
    check_unchanged(stamps)
    touched(path)
    with pytest.raises(InputChangedError, match="it was written to"):
        check_unchanged(stamps)
    path.unlink()
    with pytest.raises(InputChangedError, match="was removed while"):
        check_unchanged(stamps)

    class Remote(io.BytesIO):
        stamp = (5, 1_700_000_000_123_456_000)

    monkeypatch.setattr(files, "open_read", lambda _: Remote())
    check_unchanged({"gs://b/a": Remote.stamp})
    with pytest.raises(InputChangedError, match="it had 4 bytes, and has 5"):
        check_unchanged({"gs://b/a": (4, Remote.stamp[1])})


@pytest.mark.parametrize("folder", [False, True])
def test_a_link_put_in_the_place_of_a_listed_file_is_not_followed(
    tmp_path: Path, folder: bool
) -> None:
    for name in ("in", "secrets"):
        (tmp_path / name).mkdir()
    path = tmp_path / "in/a.txt"
    path.write_bytes(b"harmless words\n")
    (tmp_path / "secrets/a.txt").write_bytes(b"SECRET words of another length\n")
    (source,) = list_sources([f"{tmp_path}/in/*.txt"])
    stored = StoredBytes(str(path), size=source.size, modified_ns=source.modified_ns)
    path.unlink()
    if folder:
        path.parent.rmdir()
        path.parent.symlink_to(tmp_path / "secrets")
    else:
        path.symlink_to(tmp_path / "secrets/a.txt")
    with pytest.raises(InputChangedError, match=f"{CHANGED}it had 15 bytes, and has 31"):
        list(read_documents(source, DocumentSpec()))
    with ImageReader() as reader, pytest.raises(InputChangedError, match=CHANGED):
        reader.read(stored)


@pytest.mark.parametrize("change", ["replaced", "cut", "longer", "touched"])
def test_an_image_that_changed_is_no_reject(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"0123456789")
    status = path.stat()
    stored = StoredBytes(str(path), size=status.st_size, modified_ns=status.st_mtime_ns)
    with ImageReader() as reader:
        assert reader.read(stored) == b"0123456789"
        if change == "replaced":
            (tmp_path / "b").write_bytes(b"9876543210")
            touched(tmp_path / "b")
            (tmp_path / "b").replace(path)
        elif change == "touched":
            touched(path)
        else:
            os.truncate(path, {"cut": 5, "longer": 15}[change])
        with pytest.raises(InputChangedError, match=CHANGED):
            reader.read(stored)
        assert reader.read(replace(stored, modified_ns=0, size=-1))


def test_an_archive_that_changes_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jpg", b"0123456789")
        archive.writestr("b.jpg", b"0123456789")
    members = [m for m in archive_members("a.zip", str(path), Listing()) if isinstance(m, Entry)]
    modified_ns = path.stat().st_mtime_ns
    first, second = (replace(member.stored, modified_ns=modified_ns) for member in members)
    with ImageReader() as reader:
        assert reader.read(first) == b"0123456789"
        data = path.read_bytes()
        with path.open("r+b") as handle:
            handle.write(b"\0" * len(data))
        touched(path)
        with pytest.raises(InputChangedError, match=CHANGED):
            reader.read(second)
