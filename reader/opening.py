"""Open a split: choose its shards and records, and the order in which they are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recordmill.reader.dataset import FinishedDataset, check_schema, open_dataset
from recordmill.reader.narrowing import Narrowing
from recordmill.reader.options import OnError, ReaderOptions
from recordmill.reader.order import Order
from recordmill.reader.record_ranges import RecordOffsets, RecordRange, without
from recordmill.reader.selection import Part, parse_selection
from recordmill.reader.shard_guard import ShardGuard
from recordmill.reader.source import RecordSource
from recordmill.reader.workers import Worker
from recordmill.records.errors import UsageError
from recordmill.records.manifest import ShardInfo

if TYPE_CHECKING:
    from recordmill.reader.range_reading import UnreadableRecord

_WINDOW_RECORDS = 1 << 15
_WINDOW_BYTES = 1 << 24
# To begin with a block costs as much as to read some hundred records, and with a window a thousand.
_WINDOW_BLOCKS = 16
_WRITTEN_WINDOW_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class OpenedSplit:
    """The records of a reader, and their order.

    Attributes:
      dataset: that holds them.
      source: where they are.
      order: of this worker's rows.
      skipped: the records that `on_error` leaves out.
    """

    dataset: FinishedDataset
    source: RecordSource
    order: Order
    skipped: list[UnreadableRecord]


def open_split(path: str | os.PathLike[str], split: str, options: ReaderOptions) -> OpenedSplit:
    """Opens a split of a finished dataset for one worker.

    Args:
      path, split: as `load` takes them.
      options: how to read it.

    Raises:
      UsageError: see `load`.
    """
    worker = options.find_worker()
    dataset = open_dataset(path)
    if options.schema is not None:
        check_schema(dataset, options.schema)
    narrowing = Narrowing.of(dataset, options.int64)
    parts = parse_selection(split, dataset.split_records, dataset.path)
    shards, record_ranges = _record_ranges(dataset, parts)
    paths = _local_paths(dataset, shards, options)
    guard = ShardGuard(dataset, shards, paths, check_sizes=options.on_error == "fail")
    skipped = _unreadable(dataset, shards, paths, options.on_error)
    record_ranges = _without(record_ranges, skipped, paths, options.on_error)
    record_bytes = max(1, sum(s.record_bytes for s in shards) // sum(s.records for s in shards))
    source = RecordSource(
        tuple(paths), dataset.manifest.compression,
        _record_offsets(dataset, shards, every_record=bool(skipped)), dataset.schema, narrowing,
        record_bytes, guard,
    )  # fmt: skip
    if options.on_error != "fail" and options.transforms:
        from recordmill.reader.decoding import undecodable_records

        more = undecodable_records(source, record_ranges, options.transforms)
        skipped = skipped + more
        record_ranges = _without(record_ranges, more, paths, options.on_error)
    order = _make_order(source, record_ranges, worker, options)
    if not order.steps_per_epoch:
        raise UsageError(
            f"{worker.count} workers x batch_size {options.batch_size} must be at most the "
            f"{order.records} records of {split!r}; or give remainder='keep', 'pad' or 'repeat'"
        )
    return OpenedSplit(dataset, source, order, [record for _, record in skipped])


def _record_ranges(
    dataset: FinishedDataset, parts: Sequence[Part]
) -> tuple[list[ShardInfo], list[RecordRange]]:
    """Returns the shards that some parts of splits need, and the records in them."""
    shards: list[ShardInfo] = []
    record_ranges = []
    numbers: dict[str, int] = {}
    for part in parts:
        split = dataset.split(part.split)
        dataset.check_files(split)
        base = numbers.setdefault(
            part.split, sum(dataset.split(other).records for other in numbers)
        )
        before = 0
        for shard in split.shards:
            first = max(part.first, before) - before
            last = min(part.last, before + shard.records) - before
            if last > first:
                if shard not in shards[-1:]:
                    shards.append(shard)
                number = base + before + first
                record_ranges.append(RecordRange(len(shards) - 1, first, last - first, number))
            before += shard.records
    return shards, record_ranges


def _local_paths(
    dataset: FinishedDataset, shards: Sequence[ShardInfo], options: ReaderOptions
) -> list[str]:
    """Returns a path for each shard: that of its copy where there is a cache with room for it."""
    if options.cache_dir is None:
        return [dataset.file(shard.name.path) for shard in shards]
    from recordmill.reader.caching import ShardCache

    return ShardCache(os.fspath(options.cache_dir), options.cache_bytes).fetch(dataset, shards)


def _unreadable(
    dataset: FinishedDataset, shards: Sequence[ShardInfo], paths: Sequence[str], on_error: OnError
) -> list[tuple[int, UnreadableRecord]]:
    """Returns the shards and the records that cannot be read, where they are to be left out."""
    if on_error == "fail":
        return []
    from recordmill.reader.damage import scan_shards

    compression = dataset.manifest.compression
    sizes = [shard.record_bytes for shard in shards]
    by_shard = scan_shards(paths, compression, lambda i: dataset.index(shards[i]), sizes)
    return [(i, record) for i, records in enumerate(by_shard) for record in records]


def _without(
    record_ranges: list[RecordRange],
    bad: list[tuple[int, UnreadableRecord]],
    paths: Sequence[str],
    on_error: OnError,
) -> list[RecordRange]:
    """Returns the ranges without some records, or without their shards."""
    if not bad:
        return record_ranges
    if on_error == "skip_shard":
        corrupt = {shard for shard, _ in bad}
        kept = [record_range for record_range in record_ranges if record_range.shard not in corrupt]
    else:
        kept = without(record_ranges, [(shard, record.record) for shard, record in bad])
    if not kept:
        raise UsageError(
            f"at least one record must be readable, and {len(bad)} in {len(paths)} shards are not, "
            f"first {bad[0][1]}; copy the dataset again, or write it anew"
        )
    return kept


def _record_offsets(
    dataset: FinishedDataset, shards: Sequence[ShardInfo], *, every_record: bool
) -> RecordOffsets | None:
    """Returns byte offsets, of every record where there are holes to jump over."""
    if dataset.manifest.compression:
        return None
    records = [shard.records for shard in shards]
    limit = {"most": sum(records)} if every_record else {}
    return RecordOffsets(
        dataset.read, [shard.name.index_path for shard in shards], records,
        [shard.record_bytes for shard in shards], **limit,
    )  # fmt: skip


def _make_order(
    source: RecordSource,
    record_ranges: Sequence[RecordRange],
    worker: Worker,
    options: ReaderOptions,
) -> Order:
    window_records = options.window_records or max(
        1, min(_WINDOW_RECORDS, _WINDOW_BYTES // source.record_bytes)
    )
    whole_shards = bool(source.compression)
    blocks = _WINDOW_BLOCKS if options.shuffle else _WRITTEN_WINDOW_BLOCKS
    order = Order(
        record_ranges=tuple(record_ranges),
        batch_size=options.batch_size,
        workers=worker.count,
        worker=worker.index,
        seed=options.seed if options.shuffle else None,
        remainder=options.remainder,
        window_records=window_records,
        block_records=window_records if whole_shards else max(1, window_records // blocks),
        whole_shards=whole_shards,
    )
    return order if options.reorder is None else options.reorder(order)
