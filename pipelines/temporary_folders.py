"""Folders in TMPDIR, or beside an output: what a process makes, and what killed ones have left.

A folder's name has the process, which holds a lock on it: process numbers repeat, and those of
another container mean nothing here, but the lock is gone when the process is.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import suppress

_NAME = re.compile(r"recordmill-(\d+)-\w+")
_OTHER = "other"  # a link to a folder that goes with this one, after a kill
_held: dict[str, int] = {}  # folder -> descriptor, which holds the lock
_others: set[str] = set()


def prefix() -> str:
    """Returns the beginning of the names of this process's folders."""
    return f"recordmill-{os.getpid()}-"


def make_folder(base: str | None = None) -> str:
    """Makes a folder that only this user can enter, in `base` or in TMPDIR."""
    folder = tempfile.mkdtemp(prefix=prefix(), dir=base)
    _hold(folder)
    return folder


def make_folder_beside(path: str) -> str:
    """Makes a hidden folder for a local file that is not there yet, beside it.

    Workers of other users, as a cluster may have them, can enter it where they can enter the
    folder around it. What a killed process left beside this file is removed before.
    """
    folder, before = _beside(path)
    _remove_leftovers(folder, before)
    made = os.path.join(folder, f"{before}{prefix()}{uuid.uuid4().hex[:8]}")
    os.mkdir(made)
    _hold(made)
    return made


def _beside(path: str) -> tuple[str, str]:
    """Returns the folder of a file, and the beginning of the names of hidden folders for it."""
    folder, name = os.path.split(path)
    return folder or ".", f".{name}."


def _hold(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with suppress(OSError):  # the file system may have no locks
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    _held[folder] = descriptor


def remove_folder(folder: str) -> None:
    """Removes a folder of this process with all that is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    descriptor = _held.pop(folder, None)
    if descriptor is not None:
        with suppress(OSError):
            os.close(descriptor)


def remove_with(folder: str, other: str) -> None:
    """Sees to it that another folder in TMPDIR goes, too, where this process does not remove it."""
    os.symlink(other, os.path.join(folder, _OTHER))
    _others.add(other)


def remove_others() -> None:
    """Removes those folders; called where the process ends without Python's own end."""
    for other in _others:
        shutil.rmtree(other, ignore_errors=True)


def remove_leftovers(bases: Iterable[str] = ()) -> None:
    """Removes folders of this user's processes that were killed.

    Args:
      bases: where to look; TMPDIR if there are none.
    """
    for base in dict.fromkeys(bases or (tempfile.gettempdir(),)):
        _remove_leftovers(base, "")


def _remove_leftovers(base: str, before: str) -> None:
    with suppress(OSError):
        for entry in list(os.scandir(base)):
            if not entry.name.startswith(before):
                continue
            found = _NAME.fullmatch(entry.name, len(before))
            if found and not _is_alive(int(found[1])):
                _remove_abandoned(entry.path)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _remove_abandoned(folder: str) -> None:
    """Removes a folder of this user that nobody holds."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with suppress(OSError):  # there is none
                    shutil.rmtree(os.readlink(os.path.join(folder, _OTHER)), ignore_errors=True)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
