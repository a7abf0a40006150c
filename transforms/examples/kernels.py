"""The kernels of a job of existing records, loaded by one process for all of its forks."""

from __future__ import annotations

import numpy as np

from recordmill.records.codec.content_hash import hash_contents
from recordmill.records.codec.framing import (
    OVERHEAD_BYTES,
    checksums_between,
    index_lines,
    scan_records,
)
from recordmill.transforms.examples.run_records import (
    KeyedRecords,
    find_in_range,
    order_records,
    sorted_for_run,
)
from recordmill.transforms.examples.schema_survey import SchemaSurvey

_EMPTY_RECORD = bytes(8) + bytes.fromhex("29039807d8ea82a2")  # with its frame


def load_kernels() -> None:
    """Calls each kernel once: their machine code is loaded from the cache, or compiled."""
    data = np.frombuffer(bytearray(2 * _EMPTY_RECORD), np.uint8)
    offsets, _, _ = scan_records(data)
    begins, ends = offsets[:-1], offsets[1:]
    SchemaSurvey().add(data, begins, ends)
    contents = hash_contents(data, begins, ends)
    records = KeyedRecords(data, begins, ends, contents[:, 0], contents[:, 1]).compact()
    run = sorted_for_run([records])[0]
    checksums_between(run.data, run.offsets)
    found = find_in_range(run.data, 0, (1 << 64) - 1)
    ordered = order_records([found], with_header=False)
    index_lines(ordered.offsets)
    if len(ordered.data) != 2 * OVERHEAD_BYTES:
        raise AssertionError("kernels lose records")
