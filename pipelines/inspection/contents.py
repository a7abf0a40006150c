"""Contents that are there twice: in a split, in two splits, or under two labels.

Which contents are compared follows from their digests, so all splits compare the same ones: those
with the least digests (a bottom-k sketch, Cohen and Kaplan 2007). Memory is bounded, and where all
records are read, the share of copies is that of all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from recordmill.pipelines.inspection.record_files import RecordFile, RecordFiles
from recordmill.records.errors import RunError
from recordmill.records.example_values import parse_any

IMAGES = ("image", "image/encoded")
LABELS = ("label", "labels", "image/class/label", "label_ids")
_KEPT = 1 << 17  # digests of a split
_FILES = 16  # of a split, where not all of it is read
_PIECE_BYTES = 1 << 16
_NAMED = 3


@dataclass(slots=True)
class SplitContents:
    """The contents of records that were read of a split.

    Attributes:
      records: that were read.
      whole: all of the split was read.
      counts: digest -> records, of the least digests.
      files: that were read, and the number of the first record of each in the split, None where
        nobody has counted those before.
      first: digest -> the file of its first record, its position there, and its label, None
        without one.
      limit: greater digests were left out; b"" for none.
      two_labels: the names of some records with one content and two labels, two by two; there are
        `num_two_labels`.
      pairs: the names of some records with one content, two by two.
      kept: digests, at least; twice as many are in memory at most.
    """

    records: int = 0
    whole: bool = True
    counts: dict[bytes, int] = field(default_factory=dict)
    files: list[tuple[str, int | None]] = field(default_factory=list)
    first: dict[bytes, tuple[int, int, int | None]] = field(default_factory=dict)
    limit: bytes = b""
    two_labels: list[tuple[str, str]] = field(default_factory=list)
    num_two_labels: int = 0
    pairs: list[tuple[str, str]] = field(default_factory=list)
    kept: int = _KEPT

    def name(self, file: int, position: int) -> str:
        """Returns the number of a record in the split, or its file and position where unknown."""
        path, first = self.files[file]
        if first is None:
            return f"record {position} of {path.rpartition('/')[2]}"
        return str(first + position)

    def add(self, digest: bytes, position: int, label: int | None) -> None:
        """Adds a record of the last of `files`."""
        self.records += 1
        if self.limit and digest > self.limit:
            return
        known = self.counts.get(digest, 0)
        self.counts[digest] = known + 1
        if known:
            file, other, other_label = self.first[digest]
            if len(self.pairs) < _NAMED:
                here = self.name(len(self.files) - 1, position)
                self.pairs.append((self.name(file, other), here))
            if label is not None and label != other_label:
                self.num_two_labels += 1
                if len(self.two_labels) < _NAMED:
                    here = self.name(len(self.files) - 1, position)
                    self.two_labels.append((self.name(file, other), here))
            return
        self.first[digest] = (len(self.files) - 1, position, label)
        if len(self.counts) > 2 * self.kept:
            self.limit = sorted(self.counts)[self.kept - 1]
            for large in [key for key in self.counts if key > self.limit]:
                del self.counts[large], self.first[large]

    def compared(self, limit: bytes = b"") -> int:
        """Returns the number of records with a digest up to a limit."""
        return sum(n for key, n in self.counts.items() if not limit or key <= limit)

    @property
    def copies(self) -> int:
        """The compared records whose content another one before them has."""
        return sum(self.counts.values()) - len(self.counts)


@dataclass(frozen=True, slots=True)
class Leak:
    """Contents that two splits share.

    Attributes:
      split: the smaller one.
      other: the other one.
      records: of the smaller one whose content the other one has.
      compared: records of the smaller one that were compared.
      first: the names of a record of each with the same content.
      two_labels: of them, those with two labels.
      whole: all records of both were read.
    """

    split: str
    other: str
    records: int
    compared: int
    first: tuple[str, str]
    two_labels: int
    whole: bool


def read_contents(
    records: RecordFiles, most_bytes: int, most_records: int
) -> dict[str, SplitContents]:
    """Returns the contents of each split.

    Args:
      records: of a dataset.
      most_bytes, most_records: that are read; every split gets the same part, as a leak into a
        small split shows best where all of that split is read.

    Raises:
      RunError: a record is broken.
    """
    found = {name: SplitContents() for name in records.splits}
    by_size = sorted(
        records.splits, key=lambda name: sum(f.file_bytes for f in records.split(name))
    )
    for i, name in enumerate(by_size):
        splits_left = len(by_size) - i
        read = _read_split(
            records.split(name),
            most_bytes // splits_left,
            most_records // splits_left,
            found[name],
            any_form=records.any_form,
        )
        most_bytes -= read
        most_records -= found[name].records
    return found


def _read_split(
    split: Sequence[RecordFile],
    most_bytes: int,
    most_records: int,
    found: SplitContents,
    *,
    any_form: bool,
) -> int:
    """Adds the records of a split, or the first ones of some files; returns their bytes."""
    known = sum(file.records or 0 for file in split)
    whole = sum(file.file_bytes for file in split) <= most_bytes and known <= most_records
    step = 1 if whole else -(-len(split) // _FILES)
    chosen = range(0, len(split), step)
    read, first = 0, 0
    counted = True
    for i, file in enumerate(split):
        position = -1
        if i in chosen:
            files_left = len(range(i, len(split), step))
            bytes_left = None if whole else (most_bytes - read) // files_left
            records_left = (most_records - found.records) // files_left
            found.files.append((file.path, first if counted else None))
            ended = True
            begin = read
            for position, data in enumerate(file.read_from(0)):
                if position == records_left or (
                    bytes_left is not None and read - begin >= bytes_left
                ):
                    ended, position = False, position - 1
                    break
                digest, label = _content(data, file, any_form=any_form)
                found.add(digest, position, label)
                read += len(data)
            found.whole &= ended
        else:
            found.whole, ended = False, False
        counted &= ended or file.records is not None
        first += file.records if file.records is not None else position + 1
    return read


def _content(data: bytes, file: RecordFile, *, any_form: bool) -> tuple[bytes, int | None]:
    """Returns the digest of a record's image, or of its bytes, and its label.

    Rows of tokens are compared by their bytes, as parsing takes fifty times as long.
    """
    label = None
    # An image is long, and the name of its feature is near the beginning or the end of its record.
    if b"image" in data[:_PIECE_BYTES] or b"image" in data[-_PIECE_BYTES:]:
        try:
            values = parse_any(data)
        except ValueError as error:
            if any_form:
                return hashlib.blake2b(data, digest_size=16).digest(), None
            raise RunError(
                f"{file.path}: a record cannot be read: {error}; see what else is broken with "
                "`recordmill verify`"
            ) from error
        stored = next((values[name] for name in IMAGES if name in values), None)
        if isinstance(stored, list) and stored:
            data = stored[0]
            label = label_of(values)
    return hashlib.blake2b(data, digest_size=16).digest(), label


def label_of(values: Mapping[str, Any]) -> int | None:
    """Returns the one class number of a record, None where it has none or several."""
    for name in LABELS:
        given = values.get(name, ())
        if len(given):
            single = len(given) == 1 and not isinstance(given, list) and given.dtype.kind == "i"
            return int(given[0]) if single else None
    return None


def find_leaks(contents: Mapping[str, SplitContents]) -> list[Leak]:
    """Returns what each two splits share."""
    leaks = []
    for names in combinations(contents, 2):
        other, split = sorted(names, key=lambda name: contents[name].records, reverse=True)
        here, there = contents[split], contents[other]
        both = here.counts.keys() & there.counts.keys()
        if both:
            limit = min(filter(None, (here.limit, there.limit)), default=b"")
            one = min(both, key=lambda digest: here.first[digest][:2])
            two = [d for d in both if here.first[d][2] != there.first[d][2]]
            leaks.append(
                Leak(
                    split,
                    other,
                    sum(here.counts[digest] for digest in both),
                    here.compared(limit),
                    (here.name(*here.first[one][:2]), there.name(*there.first[one][:2])),
                    len(two),
                    here.whole and there.whole,
                )
            )
    return leaks
