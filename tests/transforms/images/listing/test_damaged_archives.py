"""Archives are read to their end mark: what is lost of one is a reject with its position."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.transforms.images.listing.list_images import SourceSpec, list_images
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.storage.tar_files import DamagedTarError, read_headers

MEMBER = 512 + 1024  # bytes of each member of `tar_bytes`


def tar_bytes(members: int = 4, kind: int = tarfile.USTAR_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=kind) as archive:
        for number in range(members):
            info = tarfile.TarInfo(f"a/{number}.jpg")
            info.size = 600
            archive.addfile(info, io.BytesIO(bytes([number + 1]) * 600))
    return target.getvalue()


def with_size(data: bytes, at: int, size: bytes, kind: bytes = b"0") -> bytes:
    """Puts another size and type into the header at a position, with the right checksum."""
    block = bytearray(data[at : at + 512])
    block[124:136], block[156:157], block[148:156] = size, kind, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return data[:at] + bytes(block) + data[at + 512 :]


def read(data: bytes) -> tuple[int, int, str]:
    """Returns the number of members, the position of the damage and what it is; -1 for none."""
    count = 0
    try:
        for _ in read_headers(io.BytesIO(data)):
            count += 1
    except DamagedTarError as error:
        return count, error.position, str(error)
    return count, -1, ""


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


NEGATIVE = struct.pack(">I", 0xFFFFFFFF) + struct.pack(">q", -4096)
WHOLE = tar_bytes()
END = 4 * MEMBER

DAMAGES: dict[str, tuple[Callable[[bytes], bytes], tuple[int, int], str]] = {
    "a flipped bit in a header": (lambda d: flipped(d, 2 * MEMBER + 3), (2, 2 * MEMBER), "header"),
    "a zeroed header": (
        lambda d: d[: 2 * MEMBER] + bytes(512) + d[2 * MEMBER + 512 :],
        (2, 2 * MEMBER + 512), "bytes follow the zeros",
    ),
    "a zeroed sector": (
        lambda d: d[: 2 * MEMBER] + bytes(MEMBER) + d[3 * MEMBER :],
        (2, 3 * MEMBER), "bytes follow the zeros",
    ),
    "a cut between members": (lambda d: d[: 3 * MEMBER], (3, 3 * MEMBER), "without the end mark"),
    "a cut in a header": (lambda d: d[: 3 * MEMBER + 100], (3, 3 * MEMBER), "within a header"),
    "a cut in a member": (lambda d: d[: 3 * MEMBER - 100], (3, 3 * MEMBER), "within the member"),
    "archives that were joined": (lambda d: d + d, (4, len(WHOLE)), "archives were joined"),
    "a negative size": (lambda d: with_size(d, MEMBER, NEGATIVE), (1, MEMBER), "size -4096"),
    "a negative size of a long name": (
        lambda d: with_size(d, MEMBER, NEGATIVE, b"L"), (1, MEMBER), "long name is too long",
    ),
    "a gigantic long name": (
        lambda d: with_size(d, MEMBER, b"77777777777\0", b"L"), (1, MEMBER), "too long",
    ),
    "a size beyond the file": (
        lambda d: with_size(d, 3 * MEMBER, b"00000777777\0"), (4, -2), "within the member",
    ),
    "a size that is no number": (lambda d: with_size(d, MEMBER, b"x" * 12), (1, MEMBER), ""),
    "nothing at all": (lambda d: b"", (0, 0), "empty"),
    "a flipped bit in the first header": (lambda d: flipped(d, 3), (0, 0), "bad checksum"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_told_with_its_position(name: str) -> None:
    damage, (members, position), problem = DAMAGES[name]
    found = read(damage(WHOLE))
    assert found[0] == members
    assert problem in found[2]
    if position == -2:
        assert found[1] > 3 * MEMBER
    else:
        assert found[1] == position


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_whole_archives_are_whole(kind: int) -> None:
    whole = tar_bytes(kind=kind)
    assert read(whole) == (4, -1, "")
    assert read(whole.rstrip(b"\0") + b"\0" * (-len(whole.rstrip(b"\0")) % 512 + 1024))[0] == 4
    assert read(tar_bytes(0)) == (0, -1, "")
    # As GNU tar, one block of zeros at the end is taken, and any number of them.
    assert read(WHOLE[:END] + bytes(512)) == (4, -1, "")
    assert read(WHOLE[:END] + bytes(1 << 21)) == (4, -1, "")


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    for byte in set(range(500)) - {155}:  # that one is no part of the checksum's number
        for bit in (1, 128):
            data = bytearray(WHOLE)
            data[MEMBER + byte] ^= bit
            found = read(bytes(data))
            assert found[:2] == (1, MEMBER), byte


def listed(path: Path) -> tuple[list[str], list[ListedReject]]:
    items = list(list_images(SourceSpec(patterns=(str(path),), labels_from="none")))
    return (
        [item.name for item in items if isinstance(item, ImageReference)],
        [item for item in items if isinstance(item, ListedReject)],
    )


def test_a_reject_has_the_position_and_what_came_before_is_used(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(WHOLE[: 3 * MEMBER])
    images, [reject] = listed(tmp_path)
    assert images == ["x.tar/a/0.jpg", "x.tar/a/1.jpg", "x.tar/a/2.jpg"]
    assert (reject.source, reject.reason, reject.position) == (
        "x.tar", "broken_archive", 3 * MEMBER,
    )  # fmt: skip
    assert f"byte {3 * MEMBER}" in reject.detail


def zip_bytes(members: int = 4) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for number in range(members):
            archive.writestr(f"a/{number}.jpg", bytes([number % 256]) * 60)
    return target.getvalue()


def test_a_zip_that_lost_entries_of_its_directory_is_told(tmp_path: Path) -> None:
    data = zip_bytes()
    end = data.rindex(b"PK\5\6")
    last = data.rindex(b"PK\1\2")
    directory_bytes, *_ = struct.unpack_from("<I", data, end + 12)
    record = bytearray(data[end:])
    struct.pack_into("<I", record, 12, directory_bytes - (end - last))
    (tmp_path / "x.zip").write_bytes(data[:last] + bytes(record))
    images, [reject] = listed(tmp_path)
    assert len(images) == 3
    assert reject.reason == "broken_archive"
    assert "has 3 members, and its end says 4" in reject.detail


@pytest.mark.parametrize("at", [4, 6, 8, 10])
def test_a_zip_of_another_form_is_one_reject(tmp_path: Path, at: int) -> None:
    data = bytearray(zip_bytes())
    start = data.index(b"PK\1\2")
    data[start + at + 1] ^= 0xFF
    data[start + at] ^= 0xFF
    (tmp_path / "x.zip").write_bytes(bytes(data))
    images, rejects = listed(tmp_path)
    assert len(images) + len(rejects) in (1, 4)


def test_a_zip_of_many_members_is_whole(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zip_bytes(66_000))
    images, rejects = listed(tmp_path)
    assert (len(images), rejects) == (66_000, [])
