"""One run at a time for each output.

The lock of an output on a file system lies in the output itself, so that neither another TMPDIR
nor another way to write the path, such as a link or a bind mount, gets around it. Object storage
has no locks: there a lock on this machine keeps its own runs apart, and the plan's token those of
several machines: the run that claimed the output last goes on, and the others end with one line.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.writable import reason
from recordmill.transforms.storage import files

LOCK = ".recordmill.lock"
# What a file system says that has no locks, as some network file systems are mounted.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def only_run(output: str) -> Iterator[None]:
    """Keeps a second run from planning or writing the same output meanwhile.

    The system releases the lock when the process ends in any way. At the end the file is removed,
    and so are folders that were made for it and hold nothing.

    Raises:
      UsageError: another run holds the lock, or the lock file cannot be made.
    """
    path = lock_path(output)
    made = _make_folder(output, os.path.dirname(path))
    try:
        lock = _lock(path, output)
        try:
            yield
        finally:
            # Under the lock: a process that has opened the file meanwhile notices, and makes a
            # new one.
            with suppress(OSError):
                os.unlink(path)
            os.close(lock)
    finally:
        for folder in made:
            with suppress(OSError):  # it is not empty
                os.rmdir(folder)


def lock_path(output: str) -> str:
    """Returns the lock file for an output."""
    if files.is_local(output):
        return files.join(output, LOCK)
    digest = hashlib.blake2b(output.rstrip("/").encode(), digest_size=8).hexdigest()
    return os.path.join(tempfile.gettempdir(), f"recordmill-locks-{os.geteuid()}", digest)


def _make_folder(output: str, folder: str) -> list[str]:
    """Makes the folder of a lock; returns the folders that were missing, the innermost first.

    Raises:
      UsageError: it cannot be made, or others could write to it where it is not the output.
    """
    local = files.is_local(output)
    made = []
    above = os.path.abspath(folder)
    while not os.path.lexists(above):
        made.append(above)
        above = os.path.dirname(above)
    try:
        os.makedirs(folder, mode=0o777 if local else 0o700, exist_ok=True)
        status = os.lstat(folder)
    except OSError as error:
        flag = f"--output {output}" if local else folder
        hint = "" if local else "; set TMPDIR"
        raise UsageError(f"{flag} cannot be written: {reason(error)}{hint}") from error
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not local and not (private and not status.st_mode & 0o022):
        raise UsageError(
            f"{folder} must be a folder of this user that nobody else can write to; remove it, or "
            "set TMPDIR"
        )
    return made if local else []


def _lock(path: str, output: str) -> int:
    """Returns the descriptor of the locked file."""
    while True:
        descriptor = _open(path, output)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise UsageError(
                f"another run is writing to {output}; wait for its end, or stop it"
            ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise UsageError(f"{path} cannot be locked: {reason(error)}") from error
            print(
                f"{path} cannot be locked, because the file system has no locks; see that no "
                "second run writes there",
                file=sys.stderr,
            )
            return descriptor
        # Whoever held it may have removed the file in this moment.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        os.close(descriptor)


def _open(path: str, output: str) -> int:
    """Opens the lock file: a file of this user, and neither a link nor a second name of another.

    Raises:
      UsageError: it is something else, or cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise UsageError(f"{path} is no file of recordmill; remove it") from error
        if isinstance(error, PermissionError) and os.path.lexists(path):
            owner = _owner(path)
            raise UsageError(
                f"{path} belongs to {owner}: another run is writing to {output}, or one was "
                "killed; wait for its end, or remove that file"
            ) from error
        raise UsageError(f"--output {output} cannot be written: {reason(error)}") from error
    status = os.fstat(descriptor)
    own = status.st_uid == os.geteuid() or os.geteuid() == 0
    if not (stat.S_ISREG(status.st_mode) and own and status.st_nlink <= 1):
        os.close(descriptor)
        raise UsageError(f"{path} is no file of recordmill, or of another user; remove it")
    return descriptor


def _owner(path: str) -> str:
    try:
        return Path(path).owner()
    except (OSError, KeyError):
        return "another user"
