"""Run files: records in order of their hash, so that any range of hashes is one range of bytes.

A work item of scatter writes one run file. Hashes are uniform, so a range of them is a random
sample of what the work item read, and the same range of all run files is a random sample of the
input. What a record is, a kind of job says. The tail follows the records of all splits: for each
split a sparse index (hash and offset of a record every 16 KiB, and the crc32c of all from there to
the next one) and a histogram of expected output bytes by hash, from which the shard plan cuts
shards of equal size; and the token of the run, without which the file is not used.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.framing import checksums_between
from recordmill.records.hashing import U64
from recordmill.records.inside import check_inside
from recordmill.records.state import Count
from recordmill.transforms.storage import files
from recordmill.transforms.storage.array_files import read_into, write_array
from recordmill.transforms.storage.buffers import Arena

MAX_HASH = (1 << 64) - 1
CELL_BITS = 18
INDEX_EVERY_BYTES = 1 << 14
_SPOOL_BYTES = 1 << 19


class DamagedRunFileError(Exception):
    """A run file is missing, cut, damaged or of another run."""


@dataclass(frozen=True, slots=True)
class SortedRecords:
    """The records of a split in order of their hashes.

    Attributes:
      data: `[bytes] uint8`, one record behind the other.
      offsets: `[num_records + 1] int64`: where each begins, and where the last ends.
      hashes: `[num_records] uint64`, ascending.
    """

    data: Bytes
    offsets: Int64s
    hashes: U64


class RunFileInfo(msgspec.Struct, frozen=True):
    """The part of a run file that its description holds.

    Attributes:
      name: of the file, which lies in the folder of its description.
      tail_offset, tail_bytes: where its tail lies.
      splits: their number.
    """

    name: str
    tail_offset: Count
    tail_bytes: Count
    splits: Count

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return self.tail_offset + self.tail_bytes

    def path(self, folder: str) -> str:
        """Returns the path of the file.

        Args:
          folder: of its description.

        Raises:
          RunError: it is outside of the folder.
        """
        check_inside(folder, [self.name], named_by="a description", follow=True)
        return files.join(folder, self.name)


class RunFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a work item of regroup; that of scatter says more.

    Attributes:
      runs: the run files that it wrote.
    """

    runs: tuple[RunFileInfo, ...]


@dataclass(frozen=True, slots=True)
class RunFileSplit:
    """The records of one split in a run.

    Attributes:
      begin, end: its bytes in the run file.
      entry_hashes, entry_offsets: the sparse index: a record's hash and where it begins.
      entry_checksums: crc32c of the bytes from each entry to the next one, `[entries] uint32`.
      cells, output_bytes: expected output bytes by the leading `CELL_BITS` of the hash.
    """

    begin: int
    end: int
    entry_hashes: U64
    entry_offsets: Int64s
    entry_checksums: npt.NDArray[np.uint32]
    cells: Int64s
    output_bytes: Int64s

    def byte_range(self, low: int, high: int) -> tuple[int, int]:
        """Returns bytes that hold all records with a hash in `[low, high]`, and few others."""
        if self.begin == self.end:
            return self.begin, self.begin
        before = np.searchsorted(self.entry_hashes, np.uint64(low), side="left")
        first = self.entry_offsets[before - 1] if before else self.begin
        after = np.searchsorted(self.entry_hashes, np.uint64(high), side="right")
        last = self.entry_offsets[after] if after < len(self.entry_offsets) else self.end
        return int(first), int(last)

    def is_intact(self, data: Bytes, begin: int) -> bool:
        """Tells whether bytes that a `byte_range` named are those that were written.

        Args:
          data: read from the run file.
          begin: where in it.
        """
        first = int(np.searchsorted(self.entry_offsets, begin))
        last = int(np.searchsorted(self.entry_offsets, begin + len(data)))
        bounds = np.append(self.entry_offsets[first:last] - begin, len(data))
        found = checksums_between(data, bounds)
        return np.array_equal(found, self.entry_checksums[first:last])


@dataclass(frozen=True, slots=True)
class RunFile:
    """A finished run file with its tail in memory."""

    path: str
    splits: list[RunFileSplit] = field(default_factory=list)


def histogram(hashes: U64, output_bytes: Int64s) -> tuple[Int64s, Int64s]:
    """Returns the cells that hashes fall in, ascending, and the sum of output bytes in each.

    Bytes are integers, so that sums are the same however records are spread over runs.

    Args:
      hashes: `[n] uint64`.
      output_bytes: `[n] int64`, the expected bytes of each.
    """
    cells, inverse = np.unique(
        (hashes >> np.uint64(64 - CELL_BITS)).astype(np.int64), return_inverse=True
    )
    sums = np.bincount(inverse, weights=output_bytes, minlength=len(cells))
    return cells, sums.astype(np.int64)


def write_run_file(
    path: str,
    splits: Iterable[SortedRecords],
    histograms: Sequence[tuple[Int64s, Int64s]],
    *,
    index_every_bytes: int = INDEX_EVERY_BYTES,
    token: str = "",
    sync: bool = True,
) -> RunFileInfo:
    """Writes the records of each split with the histogram of their expected output bytes.

    Args:
      path: of the run file.
      splits: their records; each is asked for when the one before is written.
      histograms: of each split, from `histogram`.
      index_every_bytes: the sparse index names a record in so many bytes.
      token: of the run.
      sync: it survives a power loss. One that does not has another size or other checksums, and
        its work item is done again.

    Returns:
      What `read_run_file` needs.
    """
    tail: dict[str, npt.NDArray[Any]] = {"run": np.frombuffer(token.encode(), np.uint8)}
    offset = 0
    with files.writing(path, sync=sync) as handle:
        for number, (records, cells) in enumerate(zip(splits, histograms, strict=True)):
            write_array(handle, records.data)
            offsets = records.offsets
            entries = _entries(offsets[:-1], index_every_bytes)
            tail |= {
                f"bounds_{number}": np.array([offset, offset + offsets[-1]], np.int64),
                f"entry_hashes_{number}": records.hashes[entries],
                f"entry_offsets_{number}": offsets[:-1][entries] + offset,
                f"entry_checksums_{number}": _checksums(records.data, offsets, entries),
                f"cells_{number}": cells[0],
                f"output_bytes_{number}": cells[1],
            }
            offset += int(offsets[-1])
        packed = io.BytesIO()
        np.savez(packed, **tail)
        handle.write(packed.getvalue())
    name = path.rpartition("/")[2]
    return RunFileInfo(name, offset, len(packed.getvalue()), len(histograms))


def _entries(offsets: Int64s, every_bytes: int) -> Int64s:
    """Returns the first record in each so many bytes."""
    if not len(offsets):
        return np.zeros(0, np.int64)
    blocks = (offsets - offsets[0]) // every_bytes
    return np.flatnonzero(np.concatenate([[True], blocks[1:] != blocks[:-1]]))


def _checksums(data: Bytes, offsets: Int64s, entries: Int64s) -> npt.NDArray[np.uint32]:
    """Returns the crc32c of the bytes from each entry to the next one, of the last to the end."""
    return checksums_between(data, np.append(offsets[entries], len(data)))


def read_run_file(
    folder: str, info: RunFileInfo, *, token: str = "", histograms: bool = True
) -> RunFile:
    """Reads the tail of a run file.

    Args:
      folder: that it lies in.
      info: its description.
      token: of the run.
      histograms: they are read, too; building shards needs none.

    Raises:
      DamagedRunFileError: it cannot be used; the message says why.
    """
    nothing = np.zeros(0, np.int64)
    path = info.path(folder)
    try:
        data = files.read_bytes(path, info.tail_offset, info.tail_bytes)
        with np.load(io.BytesIO(data)) as tail:
            if tail["run"].tobytes().decode() != token:
                raise DamagedRunFileError(f"{path} is of another run")
            splits = [
                RunFileSplit(
                    int(tail[f"bounds_{i}"][0]),
                    int(tail[f"bounds_{i}"][1]),
                    tail[f"entry_hashes_{i}"],
                    tail[f"entry_offsets_{i}"],
                    tail[f"entry_checksums_{i}"],
                    tail[f"cells_{i}"] if histograms else nothing,
                    tail[f"output_bytes_{i}"] if histograms else nothing,
                )
                for i in range(info.splits)
            ]
    except FileNotFoundError as error:
        raise DamagedRunFileError(f"{path} is missing") from error
    except (ValueError, KeyError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedRunFileError(f"{path} is damaged") from error
    return RunFile(path, splits)


class RunFileReader:
    """Reads ranges of hashes from one run file.

    On this machine's disk a range is read as it is asked for. From object storage consecutive
    ranges are served from one larger read, so that a shard costs a few requests per run file,
    however it is cut.
    """

    def __init__(self, run: RunFile, split: int, spool_bytes: int = _SPOOL_BYTES) -> None:
        self._run = run
        self._split = run.splits[split]
        self._local = files.is_local(run.path)
        self._spool_bytes = spool_bytes
        self._held = (0, b"")

    def read(self, low: int, high: int, arena: Arena | None = None) -> Bytes:
        """Returns records that include all with a hash in `[low, high]`.

        Args:
          low, high: the first and the last hash.
          arena: has the memory for them; without it is fresh.

        Raises:
          DamagedRunFileError: their bytes are not those that were written.
        """
        begin, end = self._split.byte_range(low, high)
        if begin == end:
            return np.zeros(0, np.uint8)
        size = end - begin
        data = arena.take(size) if arena else np.empty(size, np.uint8)
        if not self._fill(data, begin) or not self._split.is_intact(data, begin):
            raise DamagedRunFileError(f"{self._run.path} is damaged")
        return data

    def _fill(self, out: Bytes, begin: int) -> bool:
        """Fills an array with what lies in the file from `begin` on, unless it is cut."""
        if self._local:
            return read_into(self._run.path, begin, out) == len(out)
        data = self._spooled(begin, begin + len(out))
        if len(data) == len(out):
            out[:] = np.frombuffer(data, np.uint8)
        return len(data) == len(out)

    def _spooled(self, begin: int, end: int) -> bytes:
        held_at, held = self._held
        if not held_at <= begin <= end <= held_at + len(held):
            size = max(end - begin, min(self._spool_bytes, self._split.end - begin))
            held_at, held = begin, files.read_bytes(self._run.path, begin, size)
            self._held = held_at, held
        return held[begin - held_at : end - held_at]
