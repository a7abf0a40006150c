"""Find records that can be read and whose content cannot be decoded, such as an image that is none.

A decoder's error says nothing of the record, and a batch that holds one fails as a whole. So
records are decoded again, those of batches that fail one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

import tensorflow as tf

from recordmill.reader.features import Decoder, Features, Transform
from recordmill.reader.one_line_errors import ReadError, checked_message
from recordmill.reader.order import FILLER, Order
from recordmill.reader.range_reading import UnreadableRecord
from recordmill.reader.record_ranges import RecordRange
from recordmill.reader.row_parsing import RowParser
from recordmill.reader.source import RecordSource
from recordmill.reader.tensorflow_internals import first_line
from recordmill.reader.window_reading import read_windows

_BATCH_RECORDS = 64
_WINDOW_BYTES = 1 << 24


def undecodable_records(
    source: RecordSource, ranges: Sequence[RecordRange], transforms: Sequence[Transform]
) -> list[tuple[int, UnreadableRecord]]:
    """Returns the shards and the records that a `Decoder` among transforms fails on.

    Args:
      source: where the records are.
      ranges: the records.
      transforms: of a reader.
    """
    last = max((n for n, each in enumerate(transforms, 1) if isinstance(each, Decoder)), default=0)
    if not last:
        return []
    whole = [each.whole if isinstance(each, Decoder) else each for each in transforms[:last]]
    window = max(1, _WINDOW_BYTES // source.record_bytes)
    written = Order(
        tuple(ranges), min(_BATCH_RECORDS, window), workers=1, worker=0, seed=None,
        remainder="keep", window_records=window, block_records=window,
        whole_shards=bool(source.compression),
    )  # fmt: skip
    suspects = tuple(each for each, _ in _failing(source, written, whole))
    found = list[tuple[int, UnreadableRecord]]()
    # What a transform fails on never comes to the decoders behind it: each in turn.
    for n, each in enumerate(transforms[:last], 1):
        if not suspects:
            break
        one_by_one = replace(written, record_ranges=suspects, batch_size=1)
        failing = list(_failing(source, one_by_one, whole[:n]))
        if isinstance(each, Decoder):
            for one, why in failing:
                path, offset = source.paths[one.shard], _offset(source, one)
                found.append((one.shard, UnreadableRecord(path, one.first, offset, why)))
        suspects = _without(suspects, {(one.shard, one.first) for one, _ in failing})
    return sorted(found, key=lambda pair: (pair[0], pair[1].record))


def undecodable_message(
    source: RecordSource, order: Order, transforms: Sequence[Transform], step: int
) -> str | None:
    """Returns the line for an error of a decoder in a step of an order, None if there is none."""
    if not any(isinstance(each, Decoder) for each in transforms):
        return None
    numbers = next(_batches(source, order, [_keys_alone], step))["keys"][:, 1].numpy().tolist()
    ranges = [
        RecordRange(each.shard, each.first + number - each.number, 1, number)
        for number in sorted({*numbers} - {FILLER})
        for each in order.stored_ranges
        if each.number <= number < each.number + each.count
    ]
    found = undecodable_records(source, ranges, transforms)
    if not found:
        return None
    return (
        f"every record must be one that TensorFlow decodes, and one is not: {found[0][1]}; write "
        "the dataset anew, or read without it by on_error='skip_record'"
    )


def _keys_alone(features: Features, keys: tf.Tensor) -> Features:
    return {"keys": keys}


def _batches(
    source: RecordSource, order: Order, transforms: Sequence[Transform], step: int
) -> Iterator[Features]:
    """Returns the batches of an order from a step on, of all epochs."""
    calls = tf.data.AUTOTUNE
    windows = read_windows(source, order, start_step=step, epochs=None, parallel_calls=calls)
    return iter(RowParser(source, order, transforms, calls).batches(windows))


def _failing(
    source: RecordSource, order: Order, transforms: Sequence[Transform]
) -> Iterator[tuple[RecordRange, str]]:
    """Yields the records of each batch that cannot be decoded, and why."""
    batches = _batches(source, order, transforms, 0)
    for step in range(order.steps_per_epoch):
        try:
            next(batches)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
            if message := checked_message(error, source.guard.folder):
                raise ReadError(message) from None
            if isinstance(error, UnicodeDecodeError):
                raise
            begin = step * order.batch_size
            for each in _part(order.record_ranges, begin, begin + order.batch_size):
                yield each, first_line(error)


def _part(ranges: Sequence[RecordRange], begin: int, end: int) -> Iterator[RecordRange]:
    """Yields the ranges of the records from one position to another in some ranges."""
    position = 0
    for each in ranges:
        low, high = max(begin - position, 0), min(end - position, each.count)
        if low < high:
            yield RecordRange(each.shard, each.first + low, high - low, each.number + low)
        position += each.count


def _without(
    ranges: Iterable[RecordRange], records: Set[tuple[int, int]]
) -> tuple[RecordRange, ...]:
    """Returns ranges of one record each, without some records, given by shard and place in it."""
    each_one = (
        RecordRange(each.shard, each.first + n, 1, each.number + n)
        for each in ranges
        for n in range(each.count)
    )
    return tuple(one for one in each_one if (one.shard, one.first) not in records)


def _offset(source: RecordSource, one: RecordRange) -> int:
    offsets = source.record_offsets
    if offsets is None or offsets.every > 1:
        return -1
    return int(offsets.bounds(one.shard, one.first, 1)[0])
