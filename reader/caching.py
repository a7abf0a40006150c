"""Copies of remote shards on a local disk, with a size limit and the manifest's checksum.

An entry appears by a rename of a finished, checked copy, so that several processes may fill one
folder. A process holds a shared lock on the entries that it reads until it ends; whoever needs
room removes entries that no process holds, the longest unused first. Shards for which there is no
room are read from their own storage: a cache smaller than an epoch keeps a part of it, and never
thrashes.

A copy that was checked gets a modification time made of its checksum. Where an entry has another
one, it was written to or put there by others: it is read and checked, and replaced if it is wrong.
What else lies in the folder is left alone. A cache that cannot be written is gone around.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import stat
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from recordmill.reader.dataset import FinishedDataset
from recordmill.reader.shard_files import has_checksum, is_local
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import ShardInfo
from recordmill.records.regular_files import open_regular

_CHUNK_BYTES = 1 << 22
_LOCK = ".lock"
_STAMP_SECONDS = 1_000_000_000  # until 2001
_held: dict[Path, int] = {}  # entry -> file descriptor, open until the process ends
_times: dict[Path, int] = {}  # entry -> its modification time when it was checked
_warning = threading.Lock()


class ShardCache:
    """A folder of copies of shards, each named after its checksum and size."""

    def __init__(self, folder: str, limit_bytes: int) -> None:
        """Opens the folder, and makes it where there is none.

        Raises:
          UsageError: the folder cannot be made.
        """
        self._folder = Path(folder)
        self._limit = limit_bytes
        self._is_usable = True
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"cache_dir must be a folder, {folder} cannot be: {error}") from error
        except OSError as error:
            self._go_around(error)

    def fetch(self, dataset: FinishedDataset, shards: Sequence[ShardInfo]) -> list[str]:
        """Returns a path for each shard: of its copy, or of itself where there is no room.

        Raises:
          RunError: a shard has not the size or checksum of the manifest.
        """
        if not self._is_usable:
            return [dataset.file(shard.name.path) for shard in shards]
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda shard: self._fetch(dataset, shard), shards))

    def _fetch(self, dataset: FinishedDataset, shard: ShardInfo) -> str:
        remote = dataset.file(shard.name.path)
        try:
            return self._fetch_copy(remote, shard) or remote
        except OSError as error:
            if error.errno != errno.EMFILE:
                self._go_around(error)
            return remote

    def _go_around(self, error: OSError) -> None:
        """Warns, once, that shards are read where they are."""
        with _warning:
            if self._is_usable:
                self._is_usable = False
                warnings.warn(
                    f"cache_dir {self._folder} cannot be written ({error.strerror or error}): "
                    "shards that are not in it are read where they are; make room or give another "
                    "folder",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _fetch_copy(self, remote: str, shard: ShardInfo) -> str | None:
        """Returns the path of a copy; None where there is no room, or few files can be opened."""
        entry = self._folder / f"{shard.crc32c:08x}-{shard.file_bytes}.shard"
        with self._alone() as lock:
            if _is_held(entry):
                return str(entry)
            if _few_left(lock):
                return None
            if _hold(entry, shard):
                return str(entry)
            if entry.is_dir():
                return None  # none of ours
            if not self._make_room(shard.file_bytes):
                return None
            part = self._folder / f"{uuid.uuid4().hex}.part"
            target = part.open("wb")
            fcntl.flock(target, fcntl.LOCK_SH)
            target.truncate(shard.file_bytes)  # counts as used from now on
        try:
            with target:  # whose lock keeps the copy from being removed until it has its name
                _copy(remote, target, shard)
                target.flush()
                with self._alone():
                    if not _hold(entry, shard):  # another process may have been faster
                        _set_times(part, shard)
                        part.rename(entry)
                        _hold(entry, shard)
        finally:
            with self._alone():
                part.unlink(missing_ok=True)
        return str(entry)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        """Keeps other threads and processes from changing the folder; gives a descriptor."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        lock = os.open(self._folder / _LOCK, flags, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def _make_room(self, wanted: int) -> bool:
        """Removes entries that no process holds until there is room; returns whether there is."""
        entries = [
            (path, status)
            for path in self._folder.iterdir()
            if path.suffix in (".shard", ".part") and stat.S_ISREG((status := path.lstat()).st_mode)
        ]
        used = sum(status.st_size for _, status in entries)
        if wanted > self._limit:
            return False
        for path, status in sorted(entries, key=lambda entry: entry[1].st_atime):
            if used + wanted <= self._limit:
                break
            if _remove(path):
                used -= status.st_size
        return used + wanted <= self._limit


def _few_left(descriptor: int) -> bool:
    """Returns whether half of the files that may be open are: the rest is for those who read."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 <= most // 2 <= descriptor


def _is_held(entry: Path) -> bool:
    """Returns whether this process holds an entry; lets go of one that was changed or removed."""
    descriptor = _held.get(entry.absolute())
    if descriptor is None:
        return False
    held = os.fstat(descriptor)
    with contextlib.suppress(OSError):
        status = entry.lstat()
        if os.path.samestat(status, held) and status.st_mtime_ns == _times[entry.absolute()]:
            os.utime(entry, ns=(time.time_ns(), status.st_mtime_ns))
            return True
    os.close(_held.pop(entry.absolute()))
    return False


def _hold(entry: Path, shard: ShardInfo) -> bool:
    """Holds an entry until this process ends; returns whether it is there, and right.

    One that is wrong is removed, unless it is a folder.
    """
    if _is_held(entry):
        return True
    try:
        descriptor = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        entry.unlink()  # a link, or a socket
        return False
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and (
            (status.st_size, status.st_mtime_ns) == (shard.file_bytes, _stamp(shard))
            or has_checksum(str(entry), shard.file_bytes, shard.crc32c)
        ):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            with contextlib.suppress(PermissionError):  # of another user: it is read all the same
                _set_times(entry, shard)
            _times[entry.absolute()] = os.fstat(descriptor).st_mtime_ns
            _held[entry.absolute()] = descriptor
            return True
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    if not stat.S_ISDIR(status.st_mode):
        entry.unlink()
    return False


def _stamp(shard: ShardInfo) -> int:
    """Returns the modification time of a copy that was checked, in ns since 1970: a past one."""
    return shard.crc32c % _STAMP_SECONDS * 1_000_000_000 + shard.file_bytes % 999_999_999 + 1


def _set_times(entry: Path, shard: ShardInfo) -> None:
    """Marks a checked copy as used now."""
    os.utime(entry, ns=(time.time_ns(), _stamp(shard)))


def _remove(entry: Path) -> bool:
    """Removes an entry, or the file of a dead process, unless a process holds it."""
    with entry.open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        entry.unlink()
        return True


def _copy(remote: str, target: IO[bytes], shard: ShardInfo) -> None:
    """Copies a shard and checks it against the manifest."""
    import google_crc32c

    checksum = google_crc32c.Checksum()
    size = 0
    for chunk in _chunks(remote):
        checksum.update(chunk)
        size += len(chunk)
        target.write(chunk)
    crc32c = int.from_bytes(checksum.digest(), "big")
    if (size, crc32c) != (shard.file_bytes, shard.crc32c):
        raise RunError(
            f"{remote} must have the {shard.file_bytes} bytes and crc32c {shard.crc32c:08x} of the "
            f"manifest, and has {size} bytes and {crc32c:08x}; copy the dataset again"
        )


def _chunks(remote: str) -> Iterator[bytes]:
    """Yields the bytes of a shard."""
    import tensorflow as tf

    try:
        with (
            open_regular(remote) if is_local(remote) else tf.io.gfile.GFile(remote, "rb")
        ) as source:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk
    except (OSError, tf.errors.OpError) as error:
        if os.strerror(errno.EMFILE) in str(error):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), remote) from error
        raise RunError(f"{remote} could not be copied to the cache: {error}") from error
