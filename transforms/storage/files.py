"""Files on any storage, written whole or not at all.

A file appears under its name only by a rename of a finished and closed temporary file. So a killed
writer, or two writers of the same content at once, leave nothing that a reader could take for the
file. A small file goes to object storage as one request, which is as safe.

Remote files raise the errors of local ones: `FileNotFoundError`, `PermissionError`. Any other error
of a service is a `RunError` of one line.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import IO, Any, Protocol, TypeVar

import google_crc32c

from recordmill.records.errors import RunError
from recordmill.records.regular_files import open_regular
from recordmill.transforms.storage.storage_errors import reporting

_Result = TypeVar("_Result")
_WRITE_BYTES = 1 << 22
_REQUESTS_AT_ONCE = 16


class Storage(Protocol):
    """Remote files, by their whole paths."""

    def open_read(self, path: str) -> IO[bytes]:
        """Opens an existing file as a stream that can seek."""
        ...

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Returns `size` bytes, fewer at the end of the file; -1 means all the rest."""
        ...

    def create(self, path: str) -> IO[bytes]:
        """Opens a file for writing; a file that is not closed may appear cut short."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Writes a file, whole or not at all."""
        ...

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes, -1 if it does not exist."""
        ...

    def list_files(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yields the path and the size in bytes of every file below a folder."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files; those that do not exist are skipped."""
        ...

    def rename(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Renames files; existing targets are replaced."""
        ...


def _storage(path: str) -> Storage:
    # Late, because they load Beam: a second or more, which commands that look at local files lack.
    from recordmill.transforms.storage.beam_storage import BeamStorage
    from recordmill.transforms.storage.google_storage import GoogleStorage

    return GoogleStorage() if path.startswith("gs://") else BeamStorage(path)


def join(base: str, *parts: str) -> str:
    """Joins path parts with "/" on every file system."""
    return "/".join([base.rstrip("/") or "/", *parts]) if base != "/" else "/" + "/".join(parts)


def is_local(path: str) -> bool:
    """Returns whether `path` is on this machine's own file system."""
    return "://" not in path


def open_read(path: str, offset: int = 0) -> IO[bytes]:
    """Opens a file for reading its bytes as they are, from `offset` on.

    Raises:
      NotRegularError: it is a local fifo, device or the like; nothing blocks.
    """
    handle: IO[bytes]
    if is_local(path):
        handle = open_regular(path)
    else:
        with reporting("read", path):
            handle = _storage(path).open_read(path)
    if offset:
        handle.seek(offset)
    return handle


def stamp(handle: IO[bytes]) -> tuple[int, int]:
    """Returns the size of an open file and when it was last changed, in ns; 0 where unknown."""
    known: tuple[int, int] | None = getattr(handle, "stamp", None)
    if known is not None:
        return known
    try:
        status = os.fstat(handle.fileno())
    except (OSError, AttributeError):  # of a service
        at = handle.tell()
        size = handle.seek(0, os.SEEK_END)
        handle.seek(at)
        return size, 0
    return status.st_size, status.st_mtime_ns


def read_bytes(path: str, offset: int = 0, size: int = -1) -> bytes:
    """Returns `size` bytes from `offset` on, fewer at the file's end; -1 means all the rest."""
    if not is_local(path):
        with reporting("read", path):
            return _storage(path).read(path, offset, size)
    with open_regular(path) as handle:
        handle.seek(offset)
        return handle.read(size)


def read_limited(path: str, most_bytes: int) -> bytes:
    """Returns a file that is small where it is what it should be.

    Raises:
      OSError: it is larger.
    """
    data = read_bytes(path, 0, most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes >> 20} MiB", path)
    return data


def read_many(paths: Iterable[str]) -> Iterator[bytes]:
    """Yields the contents of small files, in order; remote ones are asked for several at once."""
    yield from map_files(read_bytes, paths)


def map_files(function: Callable[[str], _Result], paths: Iterable[str]) -> Iterator[_Result]:
    """Yields what a function of a path returns, in order; for remote ones several at once."""
    rest = iter(paths)
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        while group := list(islice(rest, 16 * _REQUESTS_AT_ONCE)):
            yield from map(function, group) if is_local(group[0]) else pool.map(function, group)


@contextmanager
def writing(path: str, partial_folder: str = "", *, sync: bool = True) -> Iterator[IO[bytes]]:
    """Opens `path` for writing; it appears under its name when the block ends without an error.

    Until then it lies in `partial_folder`, or beside its final path.

    Args:
      path: of the file.
      partial_folder: on the same storage.
      sync: on this machine's disk it is there before it has its name. Without, a power loss may
        leave an empty or damaged file, which whoever reads it must notice.

    Raises:
      RunError: there is no space left, or the storage does not hold what was written.
    """
    folder, _, name = path.rpartition("/")
    make_folder(folder)
    make_folder(partial_folder)
    beside = partial_folder or folder
    temporary = f"{beside}/" * bool(beside) + f".{name}.{uuid.uuid4().hex[:12]}.tmp"
    try:
        if is_local(path):
            with open(temporary, "wb") as handle:
                yield handle
                if sync:
                    handle.flush()
                    os.fsync(handle.fileno())
        else:
            with _writing_remote(temporary, path) as handle:
                yield handle
        rename([temporary], [path])
    except BaseException as error:
        with suppress(RunError):
            delete_quietly([temporary])
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise RunError(
                f"no space left while writing {path}: free some, or write elsewhere, and run the "
                f"same command again ({error.strerror})"
            ) from error
        raise


@contextmanager
def _writing_remote(temporary: str, path: str) -> Iterator[IO[bytes]]:
    """Writes a temporary file that is as long, in the end, as what was written."""
    storage = _storage(path)
    handle = _RemoteWriter(storage.create, temporary, path)
    try:
        yield handle  # type: ignore[misc]
        handle.close()
    except BaseException:
        handle.drop()
        raise
    stored = size(temporary)
    if stored != handle.written:
        raise RunError(
            f"{temporary} has {stored} bytes where {handle.written} were written; check the "
            "storage and run the same command again"
        )


class _RemoteWriter:
    """A remote file being written: counts the bytes, and every failure is a RunError."""

    def __init__(self, create: Callable[[str], Any], temporary: str, path: str) -> None:
        self._path = path
        self.written = 0
        with self._one_line():
            self._handle = create(temporary)

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        try:
            with reporting("written", self._path):
                yield
        except (FileNotFoundError, PermissionError) as error:
            raise RunError(f"{self._path} cannot be written: {error.strerror}") from error

    def write(self, data: bytes) -> int:
        with self._one_line():
            self._handle.write(data)
        self.written += len(data)
        return len(data)

    def flush(self) -> None:
        """Does nothing: a remote file is there when it is closed."""

    def close(self) -> None:
        with self._one_line():
            self._handle.close()

    def drop(self) -> None:
        """Ends writing; an aborted write leaves nothing, where the storage can abort one."""
        with suppress(Exception):
            getattr(self._handle, "terminate", self._handle.close)()


def write_bytes(path: str, data: bytes, partial_folder: str = "") -> None:
    """Writes a whole file."""
    if not is_local(path):
        with reporting("written", path):
            _storage(path).write(path, data)
        return
    with writing(path, partial_folder) as handle:
        handle.write(data)


def checksum(path: str) -> int:
    """Returns the crc32c of a file."""
    found = 0
    with open_read(path) as handle:
        while block := handle.read(_WRITE_BYTES):
            found = google_crc32c.extend(found, block)
    return found


def make_folder(path: str) -> None:
    """Creates a folder and its parents where the file system has folders."""
    if path and is_local(path):
        os.makedirs(path, exist_ok=True)


def sync_folders(paths: Iterable[str]) -> None:
    """Makes renames in folders of this machine survive a power loss, where they can be read."""
    for path in dict.fromkeys(paths):
        if is_local(path) and os.path.isdir(path) and os.access(path, os.R_OK):
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def rename(sources: list[str], targets: list[str]) -> None:
    """Renames files of one storage; an existing target is replaced.

    Raises:
      RunError: names the storage's reason.
    """
    try:
        if is_local(sources[0]):
            for source, target in zip(sources, targets, strict=True):
                os.rename(source, target)
        else:
            with reporting(f"renamed to {targets[0]}", sources[0]):
                _storage(sources[0]).rename(sources, targets)
    except RunError:
        raise
    except Exception as error:
        reasons = getattr(error, "exception_details", None)
        why = next(iter(reasons.values())) if reasons else error
        raise RunError(
            f"cannot rename {sources[0]} to {targets[0]}: {why}; fix that and run the same "
            "command again"
        ) from error


def exists(path: str) -> bool:
    """Returns whether a file exists, or on this machine a folder."""
    return os.path.exists(path) if is_local(path) else size(path) >= 0


def size(path: str) -> int:
    """Returns the size of a file in bytes, -1 if it does not exist or is no regular file."""
    if is_local(path):
        return os.path.getsize(path) if os.path.isfile(path) else -1
    with reporting("read", path):
        return _storage(path).size(path)


def sizes(paths: Iterable[str]) -> dict[str, int]:
    """Returns the size of each file in bytes, -1 if it does not exist; lists each folder once."""
    result: dict[str, int] = {}
    listed: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        if is_local(path):
            result[path] = size(path)
            continue
        if folder not in listed:
            listed.add(folder)
            result = list_files(folder) | result
        result.setdefault(path, -1)
    return result


def delete_quietly(paths: Iterable[str]) -> None:
    """Deletes files; those that do not exist are skipped."""
    remote: list[str] = []
    for path in paths:
        if not is_local(path):
            remote.append(path)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):  # another may do the same
                os.remove(path)
    if remote:
        with reporting("deleted", remote[0]):
            _storage(remote[0]).delete(remote)


def list_files(folder: str) -> dict[str, int]:
    """Returns path -> size of every file below `folder`, as `size`; {} if there is no folder."""
    if is_local(folder):
        return {
            f"{root}/{name}": size(f"{root}/{name}")
            for root, _, names in os.walk(folder)
            for name in names
        }
    with reporting("listed", folder):
        return dict(_storage(folder).list_files(folder))


def count(folder: str, extension: str) -> int:
    """Returns the number of files below `folder` with that extension."""
    return sum(path.endswith(extension) for path in list_files(folder))


def delete_folder(folder: str, *, last: str = "") -> None:
    """Deletes a folder with all that is in it; links are deleted, and not followed.

    Args:
      folder: it may be missing.
      last: a file directly in it that stays until everything else is deleted.
    """
    if not is_local(folder):
        delete_quietly(path for path in list_files(folder) if path != last)
        delete_quietly([last] if last else [])
        return
    if last and os.path.isdir(folder) and not os.path.islink(folder):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.path != last:
                delete_quietly([entry.path])
    shutil.rmtree(folder, ignore_errors=True)
