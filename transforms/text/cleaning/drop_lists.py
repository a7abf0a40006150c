"""Lists of the documents that a pipeline drops, `_meta/dropped/dropped-000000.jsonl.gz`.

Each bundle and each run file leaves lines of the documents that it drops, and of those that others
repeat, in order of the identity of the one that is kept. A list has a range of these identities of
all files: there a dropped document meets the name of the one that it repeats. Where the ranges are
cut follows from the size of all lines alone, so the lists are equal for any bundles.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from recordmill.records.errors import RunError
from recordmill.records.hashing import U64
from recordmill.records.state import Count, Uint32
from recordmill.transforms.dataset.bundles import runs_folder
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row, sort_rows
from recordmill.transforms.text.cleaning.dropped import DropList
from recordmill.transforms.text.cleaning.duplicates import PART_BYTES, part_count_for
from recordmill.transforms.text.cleaning.sorted_rows import read_rows, write_rows
from recordmill.transforms.text.text_job import TextJob

_DIGITS = 32  # of an identity
_REPEATED, _DROPPED = "0", "1"  # what a line tells of; in this order
_COLUMNS = 3
_REPEATS = ("duplicate", "near_duplicate")


class LinesFile(msgspec.Struct, frozen=True):
    """A file of lines.

    Attributes:
      name: of it.
      rows, size_bytes: its lines, and their bytes.
    """

    name: str
    rows: Count
    size_bytes: Count


class _ListIndex(msgspec.Struct, frozen=True):
    """The files of lines of all bundles, and into how many lists they go."""

    lines: list[LinesFile]
    parts: Count


class _ListState(msgspec.Struct, frozen=True):
    """A list that is written."""

    size_bytes: Count
    crc32c: Uint32


def name_line(identity: U64, description: Mapping[str, Any]) -> bytes:
    """Returns the line of a document: its identity, `[2] uint64`, and what tells of it."""
    first, second = identity.tolist()
    content = json.dumps(description, ensure_ascii=False)
    return f"{first:016x}{second:016x} {content}\n".encode()


def dropped_line(line: bytes, reason: str, kept: U64 | None = None) -> bytes:
    """Returns the line of a dropped document.

    Args:
      line: of it, as `name_line` returned it.
      reason: a key of `DROP_REASONS`.
      kept: the identity of the document that it repeats; None for none.
    """
    identity, content = _parse(line)
    tokens = content.pop("tokens", None)
    content["reason"] = reason
    if kept is None:
        content["tokens"] = tokens
    else:
        identity = "".join(f"{half:016x}" for half in kept.tolist())
    text = json.dumps(content, ensure_ascii=False)
    return f"{identity}{_DROPPED}{text}\n".encode()


def repeated_line(line: bytes) -> bytes:
    """Returns the line of a document that others repeat, of that of `name_line`."""
    identity, content = _parse(line)
    content.pop("tokens", None)
    return f"{identity}{_REPEATED}{json.dumps(content, ensure_ascii=False)}\n".encode()


def _parse(line: bytes) -> tuple[str, dict[str, Any]]:
    text = line.decode()
    return text[:_DIGITS], json.loads(text[_DIGITS:])


def write_lines(path: str, lines: list[bytes]) -> LinesFile:
    """Writes lines in order, and beside them where the lines of a range are."""
    lines.sort()
    ends = np.cumsum([len(line) for line in lines], dtype=np.int64).astype(np.uint64)
    begins = np.concatenate([np.zeros(1, np.uint64), ends[:-1]])
    firsts = np.array([int(line[: _DIGITS // 2], 16) for line in lines], np.uint64)
    files.write_bytes(path, b"".join(lines))
    write_rows(f"{path}.rows", np.column_stack([firsts, begins, ends]))
    return LinesFile(path.rpartition("/")[2], len(lines), int(ends[-1]))


class DropLists:
    """The lists of a job; what is done twice is the same.

    Args:
      job: the job.
    """

    def __init__(self, job: TextJob) -> None:
        self._job = job
        self._known: _ListIndex | None = None

    def _path(self, name: str) -> str:
        workspace = self._job.workspace
        return files.join(workspace.work, "drop-lists", workspace.token, name)

    def plan(self, lines: list[LinesFile], part_bytes: int = PART_BYTES) -> int:
        """Writes which files there are; returns into how many lists they go."""
        size = sum(each.size_bytes for each in lines)
        parts = part_count_for(size, part_bytes) if size else 0
        self._job.workspace.write_state(self._path("index.json"), _ListIndex(lines, parts))
        return parts

    def _index(self) -> _ListIndex:
        if self._known is None:
            path = self._path("index.json")
            self._known = self._job.workspace.need_state(path, _ListIndex)
        return self._known

    def write(self, part: int) -> None:
        """Writes a list.

        Memory: a bounded number of lines, and those of its range in one file.

        Raises:
          RunError: a file is missing or cut.
        """
        parts = self._index().parts
        low, high = (part << 64) // parts, ((part + 1) << 64) // parts - 1
        with DropList(listed=True) as out:
            kept, described = "", {}
            for key, _, _ in sort_rows(self._rows(low, high)):
                content = json.loads(key[_DIGITS + 1 :])
                if key[_DIGITS] == _REPEATED:
                    kept, described = key[:_DIGITS], content
                    continue
                if content["reason"] in _REPEATS:
                    if kept != key[:_DIGITS]:
                        raise RunError(
                            "a file of names of documents is cut; run the pipeline again"
                        )
                    content["duplicate_of"] = described
                out.add_line(content)
            size, crc32c = out.write(self._job.workspace, part)
        state = _ListState(size, crc32c)
        self._job.workspace.write_state(self._path(f"list-{part:06d}.json"), state)

    def _rows(self, low: int, high: int) -> Iterator[Row]:
        """Yields the lines of a range."""
        for each in self._index().lines:
            path = files.join(runs_folder(self._job), each.name)
            rows = read_rows(f"{path}.rows", each.rows, _COLUMNS, low, high)
            if not len(rows):
                continue
            begin, size = int(rows[0, 1]), int(rows[-1, 2] - rows[0, 1])
            data = files.read_bytes(path, begin, size) if files.exists(path) else b""
            if len(data) != size:
                raise RunError(f"{path} is missing or cut; run the pipeline again")
            for line in data.split(b"\n")[:-1]:  # names may have U+2028 in them
                yield line.decode(), "", None

    def written(self) -> dict[int, tuple[int, int]]:
        """Returns list -> its bytes and crc32c, once all are written.

        Raises:
          RunError: the description of a list is missing.
        """
        found = {}
        for part in range(self._index().parts):
            path = self._path(f"list-{part:06d}.json")
            state = self._job.workspace.need_state(path, _ListState)
            if state.size_bytes:
                found[part] = (state.size_bytes, state.crc32c)
        return found
