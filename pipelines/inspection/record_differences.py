"""Which records only one of two datasets has, in bounded memory.

The digest of each record, or of its key, goes to one of 256 files by its first byte, with its split
and number. Each pair of files is small enough to be compared at once. Shards that both datasets
have, by checksum and size, cancel each other and are not read.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from recordmill.pipelines.inspection.record_files import RecordFile, RecordFiles
from recordmill.reader.examples import parse_any
from recordmill.records.errors import UsageError
from recordmill.transforms.storage import files

_PARTITIONS = 256
_ROW = np.dtype([("digest", "V16"), ("split", "<u2"), ("number", "<u8")])


@dataclass(slots=True)
class OneSided:
    """The records that only one dataset has.

    Attributes:
      count: of them; one that is there three times and twice in the other counts once.
      examples: split and number of some.
    """

    count: int = 0
    examples: list[tuple[str, int]] = field(default_factory=list)


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
    first: RecordFiles, second: RecordFiles, key: str, most: int
) -> tuple[OneSided, OneSided, int]:
    """Returns what only the first and only the second dataset has, and the records in both.

    Args:
      first, second: the datasets.
      key: the feature that makes two records the same; "" compares whole records.
      most: the examples to name of each.

    Raises:
      UsageError: a record lacks the key.
      RunError: a record is broken.
    """
    one, other = OneSided(), OneSided()
    twins = Counter() if key else _shared_shards(first, second)
    same = sum(records * count for (_, _, records), count in twins.items())
    with tempfile.TemporaryDirectory(prefix="recordmill-diff-") as folder:
        for name, dataset in (("a", first), ("b", second)):
            _scatter(dataset, Path(folder), name, record_key(key), Counter(twins))
        for partition in range(_PARTITIONS):
            a, b = (_rows(Path(folder, f"{name}-{partition:03d}")) for name in "ab")
            same += _compare(a, b, (one, other), (first, second), most)
    return one, other, same


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
    key: Callable[[bytes], bytes],
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
                digest = hashlib.blake2b(key(record), digest_size=16).digest()
                out[digest[0]].write(digest + place + number.to_bytes(8, "little"))
                number += 1
            unknown[split] = number


def _rows(path: Path) -> npt.NDArray[np.void]:
    rows = np.fromfile(path, _ROW)
    return rows[np.lexsort((rows["number"], rows["split"]))]  # the examples are the first ones


def _compare(
    a: npt.NDArray[np.void],
    b: npt.NDArray[np.void],
    sides: Sequence[OneSided],
    datasets: Sequence[RecordFiles],
    most: int,
) -> int:
    """Adds what is only in one of two partitions; returns the number in both."""
    counts_a, counts_b = (Counter(rows["digest"].tolist()) for rows in (a, b))
    for rows, extra, side, dataset in (
        (a, counts_a - counts_b, sides[0], datasets[0]),
        (b, counts_b - counts_a, sides[1], datasets[1]),
    ):
        side.count += extra.total()
        splits = list(dataset.splits)
        for row in rows if extra and len(side.examples) < most else ():
            digest = row["digest"].item()
            if extra[digest] > 0 and len(side.examples) < most:
                extra[digest] -= 1
                side.examples.append((splits[int(row["split"])], int(row["number"])))
    return (counts_a & counts_b).total()
