"""Google Cloud Storage for `files`: few requests, little memory, and retries.

Beam's own file system makes a client, and with it a connection, for every call. It reads 16 MiB
even if the caller needs a few bytes. It lists before it deletes, file by file, and it fails if a
batch gets no response. Here a process has one client, a read requests its own range, a hundred
deletes or renames are one request, and every request is retried while its error may pass.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import IO, Any, TypeVar

from recordmill.records.errors import UsageError
from recordmill.transforms.storage import beam_storage_internals as compat
from recordmill.transforms.storage.storage_errors import reporting, why

WRITE_BYTES = 1 << 23  # the buffer of a writer, which is sent as one request
MOST_AHEAD_BYTES = 1 << 22  # the largest buffer of a reader
_LEAST_AHEAD_BYTES = 1 << 18
_SILENT_SECONDS = 10.0
_BATCH = 100  # the most requests that the service accepts in one batch
_MIME = "application/octet-stream"

Item = TypeVar("Item")

_clients: dict[int, Any] = {}


@dataclass
class Patience:
    """How long a request may take, and how long it is repeated while its failure may pass, in
    seconds.

    Attributes:
      request: without a byte of an answer; then the request has failed, and may be repeated.
      first, most: the mean pause doubles from half of the first to half of the longest.
      total: after that the failure is reported.
    """

    first: float = 1.0
    most: float = 60.0
    total: float = 300.0
    request: float = 60.0


patience = Patience()


def _client() -> Any:
    """Returns the client of this process. Threads can share a client; a forked process cannot.

    Raises:
      UsageError: Google's libraries are not installed.
    """
    process = os.getpid()
    if process not in _clients:
        try:
            from apache_beam.io.gcp.gcsio import create_storage_client
        except ImportError as error:
            raise UsageError("gs:// needs Google's libraries; install recordmill[gcp]") from error
        from apache_beam.options.pipeline_options import PipelineOptions

        # Beam looks for an account, and logs a traceback of each try.
        logging.getLogger("apache_beam.utils.retry").setLevel(logging.ERROR)
        # These are the options that Beam's own file system gets.
        options = compat.beam_options() or PipelineOptions()
        _clients.clear()
        _clients[process] = create_storage_client(options)
    return _clients[process]


def close_clients() -> None:
    """Closes the clients of this process; the next request makes a new one."""
    while _clients:
        _clients.popitem()[1].close()


def _retry() -> Any:
    from google.api_core.retry import Retry

    first, last, reported = 0.0, -1e9, False

    def report(error: BaseException) -> None:
        nonlocal first, last, reported
        now = time.monotonic()
        if now - last > 2 * patience.most:  # longer than any pause, so this is another fault
            first, reported = now, False
        last = now
        if not reported and now - first > _SILENT_SECONDS:
            reported = True
            print(
                f"gs:// does not answer ({why(error)}); trying for {patience.total:.0f} s",
                file=sys.stderr,
            )

    return Retry(
        predicate=compat.may_pass(),
        initial=patience.first,
        maximum=patience.most,
        timeout=patience.total,
        on_error=report,
    )


def _names(path: str) -> tuple[str, str]:
    """Returns the names of the bucket and of the object."""
    bucket, _, name = path[len("gs://") :].partition("/")
    return bucket, name


def _blob(path: str) -> Any:
    bucket, name = _names(path)
    return _client().bucket(bucket).blob(name)


def _find(path: str) -> Any:
    """Returns the metadata of an object, None if it does not exist."""
    bucket, name = _names(path)
    return (
        _client().bucket(bucket).get_blob(name, retry=_retry(), timeout=patience.request)
        if name
        else None
    )


def _download(blob: Any, begin: int, size: int, generation: int | None = None) -> bytes:
    """Returns `size` bytes, fewer at the end of the object; -1 means all the rest.

    If a response is cut short, Google's library requests the missing bytes.
    """
    from google.api_core.exceptions import RequestRangeNotSatisfiable

    whole = not begin and size < 0
    try:
        data: bytes = blob.download_as_bytes(
            start=begin or None,
            end=begin + size - 1 if size >= 0 else None,
            raw_download=True,  # the stored bytes, whatever their Content-Encoding
            checksum="auto" if whole else None,
            if_generation_match=generation,
            retry=_retry(),
            timeout=patience.request,
        )
    except RequestRangeNotSatisfiable:
        return b""
    return data


class _ObjectReader(io.BufferedIOBase):
    """An object as a stream, with a buffer that doubles while the object is read in order.

    After a jump the buffer is small again. So members of an archive, in any order, cost about their
    own bytes, and a long text costs few requests.

    Raises:
      FileNotFoundError: the object does not exist.
    """

    def __init__(self, path: str) -> None:
        blob = _find(path)
        if blob is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._path = path
        self._generation = blob.generation  # so that bytes of a later version are not mixed in
        self._size = int(blob.size)
        self.stamp = self._size, int(blob.updated.timestamp() * 10**9) if blob.updated else 0
        self._at = 0
        self._ahead = _LEAST_AHEAD_BYTES
        self._held_at, self._held = 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        begin = self._at
        end = self._size if size is None or size < 0 else min(begin + size, self._size)
        if begin >= end:
            return b""
        if begin < self._held_at or end > self._held_at + len(self._held):
            self._fetch(begin, end)
        self._at = end
        return self._held[begin - self._held_at : end - self._held_at]

    read1 = read

    def _fetch(self, begin: int, end: int) -> None:
        in_order = self._held_at <= begin <= self._held_at + len(self._held)
        known = self._held[begin - self._held_at :] if in_order else b""
        self._ahead = min(2 * self._ahead, MOST_AHEAD_BYTES) if in_order else _LEAST_AHEAD_BYTES
        start = begin + len(known)
        size = min(max(end - start, self._ahead), self._size - start)
        self._held = b""
        with reporting("read", self._path):
            data = _download(_blob(self._path), start, size, self._generation)
            if len(data) != size:
                raise EOFError(f"{len(data)} of {size} bytes came")
        self._held_at, self._held = begin, known + data

    def close(self) -> None:
        self._held = b""
        super().close()


@cache
def _writer_class() -> Any:
    from google.cloud.storage.fileio import BlobWriter

    class Writer(BlobWriter):
        """Ends once: the garbage collector also closes files, and would send failed bytes again."""

        _has_ended = False

        def close(self) -> None:
            if not self._has_ended:
                self._has_ended = True
                super().close()

        def terminate(self) -> None:
            self._has_ended = True
            super().terminate()

    return Writer


class GoogleStorage:
    """See `files.Storage`."""

    def open_read(self, path: str) -> IO[bytes]:
        """Opens an existing file as a stream that can seek.

        Raises:
          FileNotFoundError: the file does not exist.
        """
        return _ObjectReader(path)  # type: ignore[return-value]

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Returns `size` bytes, fewer at the end of the file; -1 means all the rest."""
        return _download(_blob(path), offset, size) if size else b""

    def create(self, path: str) -> IO[bytes]:
        """Opens a file for writing; it appears when it is closed, unless `terminate` was called."""
        handle: IO[bytes] = _writer_class()(
            _blob(path),
            chunk_size=WRITE_BYTES,
            ignore_flush=True,
            content_type=_MIME,
            retry=_retry(),
            timeout=patience.request,
        )
        return handle

    def write(self, path: str, data: bytes) -> None:
        """Writes a file, whole or not at all."""
        # One request with length and checksum: the object appears whole or not at all.
        _blob(path).upload_from_string(
            data, content_type=_MIME, retry=_retry(), timeout=patience.request
        )

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes, -1 if it does not exist."""
        blob = _find(path)
        return int(blob.size) if blob else -1

    def list_files(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yields the path and the size in bytes of every file below a folder."""
        bucket, prefix = _names(f"{folder.rstrip('/')}/")
        blobs = _client().list_blobs(
            bucket,
            prefix=prefix,
            fields="items(name,size),nextPageToken",
            retry=_retry(),
            timeout=patience.request,
        )
        for blob in blobs:
            yield f"gs://{bucket}/{blob.name}", int(blob.size)

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files; those that do not exist are skipped."""
        _in_batches(paths, _delete)

    def rename(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Renames files; existing targets are replaced.

        Raises:
          FileNotFoundError: neither a source nor its target exists.
        """
        missing = _in_batches(list(zip(sources, targets, strict=True)), _copy)
        for source, target in missing:
            # Another process may have renamed the file, or may be doing so.
            if self.size(target) < 0:
                raise FileNotFoundError(errno.ENOENT, "no such file", source)
        _in_batches(sources, _delete)


def _delete(path: str) -> None:
    bucket, name = _names(path)
    _client().bucket(bucket).delete_blob(name, timeout=patience.request)


def _copy(pair: tuple[str, str]) -> None:
    source, (bucket, name) = _blob(pair[0]), _names(pair[1])
    target = _client().bucket(bucket)
    source.bucket.copy_blob(source, target, name, timeout=patience.request)


def _in_batches(items: Sequence[Item], request: Callable[[Item], None]) -> list[Item]:
    """Makes a request for each item, a hundred at a time; returns the items that do not exist.

    A batch that failed in part is sent again as a whole: a copy and a delete may be repeated.
    """
    missing: list[Item] = []
    rest = iter(items)
    while group := list(islice(rest, _BATCH)):
        missing += _retry()(_send)(group, request)
    return missing


def _send(group: list[Item], request: Callable[[Item], None]) -> list[Item]:
    from google.cloud.exceptions import from_http_response

    with _client().batch(raise_exception=False) as batch:
        for item in group:
            request(item)
    missing = []
    for item, response in zip(group, compat.batch_responses(batch), strict=True):
        if response.status_code == 404:
            missing.append(item)
        elif response.status_code >= 400:
            raise from_http_response(response)
    return missing
