"""A sample of the values of --key, from all over the input, however the work is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.framing import HEADER_BYTES
from recordmill.records.errors import UsageError, listed
from recordmill.records.example_values import parse_any
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_spec import RecordOptions
from recordmill.transforms.examples.record_changes import RecordChanges
from recordmill.transforms.examples.record_source import RecordFileRange, is_record_length
from recordmill.transforms.examples.sort_keys import KeySplits, sample_values
from recordmill.transforms.examples.table_records import read_batches
from recordmill.transforms.sources.formats import DELIMITED, ROW_FORMATS, CutOptions
from recordmill.transforms.sources.item_cutting import cut_source
from recordmill.transforms.storage import files

_PLACES = 128
_BLOCK_BYTES = 1 << 18
_SEARCHED_BYTES = 1 << 20  # for the beginning of a record
_MOST_MAPPED = 16  # records of a place that users' functions see
_MOST_RECORDS = 1024  # of a place

Found = tuple[Bytes, Int64s, Int64s]


def sample_keys(job: ExamplesJob, sources: Iterable[RecordFileRange], total: int) -> KeySplits:
    """Returns a sample of the values by which records are ordered.

    Args:
      job: names the feature, and the functions that records go through before.
      sources: whole files, in order.
      total: their bytes.

    Raises:
      UsageError: no record that was looked at has the feature.
    """
    changes = RecordChanges(replace(job, records=RecordOptions(), given_schema=()))
    found: list[Found] = []
    for place in _places(sources, total):
        batches = read_batches(place, job.tables, _BLOCK_BYTES)
        batch = next((each for each in batches if len(each.begins)), None)
        if batch is None:
            continue
        most = _MOST_MAPPED if job.map else _MOST_RECORDS
        batch = replace(
            batch, begins=batch.begins[:most], ends=batch.ends[:most], rejects=(),
            origins=None if batch.origins is None else batch.origins[:most],
        )  # fmt: skip
        for each in changes.apply([batch], place, Counter()) if job.map else [batch]:
            found.append(_copied(each.data, each.begins, each.ends))
    splits = sample_values(found, job.records.key)
    if splits is None:
        raise UsageError(
            f"--key={job.records.key}: no record of a sample from all over the input has this "
            f"feature{_names(found)}"
        )
    return splits


def _copied(data: Bytes, begins: Int64s, ends: Int64s) -> Found:
    """Returns records without the block that they are in."""
    parts = [data[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
    sizes = ends - begins
    after = np.cumsum(sizes)
    return np.concatenate([np.zeros(0, np.uint8), *parts]), after - sizes, after


def _names(found: list[Found]) -> str:
    for data, begins, ends in found:
        if len(begins):
            record = data[int(begins[0]) + HEADER_BYTES : int(ends[0]) - 4].tobytes()
            try:
                names = sorted(parse_any(record))
            except ValueError:
                return "; they are no tf.Examples"
            return f"; the first has {listed(names)}"
    return ""


def _places(sources: Iterable[RecordFileRange], total: int) -> Iterator[RecordFileRange]:
    """Yields ranges of files whose first records are looked at."""
    step = max(total // _PLACES, _BLOCK_BYTES)
    before = 0
    for source in sources:
        first = -(-before // step) * step
        inside = range(first - before, source.size, step)
        before += source.size
        if not source.size or not inside:
            continue
        yield from _within(source, inside)


def _within(source: RecordFileRange, offsets: range) -> Iterator[RecordFileRange]:
    if source.compression:
        yield source
    elif source.format in ROW_FORMATS and source.format not in DELIMITED:
        for part in cut_source(source, max(offsets.step, 1), CutOptions()):
            if isinstance(part, RecordFileRange):
                yield part
    else:
        is_table = source.format in DELIMITED
        for offset in offsets:
            start = (_row_after if is_table else _record_after)(source, offset)
            if start >= 0:
                yield replace(source, start=start)


def _row_after(source: RecordFileRange, offset: int) -> int:
    """Returns where a line of a table begins; one inside of quotes is no row, and is not used."""
    if not offset:
        return 0
    end = files.read_bytes(source.path, offset, _SEARCHED_BYTES).find(b"\n")
    return offset + end + 1 if end >= 0 and offset + end + 1 < source.size else -1


def _record_after(source: RecordFileRange, offset: int) -> int:
    """Returns where a record begins, -1 if none is found; its checksum says that it is one."""
    if not offset:
        return 0
    data = files.read_bytes(source.path, offset, _SEARCHED_BYTES)
    array = np.frombuffer(data, np.uint8)
    # The upper half of a length is zero.
    high = array[4:-8] | array[5:-7] | array[6:-6] | array[7:-5] if len(array) > 16 else array[:0]
    for at in np.flatnonzero(high == 0).tolist():
        if is_record_length(data[at : at + HEADER_BYTES]):
            return offset + at
    return -1
