"""All other storage for `files`: S3, Azure, and whatever else Beam has a file system for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any
from uuid import uuid4

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.records.errors import UsageError
from recordmill.transforms.storage import beam_storage_internals as compat

_PLAIN = CompressionTypes.UNCOMPRESSED
_MIME = "application/octet-stream"


class BeamStorage:
    """See `files.Storage`."""

    def __init__(self, path: str) -> None:
        """Makes the storage that `path` names.

        Raises:
          UsageError: Beam has no file system for it here.
        """
        if compat.beam_options() is None:
            FileSystems.set_options(PipelineOptions())  # S3's takes none for an error
        try:
            FileSystems.get_filesystem(path)
        except ValueError as error:
            scheme = path.partition("://")[0]
            raise UsageError(
                f"{path}: there is no file system for {scheme}:// here; s3:// needs "
                "apache-beam[aws], azfs:// apache-beam[azure]"
            ) from error

    def open_read(self, path: str) -> IO[bytes]:
        """Opens an existing file as a stream that can seek."""
        handle: IO[bytes] = FileSystems.open(path, _MIME, _PLAIN)
        return handle

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Returns `size` bytes, fewer at the end of the file; -1 means all the rest."""
        with self.open_read(path) as handle:
            if offset:
                handle.seek(offset)
            data = handle.read(size)
            while len(data) < size and (more := handle.read(size - len(data))):
                data += more
            return data

    def create(self, path: str) -> IO[bytes]:
        """Opens a file for writing; a file that is not closed may appear cut short."""
        handle: IO[bytes] = FileSystems.create(path, _MIME, _PLAIN)
        return handle

    def write(self, path: str, data: bytes) -> None:
        """Writes a file, whole or not at all."""
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{uuid4().hex[:12]}.tmp"
        with self.create(temporary) as handle:
            handle.write(data)
        self.rename([temporary], [path])

    def size(self, path: str) -> int:
        """Returns the size of a file in bytes, -1 if it does not exist."""
        if not FileSystems.exists(path):
            return -1
        metadata: Any = FileSystems.get_filesystem(path).metadata(path)
        return int(metadata.size_in_bytes)

    def list_files(self, folder: str) -> Iterator[tuple[str, int]]:
        """Yields the path and the size in bytes of every file below a folder."""
        for item in FileSystems.match([f"{folder.rstrip('/')}/**"])[0].metadata_list:
            yield item.path, item.size_in_bytes

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files; those that do not exist are skipped."""
        present = [path for path in paths if FileSystems.exists(path)]
        if present:
            FileSystems.delete(present)

    def rename(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Renames files; existing targets are replaced."""
        FileSystems.rename(list(sources), list(targets))
