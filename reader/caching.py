"""Copies of remote shards on a local disk, with a size limit and the manifest's checksum.

An entry appears by a rename of a finished, checked copy, so that several processes may fill one
folder. A process holds a shared lock on the entries that it reads until it ends; whoever needs
room removes entries that no process holds, the longest unused first. Shards for which there is no
room are read from their own storage: a cache smaller than an epoch keeps a part of it, and never
thrashes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from recordmill.reader.dataset import FinishedDataset
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import ShardInfo

_CHUNK_BYTES = 1 << 22
_LOCK = ".lock"
_held: dict[Path, int] = {}  # entry -> file descriptor, open until the process ends


class ShardCache:
    """A folder of copies of shards, each named after its checksum and size."""

    def __init__(self, folder: str, limit_bytes: int) -> None:
        """Opens the folder, and makes it where there is none.

        Raises:
          UsageError: the limit is not positive, or the folder cannot be made.
        """
        if limit_bytes < 1:
            raise UsageError(f"cache_bytes must be 1 or more, got {limit_bytes}")
        self._folder = Path(folder)
        self._limit = limit_bytes
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cache_dir must be a folder, {folder} cannot be: {error}") from error

    def fetch(self, dataset: FinishedDataset, shards: Sequence[ShardInfo]) -> list[str]:
        """Returns a path for each shard: of its copy, or of itself where there is no room.

        Raises:
          RunError: a shard has not the size or checksum of the manifest.
        """
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda shard: self._fetch(dataset, shard), shards))

    def _fetch(self, dataset: FinishedDataset, shard: ShardInfo) -> str:
        remote = dataset.file(shard.name.path)
        try:
            return self._fetch_copy(remote, shard) or remote
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            return remote

    def _fetch_copy(self, remote: str, shard: ShardInfo) -> str | None:
        """Returns the path of a copy; None where there is no room, or few files can be opened."""
        entry = self._folder / f"{shard.crc32c:08x}-{shard.file_bytes}.shard"
        with self._alone() as lock:
            if _is_held(entry):
                return str(entry)
            if _few_left(lock):
                return None
            if _hold(entry):
                return str(entry)
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
                    if not _hold(entry):  # another process may have been faster
                        part.rename(entry)
                        _hold(entry)
        finally:
            with self._alone():
                part.unlink(missing_ok=True)
        return str(entry)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        """Keeps other threads and processes from changing the folder; gives a descriptor."""
        with (self._folder / _LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock.fileno()

    def _make_room(self, wanted: int) -> bool:
        """Removes entries that no process holds until there is room; returns whether there is."""
        entries = [(path, path.stat()) for path in self._folder.iterdir() if path.name != _LOCK]
        used = sum(stat.st_size for _, stat in entries)
        if wanted > self._limit:
            return False
        for path, stat in sorted(entries, key=lambda entry: entry[1].st_mtime):
            if used + wanted <= self._limit:
                break
            if _remove(path):
                used -= stat.st_size
        return used + wanted <= self._limit


def _few_left(descriptor: int) -> bool:
    """Returns whether half of the files that may be open are: the rest is for those who read."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 <= most // 2 <= descriptor


def _is_held(entry: Path) -> bool:
    """Returns whether this process holds an entry; lets go of one that has been removed."""
    descriptor = _held.get(entry.absolute())
    if descriptor is None:
        return False
    if entry.exists() and os.path.samestat(entry.stat(), os.fstat(descriptor)):
        os.utime(entry)
        return True
    os.close(_held.pop(entry.absolute()))
    return False


def _hold(entry: Path) -> bool:
    """Holds an entry until this process ends; returns whether it is there."""
    if _is_held(entry):
        return True
    try:
        descriptor = os.open(entry, os.O_RDONLY)
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    _held[entry.absolute()] = descriptor
    os.utime(entry)
    return True


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
    import tensorflow as tf

    checksum = google_crc32c.Checksum()
    size = 0
    try:
        with tf.io.gfile.GFile(remote, "rb") as source:
            while chunk := source.read(_CHUNK_BYTES):
                checksum.update(chunk)
                size += len(chunk)
                target.write(chunk)
    except (OSError, tf.errors.OpError) as error:
        if os.strerror(errno.EMFILE) in str(error):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), remote) from error
        raise RunError(f"{remote} could not be copied to the cache: {error}") from error
    crc32c = int.from_bytes(checksum.digest(), "big")
    if (size, crc32c) != (shard.file_bytes, shard.crc32c):
        raise RunError(
            f"{remote} must have the {shard.file_bytes} bytes and crc32c {shard.crc32c:08x} of the "
            f"manifest, and has {size} bytes and {crc32c:08x}; copy the dataset again"
        )
