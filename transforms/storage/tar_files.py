"""Headers of a tar up to its end mark; whatever keeps a later one from being read is told.

Python's tarfile takes a header that it cannot read, zeros and the end of the file for the end of
the archive, and says nothing. An archive ends with two blocks of zeros. As GNU tar does, one block
at the end of the file is accepted; unlike there, none is an error: the file may have been cut
between two members. So is what follows the zeros: they may have been members, or archives were
joined.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO

from recordmill.transforms.storage.beam_storage_internals import next_tar_member

_BLOCK = tarfile.BLOCKSIZE
_ZEROS = bytes(_BLOCK)
_READ_BYTES = 1 << 20
_EXTENDED = b"LKxXg"  # headers with names and attributes of the member behind them
_MOST_EXTENDED_BYTES = 1 << 20
# What tarfile raises on headers whose numbers, texts or nesting make no sense.
_SENSELESS = (tarfile.TarError, ValueError, OverflowError, LookupError, TypeError, RecursionError)


def plain_name(name: str) -> str:
    """Returns the name of a member of an archive as a path below it."""
    return name.replace("\\", "/").lstrip("/").removeprefix("./")


def sample_key(name: str) -> str:
    """Returns a member's name up to the first dot behind its folders: WebDataset's key."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


class DamagedTarError(Exception):
    """An archive cannot be read on.

    Attributes:
      position: of the first byte that cannot be used.
    """

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position


def read_headers(handle: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    """Yields the members of a tar in order, in constant memory.

    Raises:
      DamagedTarError: it cannot be read up to its end mark; all members before were yielded.
      OSError: the file cannot be read.
    """
    if _ends_at(handle, 0):
        return
    handle.seek(0)
    at = 0
    archive = None
    try:
        archive = tarfile.open(fileobj=handle, mode="r:")  # noqa: SIM115
        while True:
            member, after = next_tar_member(archive)
            if member is None:
                raise DamagedTarError(at, "there is no header; its checksum is wrong")
            if member.size < 0 or member.offset_data < at:
                raise DamagedTarError(at, f"the member there has the size {member.size}")
            if after <= at:
                raise DamagedTarError(at, "the member there ends before it begins")
            yield member
            at = after
            if _ends_at(handle, at):
                return
    except _SENSELESS as error:
        raise DamagedTarError(at, str(error) or type(error).__name__) from error
    finally:
        if archive:
            archive.close()


def _ends_at(handle: IO[bytes], at: int) -> bool:
    """Tells whether the end mark is there.

    Raises:
      DamagedTarError: neither a whole header nor the end mark of the archive is.
    """
    handle.seek(max(at - 1, 0))
    data = handle.read(_BLOCK + (at > 0))
    if not data:
        raise DamagedTarError(at, "the file ends within the member before" if at else "it is empty")
    block = data[at > 0 :]
    if not block:
        raise DamagedTarError(at, "the file ends without the end mark, and may have been cut")
    if len(block) < _BLOCK:
        raise DamagedTarError(at, "the file ends within a header")
    if block == _ZEROS:
        _check_end(handle, at)
        return True
    if block[156:157] in _EXTENDED:
        size = _octal(block[124:136])
        if not 0 <= size <= _MOST_EXTENDED_BYTES:
            raise DamagedTarError(at, "the header of a long name is too long")
    return False


def _octal(field: bytes) -> int:
    """Returns a number as tar writes it, -1 where it is in another form or none."""
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return -1


def _check_end(handle: IO[bytes], at: int) -> None:
    """Checks that only zeros follow the one block of zeros that was read.

    Raises:
      DamagedTarError: something else does.
    """
    position = at + _BLOCK
    while data := handle.read(_READ_BYTES):
        if data.count(0) != len(data):
            position += len(data) - len(data.lstrip(b"\0"))
            raise DamagedTarError(
                position,
                f"bytes follow the zeros that end the archive at byte {at}: these were members, or "
                "archives were joined",
            )
        position += len(data)
