"""Datasets of a few records, written without Beam: record i holds its own number."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from recordmill.records.codec.encoding import Column, Strings, encode_batch
from recordmill.records.codec.framing import index_lines
from recordmill.records.manifest import MANIFEST_PATH, Manifest, ShardInfo, success_bytes
from recordmill.records.schema import Feature, Schema
from recordmill.records.shards import ShardName

UNEVEN = [5, 40, 17, 1, 0, 33, 11]
NUMBERS = Schema(
    (
        Feature("id", "int64", (), "the number of the record in the dataset"),
        Feature("row", "int64", (3,), "id, id + 1, id + 2"),
        Feature("text", "bytes", (), "the number in letters"),
    )
)


def numbers(first: int, count: int) -> dict[str, Column]:
    ids = np.arange(first, first + count)
    return {
        "id": ids,
        "row": ids[:, None] + np.arange(3),
        "text": Strings.from_list([b"record %d" % i for i in ids]),
    }


def compressed(data: bytes, compression: str) -> bytes:
    if compression == "GZIP":
        return gzip.compress(data, mtime=0)
    return zlib.compress(data) if compression else data


def write_dataset(
    folder: Path,
    splits: Mapping[str, Sequence[Mapping[str, Column]]],
    schema: Schema,
    compression: str = "",
) -> Path:
    """Writes split -> columns of each shard."""
    shards = []
    files = {}
    for split, contents in splits.items():
        for index, columns in enumerate(contents):
            name = ShardName(split, index, len(contents))
            batch = encode_batch(schema, columns)
            data = compressed(batch.buffer.tobytes(), compression)
            lines = index_lines(batch.offsets)
            for path, content in ((name.path, data), (name.index_path, lines)):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
            files[name.index_path] = google_crc32c.value(lines)
            shards.append(
                ShardInfo(
                    split,
                    index,
                    len(contents),
                    len(batch.offsets) - 1,
                    len(data),
                    len(batch.buffer),
                    google_crc32c.value(data),
                )
            )
    manifest = Manifest(
        name="numbers", config={}, fingerprint="", features=schema.to_json(),
        compression=compression, versions={}, sources={}, counts={}, files=files, shards=shards,
    ).to_bytes()  # fmt: skip
    (folder / MANIFEST_PATH).write_bytes(manifest)
    (folder / "_SUCCESS").write_bytes(success_bytes(manifest))
    return folder


def write_numbers(folder: Path, sizes: Iterable[int], compression: str = "", **more: Any) -> Path:
    """Writes shards of some sizes as split "train"; `more` are other splits, numbered on."""
    splits = {}
    first = 0
    for split, shard_sizes in {"train": sizes, **more}.items():
        splits[split] = []
        for size in shard_sizes:
            splits[split].append(numbers(first, size))
            first += size
    return write_dataset(folder, splits, NUMBERS, compression)


def ids(batches: Any) -> list[int]:
    """The numbers of the records of some batches, in order."""
    return [int(i) for batch in batches for i in np.asarray(batch["id"])]
