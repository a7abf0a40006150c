"""Notices shards that are not, or no longer, those of the dataset that a reader opened.

At opening sizes are compared with the manifest, and shards of one size with each other. Each window
then looks whether its shards were written to, before and after it reads them: a few microseconds a
shard. A dataset that is not on a local disk is looked at once a minute.
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from recordmill.reader.dataset import FinishedDataset
from recordmill.reader.shard_files import Stamp, has_checksum, is_local
from recordmill.records.errors import UsageError
from recordmill.records.manifest import MANIFEST_PATH, ShardInfo
from recordmill.records.regular_files import odd_kind, opened_regular

_REMOTE_SECONDS = 60.0  # between two looks at a remote dataset, each of which is a request
_END_BYTES = 64
_THREADS = 16
_OPEN_ANEW = "open the reader anew, on a dataset that stays as it is"


class ShardGuard:
    """What a reader's shards were when it opened them.

    Attributes:
      folder: of their dataset.
    """

    def __init__(
        self,
        dataset: FinishedDataset,
        shards: Sequence[ShardInfo],
        paths: Sequence[str],
        *,
        check_sizes: bool = True,
    ) -> None:
        """Looks at the shards for the first time.

        Args:
          dataset: that they are of.
          shards: by the manifest.
          paths: of each, or of its copy.
          check_sizes: refuse shards of another size; False where broken records are left out.

        Raises:
          UsageError: a shard is missing, has not the size of the manifest, or holds the content of
            another one.
        """
        self.folder = dataset.path
        self._shards = shards
        self._paths = paths
        with ThreadPoolExecutor(_THREADS) as pool:
            self._stamps = list(pool.map(_stamp, paths))
        if check_sizes:
            self._check_sizes()
            self._check_copies()
        self._manifest = ""
        self._manifest_stamp: Stamp | None = None
        if None in self._stamps:
            self._manifest = dataset.file(MANIFEST_PATH)
            self._manifest_stamp = _remote_stamp(self._manifest)
        self._looked = time.monotonic()

    def _check_sizes(self) -> None:
        for shard, path, stamp in zip(self._shards, self._paths, self._stamps, strict=True):
            if stamp and stamp.size != shard.file_bytes:
                raise UsageError(
                    f"{path} must have {shard.file_bytes} bytes by the manifest, and has "
                    f"{stamp.size}; copy the shard again, or read what is whole by "
                    "on_error='skip_record'"
                )

    def _check_copies(self) -> None:
        """Refuses a shard that was copied over another: both have one size, beginning and end."""
        by_size = defaultdict(set)
        for shard in self._shards:
            by_size[shard.file_bytes].add(shard.crc32c)
        alike = defaultdict(list)
        for number, (shard, stamp) in enumerate(zip(self._shards, self._stamps, strict=True)):
            if stamp and shard.file_bytes and len(by_size[shard.file_bytes]) > 1:
                alike[_ends(self._paths[number], shard.file_bytes)].append(number)
        for numbers in alike.values():
            if len({self._shards[number].crc32c for number in numbers}) < 2:
                continue
            for number in numbers:
                shard = self._shards[number]
                if not has_checksum(self._paths[number], shard.file_bytes, shard.crc32c):
                    raise UsageError(
                        f"{self._paths[number]} must have the content that the manifest describes, "
                        "and has that of another shard of its size; copy the shard again, and "
                        "check the dataset with `recordmill verify`"
                    )

    def problem_of(self, shards: Iterable[int]) -> str:
        """Returns what has happened to some shards since they were opened, "" for nothing."""
        for shard in shards:
            path, stamp = self._paths[shard], self._stamps[shard]
            if stamp is None:
                continue
            try:
                status = os.stat(path)
            except OSError as error:
                return _gone(path, error)
            if Stamp.of(status) == stamp:
                continue
            info = self._shards[shard]
            try:
                same = stat.S_ISREG(status.st_mode) and has_checksum(
                    path, info.file_bytes, info.crc32c
                )
            except OSError as error:
                return _gone(path, error)
            if not same:
                return (
                    f"{path} must not change while a reader is open, and it has; another dataset "
                    f"may have been written in its place: {_OPEN_ANEW}"
                )
            self._stamps[shard] = Stamp.of(status)  # the same bytes, written again
        return self._problem_of_remote()

    def _problem_of_remote(self) -> str:
        if not self._manifest or time.monotonic() - self._looked < _REMOTE_SECONDS:
            return ""
        self._looked = time.monotonic()
        if _remote_stamp(self._manifest) == self._manifest_stamp:
            return ""
        return (
            f"{self._manifest} must not change while a reader is open, and it has; another dataset "
            f"may have been written in its place: {_OPEN_ANEW}"
        )


def _gone(path: str, error: OSError) -> str:
    reason = error.strerror or str(error)
    return (
        f"{path} must be there as long as a reader is open, and cannot be read ({reason}); put the "
        f"dataset back, or {_OPEN_ANEW}"
    )


def _stamp(path: str) -> Stamp | None:
    """Returns the stamp of a local file, None of a remote one.

    Raises:
      UsageError: there is none, or it is no regular file.
    """
    if not is_local(path):
        return None
    try:
        status = os.stat(path)
    except OSError as error:
        raise UsageError(_gone(path, error)) from error
    if not stat.S_ISREG(status.st_mode) or odd_kind(status):
        raise UsageError(f"a shard must be a regular file, and {path} is none; copy it again")
    return Stamp.of(status)


def _remote_stamp(path: str) -> Stamp | None:
    import tensorflow as tf

    try:
        status = tf.io.gfile.stat(path)
    except tf.errors.OpError:
        return None
    return Stamp(int(status.length), int(status.mtime_nsec))


def _ends(path: str, size: int) -> tuple[int, bytes, bytes]:
    with opened_regular(path) as descriptor:
        first = os.pread(descriptor, _END_BYTES, 0)
        last = os.pread(descriptor, _END_BYTES, max(0, size - _END_BYTES))
    return size, first, last
