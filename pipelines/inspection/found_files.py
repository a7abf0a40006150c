"""Which files of records a path names: those of a dataset of ours, or TFRecords of other tools.

What a user should know of files that are missing, damaged or left out is in `problems`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain

from recordmill.pipelines.inspection.record_files import RecordFile, RecordFiles, unreadable
from recordmill.pipelines.job_request import TEMPORARY
from recordmill.reader.framing import record_length
from recordmill.records.errors import RunError, UsageError
from recordmill.records.manifest import MANIFEST_PATH, SUCCESS_PATH, Manifest
from recordmill.records.manifest_checks import count_type_defects, shard_defects
from recordmill.records.regular_files import NotRegularError
from recordmill.records.schema import Schema
from recordmill.records.state import FormatError
from recordmill.transforms.dataset.run_state import MARKER
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import Finder

_GZIP = b"\x1f\x8b"
_SPLIT_IN_NAME = re.compile(
    r"(?:^|[-_./])(train|validation|valid|val|eval|dev|test)(?=[-_./0-9]|$)"
)
_SPLITS = {"valid": "validation", "val": "validation", "dev": "validation"}
# Names that promise TFRecords: x.tfrecord, x.tfrecords.gz, x.tfrecord-00000-of-00002, x.record, and
# train-00000-of-00002, but not x.json-00000-of-00002.
_NAMED = re.compile(
    r"\.tfrec(ord)?s?([-.]\d+-of-\d+)?(\.(gz|gzip|zlib|z))?$|\.records?$|^[^.]*-\d{3,}-of-\d{3,}$",
    re.IGNORECASE,
)


def open_records(path: str) -> RecordFiles:
    """Returns the records of a dataset of ours, of a folder of TFRecords, a file or a glob.

    Raises:
      UsageError: there are none, or they may not be read.
      RunError: it is a dataset of ours whose first run has not finished.
    """
    if not path:
        raise UsageError(
            "DIR must be a dataset's folder, or a folder, file or glob of TFRecords, got ''"
        )
    manifest_path = files.join(path, MANIFEST_PATH)
    if any(sign in path for sign in "*?["):
        return _others(path)
    try:
        content = files.read_bytes(manifest_path)
    except OSError as error:
        # A link that leads to itself is there, though nothing is behind it.
        if not isinstance(error, NotRegularError) and not files.exists(manifest_path):
            return _others(path)
        raise unreadable(manifest_path, error) from error
    return _dataset(path.rstrip("/"), content)


def check_whole(dataset: RecordFiles) -> None:
    """Checks that no file of a dataset is missing, cut or damaged, as far as was looked.

    Raises:
      RunError: one is; names the first one.
    """
    if dataset.problems:
        more = len(dataset.problems) - 1
        raise RunError(dataset.problems[0] + (f" (and {more:,} more like it)" if more else ""))


def _dataset(path: str, content: bytes) -> RecordFiles:
    try:
        manifest = Manifest.from_bytes(content)
        Schema.from_json(manifest.features)
        if defect := next(chain(shard_defects(manifest), count_type_defects(manifest)), ""):
            raise FormatError(defect)
    except ValueError as error:
        raise UsageError(
            f"{files.join(path, MANIFEST_PATH)} cannot be used: {error}; see what is broken with "
            "`recordmill verify`"
        ) from error
    splits = {
        name: tuple(
            RecordFile(
                files.join(path, shard.name.path),
                manifest.compression,
                shard.file_bytes,
                shard.records,
                files.join(path, shard.name.index_path),
                shard.record_bytes,
            )
            for shard in shards
        )
        for name, shards in manifest.split_shards().items()
    }
    finished = files.exists(files.join(path, SUCCESS_PATH))
    problems = tuple(_missing([file for split in splits.values() for file in split]))
    return RecordFiles(path, splits, manifest, finished, problems)


def _missing(shards: list[RecordFile]) -> Iterator[str]:
    """Yields a line for each shard that is not there or has another size, or has no index."""
    indexes = [file.index for file in shards if not file.compression]
    sizes = files.sizes([*(file.path for file in shards), *indexes])
    hint = "see what else is broken with `recordmill verify`"
    for file in shards:
        found = sizes[file.path]
        if found < 0:
            yield f"{file.path} is missing; {hint}"
        elif found != file.file_bytes:
            yield (
                f"{file.path} must have {file.file_bytes:,} bytes, as the manifest says, and has "
                f"{found:,}; {hint}"
            )
    for path in indexes:
        if sizes[path] < 0:
            yield f"{path}, the index of a shard, is missing; {hint}"


def _others(path: str) -> RecordFiles:
    found, problems = _without_unfinished(path, _paths(path))
    splits: dict[str, list[RecordFile]] = {}
    empty = []
    for name, size in sorted(found.items()):
        promised = _NAMED.search(name.rpartition("/")[2])
        try:
            compression = _compression(name, size)
        except OSError as error:
            problems.append(f"{name} cannot be read: {(error.strerror or str(error)).lower()}")
            continue
        if compression is None and promised and not size:
            empty.append(f"{name} has 0 bytes")
            compression = ""
        if compression is not None:
            splits.setdefault(_split_of(name), []).append(RecordFile(name, compression, size))
        elif promised:
            problems.append(
                f"{name} is TFRecords by its name, and does not begin as one: it is damaged, or "
                "something else"
            )
    if not any(file.file_bytes for split in splits.values() for file in split):
        known = [*problems, *empty]
        raise UsageError(
            f"{path} must be a dataset's folder, or a folder, file or glob of TFRecords, and "
            + (f"none of its {len(found)} files has TFRecords" if found else "there is no file")
            + (f": {known[0]}" if known else "")
        )
    return RecordFiles(
        path,
        {name: tuple(some) for name, some in sorted(splits.items())},
        problems=tuple(problems),
        empty=tuple(empty),
    )


def _without_unfinished(path: str, found: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """Returns the files that are of no unfinished dataset of ours, and a line for each such one.

    Raises:
      RunError: the path is one, or there is nothing else.
    """

    @cache
    def of_ours(temporary: str) -> bool:
        return files.exists(files.join(temporary, MARKER))

    unfinished = dict.fromkeys(
        temporary[: -len(TEMPORARY)]
        for name in found
        for temporary in _temporary_folders(name)
        if of_ours(temporary)
    )
    kept = {
        name: size
        for name, size in found.items()
        if not any(name.startswith(folder) for folder in unfinished)
    }
    lines = [
        f"{folder.rstrip('/') or folder or '.'} is not finished: run its command again"
        for folder in unfinished
    ]
    if lines and (not kept or path.rstrip("/") + "/" in unfinished):
        raise RunError(lines[0])
    return kept, lines


def _temporary_folders(name: str) -> list[str]:
    """Returns the folders above a file that have the name of ours for temporary files."""
    parts = name.split("/")
    return ["/".join(parts[: i + 1]) for i, part in enumerate(parts[:-1]) if part == TEMPORARY]


def _paths(path: str) -> dict[str, int]:
    """Returns path -> size of the files that a path names.

    Raises:
      UsageError: a folder may not be read, or it is no regular file.
    """
    folder = path.rstrip("/") or path
    try:
        inside = _local_files(folder) if files.is_local(path) else files.list_files(folder)
        if inside:
            return {name: n for name, n in inside.items() if "/." not in name[len(folder) :]}
        found = {file.path: file.size for file in Finder().find(path)}
        if not found and files.is_local(path):
            with suppress(FileNotFoundError, NotADirectoryError):
                os.stat(path)  # a folder above that may not be read
    except NotRegularError as error:
        raise UsageError(f"{path} is {error.strerror}") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{error.filename or path} cannot be read: {reason}") from error
    return {name: size for name, size in found.items() if size >= 0}  # links to nothing, fifos


def _local_files(folder: str) -> dict[str, int]:
    found: dict[str, int] = {}
    if not os.path.isdir(folder):
        return found
    for root, _, names in os.walk(folder, onerror=_raise):
        for name in names:
            path = f"{root}/{name}"
            if os.path.exists(path) and stat.S_ISREG((status := os.stat(path)).st_mode):
                found[path] = status.st_size
    return found


def _raise(error: OSError) -> None:
    raise error


def _split_of(name: str) -> str:
    """Returns the split that a file's name says, or else that of its folder; else "all"."""
    for part in reversed(name.split("/")[-2:]):
        named = _SPLIT_IN_NAME.search(part)
        if named:
            return _SPLITS.get(named[1], named[1])
    return "all"


def _compression(path: str, size: int) -> str | None:
    """Returns the compression of a file of TFRecords by its first bytes, None where it has none."""
    start = files.read_bytes(path, 0, 12) if size else b""
    if start.startswith(_GZIP):
        return "GZIP"
    if len(start) == 12:
        try:
            return "" if record_length(start) <= size else None
        except ValueError:
            zlib_header = start[0] & 15 == 8 and int.from_bytes(start[:2], "big") % 31 == 0
            return "ZLIB" if zlib_header else None
    return None
