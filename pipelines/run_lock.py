"""One run at a time for each output, on this machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from filelock import FileLock, Timeout

from recordmill.records.errors import UsageError
from recordmill.transforms.storage import files

# Longer than the one moment in which a run that ends removes its lock file: filelock tries again.
_TIMEOUT_SECONDS = 0.2


@contextmanager
def only_run(output: str) -> Iterator[None]:
    """Keeps a second run on this machine from planning or writing the same output meanwhile.

    The lock is a file outside of the output, since a new run may delete all that the output holds.
    The system releases it when the process ends in any way.

    Raises:
      UsageError: another run holds the lock, or the lock file cannot be made.
    """
    path = lock_path(output)
    try:
        try:
            lock = _locked(path)
        except PermissionError:  # it is of another user, and may be stale
            path = f"{path}.{os.getuid()}"
            lock = _locked(path)
    except Timeout as error:
        raise UsageError(
            f"another run is writing to {output}; wait for its end, or stop it"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be locked: {error.strerror}; set TMPDIR") from error
    try:
        yield
    finally:
        # filelock may keep the file. It is removed under the lock: a process that has opened it
        # meanwhile notices, and makes a new one.
        with suppress(OSError):
            os.unlink(path)
        lock.release()


def lock_path(output: str) -> str:
    """Returns the lock file for an output, the same for every way to write its path."""
    whole = os.path.abspath(output) if files.is_local(output) else output
    digest = hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()
    return os.path.join(tempfile.gettempdir(), f"recordmill-{digest}.lock")


def _locked(path: str) -> FileLock:
    lock = FileLock(path, timeout=_TIMEOUT_SECONDS)
    lock.acquire()
    return lock
