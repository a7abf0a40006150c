"""What `recordmill text` would do: planned on the whole listing, measured on some megabytes."""

from __future__ import annotations

import operator
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import msgspec

from recordmill.pipelines.planning.column_sample import sample_columns
from recordmill.pipelines.planning.estimate import Estimate, Step, show_bytes
from recordmill.pipelines.planning.item_sizes import work_item_bytes
from recordmill.pipelines.planning.text_planner import (
    TextInventory,
    TextPlanner,
    tree_for_job,
)
from recordmill.pipelines.progress import resident_bytes
from recordmill.pipelines.temporary_folders import prefix
from recordmill.pipelines.text_request import TextRequest
from recordmill.records.errors import UsageError
from recordmill.records.shards import ShardName
from recordmill.transforms.dataset.output_spec import ShardSpec, SplitSpec
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.dataset.shard_writer import ShardDescription
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.regroup import regroup
from recordmill.transforms.sources.blocks import BROKEN_STREAM
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.source_list import SourceList
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import COLUMN_FORMATS, SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.unpacking import open_decompressed
from recordmill.transforms.text.build_text_shards import TextShardBuilder
from recordmill.transforms.text.cleaning.duplicates import PART_BYTES
from recordmill.transforms.text.cleaning.find_duplicates import SearchCost, find_duplicates
from recordmill.transforms.text.scatter import Scatterer
from recordmill.transforms.text.text_job import TextJob, summarize_examples
from recordmill.transforms.text.text_shard_plan import plan_shards
from recordmill.transforms.text.text_state import TextShardStatistics

_SAMPLES = 32
_SAMPLE_BYTES = 1 << 24
_SAMPLE_COPIED_BYTES = 1 << 25
_WARM_BYTES = 1 << 16
_WORK_ITEMS = 4
_MEMORY_PER_TASK_BYTE = 2.3  # measured by benchmarks/text.py
_REMOTE_READ_SECONDS = 0.03  # of a range from object storage; not measured here


@dataclass(frozen=True, slots=True)
class _TextSample:
    """Sums of a sample: bytes, records and seconds of processor time, which others do not blur.

    `statistics` are those of `statistics.json`.
    """

    text_bytes: int
    run_bytes: int
    output_bytes: int
    records: int
    statistics: dict[str, Any]
    duplicates: SearchCost
    scatter_seconds: float
    regroup_seconds: float
    build_seconds: float


def _sample_ranges(
    sources: SourceList, wanted: int, *, seekable: bool
) -> Iterator[tuple[SourceRange, int, int]]:
    """Yields files, from where on to read them and how much: evenly over all text.

    Tables, compressed files and what cannot be cut are read from their beginning.
    """
    samples = max(1, min(_SAMPLES, wanted // _WARM_BYTES))
    step = max(sources.text_bytes // samples, _WARM_BYTES)
    size = min(wanted // samples, step)
    at = before = 0
    for source in sources:
        end = before + source.text_bytes
        count = max(0, -(-(end - at) // step))
        if seekable and not source.compression and source.format in ("text", "jsonl"):
            for start in range(at, at + count * step, step):
                yield source, start - before, size
        elif count:
            yield source, 0, count * size
        at += count * step
        before = end


def _read_part(source: SourceRange, offset: int, size: int, *, whole_lines: bool) -> bytes:
    """Returns about `size` bytes of text, from the first line that begins behind `offset`."""
    with files.open_read(source.path, offset) as stored:
        text = open_decompressed(stored, source.compression)
        data = text.read(size)
        at_end = not text.read(1)
    if whole_lines and offset:
        data = data[data.find(b"\n") + 1 :]
    if whole_lines and not at_end:
        data = data[: data.rfind(b"\n") + 1] or data
    return data


def _take_sample(
    job: TextJob, sources: SourceList, folder: str, wanted: int
) -> tuple[list[SourceRange], float]:
    """Copies parts of the input; returns them, and the seconds that reading took."""
    parts: list[SourceRange] = []
    seconds = 0.0
    splittable = job.documents.splittable
    for source, offset, size in _sample_ranges(sources, wanted, seekable=splittable):
        began = time.perf_counter()
        if source.format in COLUMN_FORMATS:
            parts += sample_columns(source, job.documents, folder, len(parts), size)
            seconds += time.perf_counter() - began
            continue
        try:
            data = _read_part(source, offset, size, whole_lines=splittable)
        except BROKEN_STREAM:
            continue  # a reject of the job, not of its estimate
        seconds += time.perf_counter() - began
        path = files.join(folder, f"part-{len(parts):03d}")
        files.write_bytes(path, data)
        parts.append(SourceRange(path, f"{len(parts):03d}", source.format, "", len(data)))
    return parts, seconds


def _measure(job: TextJob, vocabulary: bytes, parts: list[SourceRange], folder: str) -> _TextSample:
    """Runs all stages on some files, one after the other."""
    work = files.join(folder, "job")
    job = replace(
        job, workspace=Workspace(output=work, work=work, staging=work),
        splits=(SplitSpec("train", 1.0, 1),),
        shards=ShardSpec(), max_rejected=1.0, dupe_splits=None,
        documents=msgspec.structs.replace(job.documents, split_from="", split_names=()),
    )  # fmt: skip
    files.write_bytes(job.vocabulary_path, vocabulary)
    work_items = [parts[i::_WORK_ITEMS] for i in range(min(_WORK_ITEMS, len(parts)))]
    tree = MergeTree(write_work_items(work, work_items), max_fan_in=1, fan_in=_WORK_ITEMS)
    duplicates = find_duplicates(job, tree.work_items)
    scatterer = Scatterer(job)
    times = [time.process_time()]
    for number in range(tree.work_items):
        scatterer.run(number)
    times.append(time.process_time())
    for level in range(1, tree.levels + 1):
        for number in range(tree.run_count(level)):
            regroup(job, tree, level, number)
    times.append(time.process_time())
    plan_shards(job, tree)
    shard = TextShardBuilder(job, tree).build(0, 0)
    times.append(time.process_time())
    runs = files.list_files(files.join(work, "runs-0"))
    done = job.workspace.done_path(ShardName("train", 0, 1))
    return _TextSample(
        sum(part.size for part in parts),
        sum(size for path, size in runs.items() if path.endswith(".bin")),
        shard.record_bytes,
        shard.records,
        summarize_examples(
            shard.records,
            job.workspace.need_state(done, ShardDescription[TextShardStatistics]).statistics,
            padded_length=job.objective.padded_length,
            packed_tokens=job.objective.packed_tokens,
        ),
        duplicates,
        *(after - before for before, after in pairwise(times)),
    )


def _sampled(job: TextJob, inventory: TextInventory) -> tuple[_TextSample, float]:
    """Returns what was measured, and the seconds that reading it took."""
    wanted = min(_SAMPLE_BYTES, max(_SAMPLE_COPIED_BYTES // job.objective.dupe_factor, _WARM_BYTES))
    with tempfile.TemporaryDirectory(prefix=prefix()) as folder:
        parts, seconds = _take_sample(job, inventory.files, folder, wanted)
        parts = [part for part in parts if part.size]
        if not parts:
            raise UsageError(
                "no sample could be taken: the parts of the input that were read are empty"
            )
        # For the first time code is compiled and loaded.
        warm = [replace(part, end=min(part.size, _WARM_BYTES)) for part in parts[:1]]
        _measure(job, inventory.vocabulary, warm, files.join(folder, "warm"))
        return _measure(job, inventory.vocabulary, parts, folder), seconds


def _count_work_items(sources: SourceList, *, target_bytes: int, splittable: bool) -> int:
    """Returns the number of work items, without reading tables for the ends of their records."""
    as_text = (
        source if source.format in COLUMN_FORMATS else replace(source, format="text")
        for source in sources
    )  # fmt: skip
    return sum(1 for _ in cut_work_items(as_text, target_bytes=target_bytes, splittable=splittable))


def estimate_text(request: TextRequest, *, workers: int) -> Estimate:
    """Returns what the job would do; nothing is written but to the system's temporary folder.

    Raises:
      UsageError: the input or a flag cannot be used.
      RunError: the sample has no text.
    """
    planner = TextPlanner(request)
    with planner.inspect() as inventory:
        job, text_bytes = planner.job, inventory.input_bytes
        target = work_item_bytes(text_bytes, workers)
        work_items = _count_work_items(
            inventory.files, target_bytes=target, splittable=job.documents.splittable
        )
        measured, read_seconds = _sampled(job, inventory)
    tree = tree_for_job(job, work_items, text_bytes)
    scale = text_bytes / measured.text_bytes
    run_bytes = scale * measured.run_bytes
    # What was measured has all copies, which some splits do not get.
    parts = [
        split.share * copies / job.objective.dupe_factor
        for split, copies in zip(job.splits, job.copies, strict=True)
    ]
    split_bytes = [int(scale * measured.output_bytes * part) for part in parts]
    shards = count_shards(split_bytes, job.splits, job.shards)
    reads = tree.range_reads(sum(map(operator.mul, shards, job.copies)))
    waiting = 0.0 if files.is_local(job.workspace.work) else reads * _REMOTE_READ_SECONDS
    steps = []
    hash_bytes = scale * measured.duplicates.hash_bytes
    if job.clean.deduplicates:
        seconds = scale * (measured.duplicates.hash_seconds + read_seconds)
        steps.append(Step("fingerprint", work_items, seconds))
        ranges = max(1, -(-int(hash_bytes) // PART_BYTES))
        steps.append(Step("compare", ranges, scale * measured.duplicates.compare_seconds))
    steps.append(Step("read", work_items, scale * (measured.scatter_seconds + read_seconds)))
    for level in range(1, tree.levels + 1):
        steps.append(Step("regroup", tree.run_count(level), scale * measured.regroup_seconds))
    steps.append(Step("write", sum(shards), scale * sum(parts) * measured.build_seconds + waiting))
    megabytes = measured.text_bytes / 1e6
    return Estimate(
        inputs=f"{inventory.sources['files']:,} files, {show_bytes(inventory.sources['bytes'])}",
        sample=(
            f"{show_bytes(measured.text_bytes)}: read at "
            f"{megabytes / max(read_seconds, 1e-6):,.0f} MB/s, tokenized at "
            f"{megabytes / measured.scatter_seconds:,.1f} MB/s, written at "
            f"{measured.output_bytes / 1e6 / measured.build_seconds:,.1f} MB/s, by one process here"
        ),
        splits=tuple(
            (split.name, count, float(size_bytes))
            for split, count, size_bytes in zip(job.splits, shards, split_bytes, strict=True)
        ),
        records=scale * sum(parts) * measured.records,
        steps=tuple(steps),
        regroups=tree.levels,
        range_reads=reads,
        temporary_bytes=run_bytes * min(2, tree.levels + 1) + hash_bytes,
        worker_bytes=(resident_bytes() or 0) + _MEMORY_PER_TASK_BYTE * target,
        statistics={"the sample": measured.statistics},
    )
