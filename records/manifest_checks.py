"""Whether a manifest of right types agrees with itself.

What a reader relies on is checked whenever a dataset is opened; `recordmill verify` checks all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from recordmill.records.manifest import Manifest, ShardInfo
from recordmill.records.schema import Feature
from recordmill.records.state import MAX_INT64

_OVERHEAD_BYTES = 16  # of TFRecord framing: what an empty record takes
_MOST_NAMED = 3


def shard_defects(manifest: Manifest) -> Iterator[str]:
    """Yields what is wrong with the list of shards, a line each."""
    for name, times in Counter(shard.name for shard in manifest.shards).items():
        if times > 1:
            yield f"shard {name.stem} must be listed once, and is listed {times} times"
    for split, shards in manifest.split_shards().items():
        counts = sorted({shard.count for shard in shards})
        present = {shard.index for shard in shards}
        if len(counts) > 1:
            yield (
                f"split {split} must have one number of shards, and its shards are of "
                f"{' and of '.join(map(str, counts[:_MOST_NAMED]))}"
            )
        elif len(present) < counts[0]:
            lacking = [i for i in range(len(present) + _MOST_NAMED) if i not in present]
            lacking = [i for i in lacking if i < counts[0]][:_MOST_NAMED]
            yield (
                f"split {split} must list shards 0 to {counts[0] - 1} of {counts[0]} once each, "
                f"and lacks {', '.join(map(str, lacking))}"
                + (" and others" if counts[0] - len(present) > len(lacking) else "")
            )
    for shard in manifest.shards:
        stem, least = shard.name.stem, shard.records * _OVERHEAD_BYTES
        if shard.record_bytes < least or (not shard.records and shard.record_bytes):
            yield (
                f"shard {stem} must have {_OVERHEAD_BYTES} bytes or more for each of its "
                f"{shard.records} records, and has {shard.record_bytes} in all"
            )
        if not manifest.compression and shard.file_bytes != shard.record_bytes:
            yield (
                f"shard {stem} is not compressed, so its file must have the {shard.record_bytes} "
                f"bytes of its records, and has {shard.file_bytes}"
            )


def count_defects(manifest: Manifest) -> Iterator[str]:
    """Yields what is wrong with the counts and the list of files, a line each."""
    counts = manifest.counts
    total = sum(shard.records for shard in manifest.shards)
    if counts.get("examples") != total:
        yield (
            f"counts.examples must be {total}, the sum over the shards, and is "
            f"{counts.get('examples')!r:.40}"
        )
    yield from count_type_defects(manifest)
    listed = {shard.name.path for shard in manifest.shards}
    for path in sorted(listed & manifest.files.keys()):
        yield f"{path} must be listed once, and is among the shards and the files"
    if not manifest.compression:
        for shard in manifest.shards:
            if shard.name.index_path not in manifest.files:
                yield f"files must list {shard.name.index_path}, the index of a shard, and does not"


def count_type_defects(manifest: Manifest) -> Iterator[str]:
    """Yields which counts are neither numbers nor numbers by reason, a line each."""
    for name, value in manifest.counts.items():
        parts = value if isinstance(value, dict) else {"": value}
        for part, count in parts.items():
            if type(count) not in (int, float) or not 0 <= count <= MAX_INT64:
                field = f"counts.{name}" + (f".{part}" if part else "")
                yield f"{field} must be 0 or more, and is {count!r:.40}"
    for name in ("rejected", "dropped"):
        if not isinstance(found := manifest.counts.get(name, {}), dict):
            yield f"counts.{name} must be counts by reason, and is {found!r:.40}"


def unknown_key_defects(content: Mapping[str, Any]) -> Iterator[str]:
    """Yields which keys this release does not know, a line for the first of each part.

    Readers pass over them: a later release may have written them. But nobody has checked them.

    Args:
      content: of `manifest.json`, from which a manifest was read.
    """
    for where, parts, kind in (
        ("", [content], Manifest.__struct_fields__),
        ("shards", content.get("shards", []), ShardInfo.__struct_fields__),
        ("features", content["features"], [field.name for field in fields(Feature)]),
    ):
        known = set(kind)
        for number, part in enumerate(parts):
            if unknown := sorted(part.keys() - known):
                place = f"{where}[{number}] " if where else ""
                yield (
                    f"{place}has {unknown[0]!r:.80}, which this release does not know: upgrade "
                    "recordmill, or, if no later one has written it, write the dataset anew"
                )
                break
