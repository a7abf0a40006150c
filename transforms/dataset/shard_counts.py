"""How many shards each split gets."""

from __future__ import annotations

from recordmill.transforms.dataset.output_spec import (
    ShardSpec,
    SplitSpec,
)

MIN_READER_SHARD_BYTES = 10_000_000
SHARDS_PER_READER = 10


def count_shards(
    split_bytes: list[int], splits: tuple[SplitSpec, ...], spec: ShardSpec
) -> list[int]:
    """Returns the number of shards of each split, from the expected bytes of each.

    Where a number is given for the first split only, the others get theirs in proportion to their
    bytes.
    """
    if splits[0].num_shards is not None:
        bytes_per_shard = max(split_bytes[0], 1) / splits[0].num_shards
        return [
            split.num_shards
            if split.num_shards is not None
            else max(1, round(size_bytes / bytes_per_shard))
            for split, size_bytes in zip(splits, split_bytes, strict=True)
        ]
    if spec.num_readers is not None:
        at_most = max(1, split_bytes[0] // MIN_READER_SHARD_BYTES)
        wanted = min(spec.num_readers * SHARDS_PER_READER, at_most)
        bytes_per_shard = max(split_bytes[0] / wanted, MIN_READER_SHARD_BYTES)
    else:
        bytes_per_shard = float(spec.shard_bytes)
    return [max(1, round(size_bytes / bytes_per_shard)) for size_bytes in split_bytes]
