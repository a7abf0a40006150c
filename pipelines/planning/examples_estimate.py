"""What `recordmill examples` would do: planned on the whole listing, measured on some megabytes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec

from recordmill.pipelines.examples_request import ExamplesRequest
from recordmill.pipelines.planning.estimate import Estimate, Step, show_bytes
from recordmill.pipelines.planning.examples_planner import (
    ExamplesInventory,
    ExamplesPlanner,
    record_item_bytes,
    tree_of_records,
)
from recordmill.pipelines.progress import resident_bytes
from recordmill.pipelines.temporary_folders import prefix
from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.output_spec import ShardSpec, SplitSpec
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.dataset.user_functions import MapSpec
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.examples.build_examples import RecordShardBuilder
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_shard_plan import plan_record_shards
from recordmill.transforms.examples.examples_spec import TableSpec
from recordmill.transforms.examples.record_source import RecordFileRange
from recordmill.transforms.examples.scatter import RECORD_LIMITS, RecordScatterer
from recordmill.transforms.examples.table_records import read_batches
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.storage import files

_SAMPLES = 16
_SAMPLE_BYTES = 1 << 26
_BLOCK_BYTES = 1 << 20
_WARM_BYTES = 1 << 18
_REMOTE_READ_SECONDS = 0.03  # of a range from object storage; not measured here


@dataclass(frozen=True, slots=True)
class _RecordSample:
    """Sums of a sample: stored bytes, bytes of records, records, and seconds of processor time."""

    stored_bytes: float
    record_bytes: int
    records: int
    scatter_seconds: float
    build_seconds: float


def _copy_sample(
    ranges: Iterator[RecordFileRange], tables: TableSpec, total: int, folder: str
) -> tuple[float, float]:
    """Copies the first records of files from all over the input to one file.

    Returns:
      The stored bytes that they are of, and the seconds that reading took.
    """
    wanted = min(_SAMPLE_BYTES, total)
    step, at, before = max(total // _SAMPLES, 1), 0, 0
    stored = seconds = 0.0
    with files.writing(files.join(folder, "sample")) as out:
        for source in ranges:
            before += source.size
            if before <= at or not source.size:
                continue
            at = before + step - before % step
            began = time.perf_counter()
            taken = 0
            for batch in read_batches(source, tables, _BLOCK_BYTES):
                out.write(b"".join(
                    batch.data[a:b].tobytes()
                    for a, b in zip(batch.begins.tolist(), batch.ends.tolist(), strict=True)
                ))  # fmt: skip
                taken += batch.used_bytes
                if taken >= wanted // _SAMPLES:
                    break
            seconds += time.perf_counter() - began
            stored += min(taken / max(source.text_bytes / max(source.size, 1), 1), source.size)
    return stored, seconds


def _measure(job: ExamplesJob, part: RecordFileRange, folder: str, stored: float) -> _RecordSample:
    work = files.join(folder, "job")
    order = "shuffle" if job.records.key else job.records.order
    records = msgspec.structs.replace(job.records, order=order, key="")
    job = replace(
        job, workspace=Workspace(output=work, work=work, staging=work),
        splits=(SplitSpec("train", 1.0, 1),), shards=ShardSpec(), max_rejected=1.0,
        map=MapSpec(), records=records,
    )  # fmt: skip
    tree = MergeTree(write_work_items(work, [[part]]))
    times = [time.process_time()]
    result = RecordScatterer(job).run(0)
    times.append(time.process_time())
    if not result.records[0]:
        return _RecordSample(stored, 0, 0, 0.0, 0.0)
    plan_record_shards(job, tree)
    shard = RecordShardBuilder(job, tree).build(0, 0)
    times.append(time.process_time())
    took = [after - before for before, after in pairwise(times)]
    return _RecordSample(stored, shard.record_bytes, shard.records, took[0], took[1])


def _sampled(planner: ExamplesPlanner, inventory: ExamplesInventory) -> tuple[_RecordSample, float]:
    """Returns what was measured, and the seconds that reading it took."""
    with tempfile.TemporaryDirectory(prefix=prefix()) as folder:
        stored, seconds = _copy_sample(
            planner.ranges(inventory), planner.job.tables, inventory.input_bytes, folder
        )
        path = files.join(folder, "sample")
        part = RecordFileRange(path, "sample", "tfrecord", "", files.size(path))
        if not part.size:
            raise UsageError(
                "no sample could be taken: the parts of the input that were read have no records"
            )
        # For the first time code is compiled and loaded.
        warm = replace(part, end=min(part.size, _WARM_BYTES))
        _measure(planner.job, warm, files.join(folder, "warm"), stored)
        return _measure(planner.job, part, files.join(folder, "whole"), stored), seconds


def estimate_examples(request: ExamplesRequest, *, workers: int) -> Estimate:
    """Returns what the job would do; nothing is written but to the system's temporary folder.

    Raises:
      UsageError: the input or a flag cannot be used.
    """
    planner = ExamplesPlanner(request)
    with planner.inspect() as inventory:
        job, input_bytes = planner.job, inventory.input_bytes
        target = record_item_bytes(input_bytes, workers)
        work_items = _count_items(planner.ranges(inventory), target)
        measured, read_seconds = _sampled(planner, inventory)
    scale = input_bytes / max(measured.stored_bytes, 1)
    record_bytes = scale * measured.record_bytes
    split_bytes = [int(record_bytes * split.share) for split in job.splits]
    shards = count_shards(split_bytes, job.splits, job.shards)
    tree = tree_of_records(job, work_items, input_bytes)
    reads = tree.range_reads(sum(shards))
    waiting = 0.0 if files.is_local(job.workspace.work) else reads * _REMOTE_READ_SECONDS
    steps = [Step("read", work_items, scale * (measured.scatter_seconds + read_seconds))]
    for level in range(1, tree.levels + 1):
        steps.append(Step("regroup", tree.run_count(level), scale * measured.build_seconds))
    steps.append(Step("write", sum(shards), scale * measured.build_seconds + waiting))
    megabytes = measured.record_bytes / 1e6
    return Estimate(
        inputs=f"{inventory.sources['files']:,} files, {show_bytes(inventory.sources['bytes'])}",
        sample=(
            f"{show_bytes(measured.record_bytes)}: read at "
            f"{megabytes / max(read_seconds, 1e-6):,.0f} MB/s, written to run files at "
            f"{megabytes / max(measured.scatter_seconds, 1e-6):,.0f} MB/s and to shards at "
            f"{megabytes / max(measured.build_seconds, 1e-6):,.0f} MB/s, by one process here"
        ),
        splits=tuple(
            (split.name, count, float(size))
            for split, count, size in zip(job.splits, shards, split_bytes, strict=True)
        ),
        records=scale * measured.records,
        steps=tuple(steps),
        regroups=tree.levels,
        range_reads=reads,
        temporary_bytes=record_bytes * min(2, tree.levels + 1),
        worker_bytes=(resident_bytes() or 0) + 2.0 * RECORD_LIMITS.run_bytes,
    )


def _count_items(ranges: Iterator[RecordFileRange], target: int) -> int:
    """Returns the number of work items, without reading files for the ends of their records."""
    items, held = 1, 0
    for source in ranges:
        size = source.text_bytes
        if not source.compression and size > target * 3 // 2:
            items += -(-size // target)
            continue
        items += held + size > target
        held = size if held + size > target else held + size
    return items
