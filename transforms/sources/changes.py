"""Input that changes between the plan and its reading ends the run, before anything is published.

A file is compared with its listing when it is opened, and again when it was read. A change behind
that makes no difference: what was read is what was planned. So a commit looks at nothing again, but
at shards of other tools that stay where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from recordmill.records.errors import RunError
from recordmill.transforms.storage import files

_HOUR_NS = 3600 * 10**9
_TOLERANCE_NS = 2_000_000


class InputChangedError(RunError):
    """A file of the input is another one than was planned."""


def check_opened(path: str, handle: IO[bytes], size: int, modified_ns: int) -> None:
    """Checks that an open file is still what a listing found.

    Args:
      path: of the file.
      handle: the file as it is stored; its position stays.
      size: of the listing; -1 where it is unknown.
      modified_ns: the same; 0 where it is unknown, and nothing is checked then.

    Raises:
      InputChangedError: says what changed, and what to do.
    """
    if modified_ns:
        check_stamp(path, files.stamp(handle), size, modified_ns)


def check_stamp(path: str, found: tuple[int, int], size: int, modified_ns: int) -> None:
    """Checks the same of the size and time that were found; a time of 0 is not known.

    Raises:
      InputChangedError: see `check_opened`.
    """
    found_size, found_ns = found
    if 0 <= size != found_size:
        change = f"it had {size} bytes, and has {found_size}"
    elif found_ns and not _is_same_time(path, found_ns, modified_ns):
        change = "it was written to"
    else:
        return
    raise InputChangedError(
        f"{path} changed since the run was planned: {change}; see that nothing writes to the "
        "input, and start anew with --overwrite"
    )


@contextmanager
def reading(path: str, size: int, modified_ns: int) -> Iterator[None]:
    """Checks that a file which the block reads is the same at its end.

    Raises:
      InputChangedError: it changed, or is gone.
    """
    try:
        yield
        check_read(path, size, modified_ns)
    except FileNotFoundError as error:
        if error.filename != path:
            raise
        raise InputChangedError(
            f"{path} was removed while the run read the input; put it back, and run the same "
            "command again"
        ) from error


def check_unchanged(stamps: Mapping[str, tuple[int, int]]) -> None:
    """Checks the same of files that nobody has open.

    Args:
      stamps: path -> size and time, as `check_opened` has them.

    Raises:
      InputChangedError: one changed, or is gone.
    """

    def check(path: str) -> None:
        size, modified_ns = stamps[path]
        with reading(path, size, modified_ns), files.open_read(path) as handle:
            check_opened(path, handle, size, modified_ns)

    for _ in files.map_files(check, stamps):
        pass


def check_read(path: str, size: int, modified_ns: int) -> None:
    """Checks the same once a file was read; objects of a service never change while they are open.

    Raises:
      InputChangedError: see `check_opened`.
      FileNotFoundError: the file is gone.
    """
    if modified_ns and files.is_local(path):
        status = os.stat(path)
        check_stamp(path, (status.st_size, status.st_mtime_ns), size, modified_ns)


def _is_same_time(path: str, one: int, other: int) -> bool:
    # Beam's listings of services shift daylight saving time by the machine's time zone.
    difference = abs(one - other)
    if files.is_local(path):
        return not difference
    return min(difference % _HOUR_NS, -difference % _HOUR_NS) <= _TOLERANCE_NS
