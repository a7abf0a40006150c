"""Whether a folder can be written to: found out while a job is planned, by writing to it.

A kill at any moment leaves nothing on this machine, or a file that the next probe removes.
"""

from __future__ import annotations

import errno
import os

from recordmill.records.errors import UsageError
from recordmill.transforms.storage import files

PROBE = ".recordmill-probe"
# Other errors of a file without a name mean that the file system has none.
_REFUSALS = (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EPERM)


def reason(error: Exception) -> str:
    """Returns what a file system says, without number and path."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def check_writable(folder: str, flag: str = "--output") -> None:
    """Writes and deletes a small file.

    Raises:
      UsageError: the folder cannot be written to.
    """
    try:
        files.make_folder(folder)
        if files.is_local(folder):
            names = [name for name in os.listdir(folder) if name.startswith(PROBE)]
            files.delete_quietly(files.join(folder, name) for name in names)
        if not _writes_unnamed(folder):
            _write_probe(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag} {folder} cannot be written: {reason(error)}") from error


def _writes_unnamed(folder: str) -> bool:
    """Writes a file without a name, of which a kill leaves nothing; False where there are none."""
    if not files.is_local(folder) or not hasattr(os, "O_TMPFILE"):
        return False
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except OSError as error:
        if error.errno in _REFUSALS:
            raise
        return False
    with os.fdopen(descriptor, "wb") as handle:
        handle.write(b"x")
    return True


def _write_probe(folder: str) -> None:
    if files.is_local(folder):
        path = files.join(folder, f"{PROBE}-{os.getpid()}")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(b"x")
    else:
        path = files.join(folder, PROBE)  # the next run's has the same name, and is removed
        files.write_bytes(path, b"x")
    files.delete_quietly([path])
