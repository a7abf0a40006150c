"""Which records only one of two datasets has, and which have changed, in bounded memory.

The digest of each record goes to one of 256 files by its first byte, with its split and number;
with a key, the digest of the key and that of the record. Each pair of files is small enough to be
compared at once. Shards that both datasets have, by checksum and size, cancel each other and are
not read, unless all is to be read.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from recordmill.pipelines.inspection.record_files import RecordFile, RecordFiles
from recordmill.records.errors import UsageError
from recordmill.records.example_values import parse_any
from recordmill.transforms.storage import files

_PARTITIONS = 256
_DIGEST_BYTES = 16

Place = tuple[str, int]  # split and number of a record


@dataclass(slots=True)
class OneSided:
    """The records that only one dataset has.

    Attributes:
      count: of them; one that is there three times and twice in the other counts once.
      examples: split and number of some.
    """

    count: int = 0
    examples: list[Place] = field(default_factory=list)


@dataclass(slots=True)
class RecordDifferences:
    """What differs between the records of two datasets.

    Attributes:
      only_in: the records that only the first, and only the second has.
      changed: the number of records with one key and two contents.
      examples: where some of them are in both.
      same: the number of records that both have.
      shards_not_read: of both, by their checksums in the manifests; their records are in `same`.
    """

    only_in: tuple[OneSided, OneSided] = field(default_factory=lambda: (OneSided(), OneSided()))
    changed: int = 0
    examples: list[tuple[Place, Place]] = field(default_factory=list)
    same: int = 0
    shards_not_read: int = 0

    @property
    def equal(self) -> bool:
        """Whether both datasets have the same records."""
        return not (self.changed or any(side.count for side in self.only_in))


def record_key(name: str) -> Callable[[bytes], bytes]:
    """Returns what two records must share to be the same: their bytes, or a feature's values.

    Args:
      name: of the feature; "" compares whole records.
    """
    if not name:
        return lambda record: record

    def key(record: bytes) -> bytes:
        try:
            values = parse_any(record)
        except ValueError as error:
            raise UsageError(f"--key needs tf.Examples, and a record is none: {error}") from error
        if name not in values:
            raise UsageError(
                f"--key must be a feature of every record, and {name!r} is missing in one that has "
                f"{', '.join(sorted(values))}"
            )
        found = values[name]
        return b"\0".join(found) if isinstance(found, list) else np.asarray(found).tobytes()

    return key


def different_records(
    first: RecordFiles, second: RecordFiles, key: str, most: int, *, read_all: bool = False
) -> RecordDifferences:
    """Returns what differs between the records of two datasets.

    Args:
      first, second: the datasets.
      key: the feature that makes two records the same one, which may have changed; "" takes whole
        records, of which none changes.
      most: the examples to name of each.
      read_all: reads also shards that are equal by the manifests.

    Raises:
      UsageError: a record lacks the key.
      RunError: a record is broken.
    """
    found = RecordDifferences()
    twins = Counter() if key or read_all else _shared_shards(first, second)
    found.same = sum(records * count for (_, _, records), count in twins.items())
    found.shards_not_read = twins.total()
    digest_bytes = 2 * _DIGEST_BYTES if key else _DIGEST_BYTES
    row = np.dtype([("digest", f"V{digest_bytes}"), ("split", "<u2"), ("number", "<u8")])
    digest = _record_digest(key)
    with tempfile.TemporaryDirectory(prefix="recordmill-diff-") as folder:
        for name, dataset in (("a", first), ("b", second)):
            _scatter(dataset, Path(folder), name, digest, Counter(twins))
        for partition in range(_PARTITIONS):
            a, b = (_rows(Path(folder, f"{name}-{partition:03d}"), row) for name in "ab")
            _compare((a, b), found, (first, second), most)
    return found


def _record_digest(name: str) -> Callable[[bytes], bytes]:
    """Returns the digest of a record; with a key, those of the key and of the record."""

    def digest(data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()

    if not name:
        return digest
    key = record_key(name)
    return lambda record: digest(key(record)) + digest(record)


def _identity(dataset: RecordFiles) -> Iterator[tuple[tuple[int, int, int], str]]:
    shards = dataset.manifest.shards if dataset.manifest else ()
    for shard in sorted(shards, key=lambda shard: shard.name):
        yield (shard.crc32c, shard.file_bytes, shard.records), shard.name.path


def _shared_shards(first: RecordFiles, second: RecordFiles) -> Counter[tuple[int, int, int]]:
    return Counter(key for key, _ in _identity(first)) & Counter(
        key for key, _ in _identity(second)
    )


def _read_files(
    dataset: RecordFiles, twins: Counter[tuple[int, int, int]]
) -> Iterator[tuple[int, int, RecordFile]]:
    """Yields the split, the number of the first record and the file of all that is read."""
    identities = {files.join(dataset.path, path): key for key, path in _identity(dataset)}
    for split, files_of_split in enumerate(dataset.splits.values()):
        first = 0
        for file in files_of_split:
            known = identities.get(file.path)
            if known is not None and twins[known] > 0:
                twins[known] -= 1
            else:
                yield split, first, file
            first += file.records or 0


def _scatter(
    dataset: RecordFiles,
    folder: Path,
    name: str,
    record_digest: Callable[[bytes], bytes],
    twins: Counter[tuple[int, int, int]],
) -> None:
    unknown: Counter[int] = Counter()
    with ExitStack() as stack:
        out: list[BinaryIO] = [
            stack.enter_context(Path(folder, f"{name}-{i:03d}").open("wb"))
            for i in range(_PARTITIONS)
        ]
        for split, first, file in _read_files(dataset, twins):
            number = first if file.records is not None else unknown[split]
            place = split.to_bytes(2, "little")
            for record in file.read_from(0):
                digest = record_digest(record)
                out[digest[0]].write(digest + place + number.to_bytes(8, "little"))
                number += 1
            unknown[split] = number


def _rows(path: Path, row: np.dtype[np.void]) -> npt.NDArray[np.void]:
    rows = np.fromfile(path, row)
    return rows[np.lexsort((rows["number"], rows["split"]))]  # the examples are the first ones


def _compare(
    sides: Sequence[npt.NDArray[np.void]],
    found: RecordDifferences,
    datasets: Sequence[RecordFiles],
    most: int,
) -> None:
    """Adds what differs between two partitions."""
    counts = [Counter(rows["digest"].tolist()) for rows in sides]
    found.same += (counts[0] & counts[1]).total()
    extra = (counts[0] - counts[1], counts[1] - counts[0])
    changed: Counter[bytes] = Counter()
    if sides[0].dtype["digest"].itemsize > _DIGEST_BYTES:
        changed = _by_key(extra[0]) & _by_key(extra[1])
    found.changed += changed.total()
    wanted = set(islice(changed, most - len(found.examples)))
    places: list[dict[bytes, Place]] = []
    for rows, rest, side, dataset in zip(sides, extra, found.only_in, datasets, strict=True):
        one_sided = rest.total() - changed.total()
        side.count += one_sided
        missing = min(most - len(side.examples), one_sided)
        splits, left = list(dataset.splits), Counter(changed)
        places.append({})
        for row in rows:
            if not missing and len(places[-1]) == len(wanted):
                break
            digest = row["digest"].item()
            if rest[digest] <= 0:
                continue
            rest[digest] -= 1
            place = splits[int(row["split"])], int(row["number"])
            key = digest[:_DIGEST_BYTES]
            if left[key] > 0:
                left[key] -= 1
                if key in wanted:
                    places[-1].setdefault(key, place)
            elif missing:
                missing -= 1
                side.examples.append(place)
    found.examples += [(place, places[1][key]) for key, place in places[0].items()]


def _by_key(digests: Counter[bytes]) -> Counter[bytes]:
    """Returns how many of some records have each key."""
    keys: Counter[bytes] = Counter()
    for digest, count in digests.items():
        keys[digest[:_DIGEST_BYTES]] += count
    return keys
