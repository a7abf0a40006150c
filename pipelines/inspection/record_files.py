"""The records of a dataset of ours, or of TFRecord files that another tool wrote, one by one.

Records of ours are found by the index. Files of others have none: their records are counted by
reading their lengths, and only as far as somebody asks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import IO, Any

import numpy as np

from recordmill.reader.framing import read_record, records_of, skip_records
from recordmill.reader.record_ranges import Ints, parse_index
from recordmill.records.errors import RunError, UsageError, one_of
from recordmill.records.manifest import Manifest
from recordmill.records.schema import Schema
from recordmill.records.state import FormatError, decode
from recordmill.transforms.storage import files

_MAX_RECORD_BYTES = 1 << 31
_MOST_FILES = 16  # of a split, that some records are read from


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of records.

    Attributes:
      path: of the file.
      compression: "", "GZIP" or "ZLIB".
      file_bytes: its size.
      records: the number of records, None where nobody has counted them.
      index: the path of its index, "" where there is none.
      record_bytes: of all records, framing included; 0 where there is no index.
    """

    path: str
    compression: str
    file_bytes: int
    records: int | None = None
    index: str = ""
    record_bytes: int = 0

    def read_from(self, first: int) -> Iterator[bytes]:
        """Yields the records from number `first` on.

        Raises:
          RunError: the file is damaged, or is no file of TFRecords.
        """
        number = first
        try:
            with files.open_read(self.path, self._offset(first)) as handle:
                stream: IO[bytes] | _Decompressed = handle
                most = self.file_bytes
                if self.compression:
                    stream, most = _Decompressed(handle, self.compression), _MAX_RECORD_BYTES
                    for _ in range(first):
                        if read_record(stream, most) is None:
                            return
                elif not self.index and skip_records(handle, first) < first:
                    return
                for record in records_of(stream, most):
                    yield record
                    number += 1
        except UsageError:  # the index; it says itself what is wrong
            raise
        except OSError as error:
            raise unreadable(self.path, error, of_ours=bool(self.index)) from error
        except (ValueError, EOFError, zlib.error) as error:
            raise self._broken(number, error) from error

    def read_some(self, positions: Sequence[int]) -> Iterator[bytes]:
        """Yields the records of some ascending numbers; with an index, reads nothing else.

        Raises:
          RunError: the file is damaged, or ends before.
        """
        if self.compression or not self.index or self.records is None:
            wanted = set(positions)
            for number, record in enumerate(islice(self.read_from(0), positions[-1] + 1)):
                if number in wanted:
                    yield record
            return
        offsets = self._offsets(self.records)
        number = -1
        try:
            with files.open_read(self.path) as handle:
                for number in positions:
                    handle.seek(int(offsets[number]))
                    found = read_record(handle, self.file_bytes)
                    if found is None:
                        raise ValueError("the file ends before it")
                    yield found
        except OSError as error:
            raise unreadable(self.path, error, of_ours=bool(self.index)) from error
        except ValueError as error:
            raise self._broken(number, error) from error

    def _broken(self, number: int, error: Exception) -> RunError:
        return RunError(
            f"{self.path}: record {number} cannot be read: {error}; copy the file again"
        )

    def _offsets(self, records: int) -> Ints:
        try:
            content = files.read_bytes(self.index)
        except OSError as error:
            raise unreadable(self.index, error) from error
        return parse_index(content, records, 1, self.index, record_bytes=self.record_bytes)

    def _offset(self, first: int) -> int:
        if self.compression or not self.index or not first or self.records is None:
            return 0
        offsets = self._offsets(self.records)
        return int(offsets[first]) if first < len(offsets) else self.file_bytes


def unreadable(path: str, error: OSError, *, of_ours: bool = True) -> RunError:
    """Returns the error of a file that is not there, or may not be read."""
    missing = isinstance(error, FileNotFoundError)
    reason = (error.strerror or str(error)).lower()
    return RunError(
        f"{path} {'is missing' if missing else f'cannot be read: {reason}'}"
        + ("; see what else is broken with `recordmill verify`" if of_ours else "")
    )


class _Decompressed:
    """The decompressed bytes of an open file, for `read_record`."""

    def __init__(self, handle: IO[bytes], compression: str) -> None:
        self._handle = handle
        self._decompressor = zlib.decompressobj(31 if compression == "GZIP" else 15)
        self._ready = bytearray()

    def read(self, size: int) -> bytes:
        while len(self._ready) < size and (block := self._handle.read(1 << 16)):
            self._ready += self._decompressor.decompress(block)
        content = bytes(self._ready[:size])
        del self._ready[:size]
        return content


@dataclass(frozen=True, slots=True)
class Record:
    """A record and where it is.

    Attributes:
      split: of its file.
      number: in its split, as written; None where nobody has counted the records of the files
        before its own.
      file: the path of its file.
      position: its number in the file.
      data: its bytes.
    """

    split: str
    number: int | None
    file: str
    position: int
    data: bytes

    @property
    def name(self) -> str:
        """What names the record: "train:12", or file and position where it has no number."""
        if self.number is None:
            return f"{self.file.rpartition('/')[2]}, record {self.position}"
        return f"{self.split}:{self.number}"


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """All files of records below a folder, or that a glob names.

    Attributes:
      path: what the user gave.
      splits: name -> its files, in order.
      manifest: of a dataset of ours, else None.
      finished: a dataset of ours has `_SUCCESS`.
      problems: files that are missing, cut or damaged, as far as was looked; a line each.
      empty: of another tool, files without a byte; a line each.
    """

    path: str
    splits: Mapping[str, tuple[RecordFile, ...]]
    manifest: Manifest | None = None
    finished: bool = True
    problems: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()

    @property
    def schema(self) -> Schema | None:
        """The features of each record, where a manifest has them."""
        known = self.manifest.features if self.manifest else []
        return Schema.from_json(known) if known else None

    @property
    def any_form(self) -> bool:
        """Whether no manifest gives the records a schema: they may be no tf.Examples."""
        return self.manifest is None or not self.manifest.features

    def split(self, name: str) -> tuple[RecordFile, ...]:
        """Returns the files of a split.

        Raises:
          UsageError: there is no split of that name.
        """
        return self.splits[one_of("the split", name, self.splits)]

    def record(self, split: str, number: int) -> Record:
        """Returns a record by its number in its split, as written.

        Raises:
          UsageError: there are fewer records.
        """
        first = 0
        for file in self.split(split):
            if file.records is not None and number >= first + file.records:
                first += file.records
                continue
            for data in file.read_from(number - first):
                return Record(split, number, file.path, number - first, data)
            first += _count(file)
        raise UsageError(
            f"--record must be less than the number of records, {first} in {split}, got {number}"
        )

    def all_records(self, split: str) -> Iterator[Record]:
        """Yields all records of a split, in order."""
        number = 0
        for file in self.split(split):
            for position, data in enumerate(file.read_from(0)):
                yield Record(split, number, file.path, position, data)
                number += 1

    def some_records(self, split: str, count: int) -> Iterator[Record]:
        """Yields `count` records from all over a split, or the first ones of some files if nobody
        knows how many records there are."""
        split_files = self.split(split)
        known = [file.records for file in split_files if file.records is not None]
        if not count:
            return
        if len(known) == len(split_files):
            yield from self._spread(split, min(count, sum(known)), sum(known))
            return
        yield from self._from_uncounted(split, count)

    def _from_uncounted(self, split: str, count: int) -> Iterator[Record]:
        """Yields the first records of files from all over a split: as many of each, and more of
        the next ones where one has fewer. A number is known as far as all files were read."""
        split_files = self.split(split)
        step = -(-len(split_files) // _MOST_FILES)
        chosen = split_files[::step]
        done, first = 0, 0
        counted = True
        for i, file in enumerate(chosen):
            most = -(-(count - done) // (len(chosen) - i))
            position = -1
            for position, data in enumerate(file.read_from(0)):
                if position == most:
                    counted = False
                    break
                number = first + position if counted else None
                yield Record(split, number, file.path, position, data)
                done += 1
            first += position + 1
            counted &= step == 1

    def _spread(self, split: str, count: int, total: int) -> Iterator[Record]:
        if len(self.split(split)) > _MOST_FILES:
            yield from self._spread_over_files(split, count)
            return
        numbers = _spread_numbers(count, total)
        first = 0
        for file in self.split(split):
            after = first + _count(file)
            positions = [n - first for n in numbers if n < after]
            numbers = numbers[len(positions) :]
            if positions:
                for position, data in zip(positions, file.read_some(positions), strict=True):
                    yield Record(split, first + position, file.path, position, data)
            first = after

    def _spread_over_files(self, split: str, count: int) -> Iterator[Record]:
        """Yields records of some files from all over the split: each costs reading its index."""
        split_files = self.split(split)
        firsts = [0, *accumulate(_count(file) for file in split_files)]
        filled = [i for i, file in enumerate(split_files) if _count(file)]
        most = min(_MOST_FILES, count, len(filled))
        chosen = [filled[i * len(filled) // most] for i in range(most)]
        for k, i in enumerate(chosen):
            file = split_files[i]
            wanted = min(count * (k + 1) // most - count * k // most, _count(file))
            # The first file begins at its first record; the others do not all begin there.
            begin = k * _count(file) // (most * max(1, wanted))
            positions = [begin + j * _count(file) // wanted for j in range(wanted)]
            for position, data in zip(positions, file.read_some(positions), strict=True):
                yield Record(split, firsts[i] + position, file.path, position, data)


def _spread_numbers(count: int, total: int) -> list[int]:
    """Returns ascending numbers below `total`, one of each of `count` equal parts: the first one,
    then draws that are the same each time. Equal steps would meet what repeats in step with them.
    """
    draws = np.random.default_rng(0).random(count)
    bounds = [i * total // count for i in range(count + 1)]
    parts = zip(bounds, bounds[1:], draws, strict=False)
    return [
        begin + int(draw * (end - begin) * (i > 0)) for i, (begin, end, draw) in enumerate(parts)
    ]


def _count(file: RecordFile) -> int:
    if file.records is not None:
        return file.records
    return sum(1 for _ in file.read_from(0))


def read_description(
    path: str, check: Callable[[dict[str, Any]], None] = lambda _: None
) -> dict[str, Any]:
    """Reads a JSON file of a dataset that describes it; returns {} where there is none.

    Args:
      path: of the file.
      check: raises a FormatError if the content is not what it should be.

    Raises:
      UsageError: it is cut, no object, or does not pass the check.
    """
    kind: Any = dict[str, Any]
    try:
        content: dict[str, Any] = decode(files.read_bytes(path), kind)
        check(content)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise unreadable(path, error) from error
    except FormatError as error:
        raise UsageError(
            f"{path} cannot be used: {error}; see what is broken with `recordmill verify`"
        ) from error
    return content
