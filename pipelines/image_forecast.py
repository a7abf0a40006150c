"""What `recordmill images` would do: planned on the whole listing, measured on some hundred images.

References come in order of their hash, so the first ones are a random sample of the input.
"""

from __future__ import annotations

import tempfile
import time
from array import array
from dataclasses import dataclass, replace

from recordmill.pipelines.forecast import Forecast, Step, show_bytes
from recordmill.pipelines.image_options import ImageRequest
from recordmill.pipelines.image_planning import ImagePlanner, count_tasks
from recordmill.pipelines.progress import resident_bytes
from recordmill.records.errors import UsageError
from recordmill.records.manifest import ShardInfo
from recordmill.records.shards import ShardName
from recordmill.transforms import files
from recordmill.transforms.image_build import ShardBuilder
from recordmill.transforms.image_job import ImageJob
from recordmill.transforms.image_plan import ImageSplit, splits_to_json, write_references
from recordmill.transforms.image_references import ImageReference
from recordmill.transforms.job import SplitSpec, read_json, write_json

_SAMPLE_RECORDS = 512
_SAMPLE_IMAGES = 256
_WARM_IMAGES = 4


@dataclass(frozen=True, slots=True)
class _Measured:
    """A sample: its shard, and the seconds that it took."""

    shard: ShardInfo
    seconds: float


def _measure(job: ImageJob, lines: list[str], folder: str) -> _Measured:
    """Makes one shard of some images."""
    job = replace(
        job, output=folder, work=folder, staging=folder, splits=(SplitSpec("train", 1.0),),
        max_rejected=1.0,
    )  # fmt: skip
    copies = len(job.variants)
    split = ImageSplit("train", len(lines), copies, (0, len(lines) * copies))
    write_references(folder, 0, 0, lines)
    write_json(job.shard_plan_path, {"splits": splits_to_json([split])})
    builder = ShardBuilder(job, 1)
    # Processor time is not blurred by others; waiting for storage counts where there is any.
    local = files.is_local(ImageReference.from_line(lines[0]).image.path)
    clock = time.process_time if local else time.perf_counter
    began = clock()
    try:
        builder.build(0)
    finally:
        builder.close()
    seconds = clock() - began
    content = read_json(job.done_path(ShardName("train", 0, 1)))
    return _Measured(ShardInfo(**content["shard"]), seconds)


def _sampled(job: ImageJob, lines: list[str]) -> _Measured:
    with tempfile.TemporaryDirectory(prefix="recordmill-plan-") as folder:
        # For the first time code is compiled and loaded.
        _measure(job, lines[:_WARM_IMAGES], files.join(folder, "warm"))
        found = _measure(job, lines, files.join(folder, "job"))
    if not found.shard.records:
        raise UsageError(
            f"none of {len(lines)} images of a sample can be used; `recordmill images` with "
            "--max_rejected=1 tells why"
        )
    return found


def forecast_images(request: ImageRequest, *, workers: int) -> Forecast:
    """Returns what the job would do; nothing is written but to the system's temporary folder.

    Raises:
      UsageError: the input or a flag cannot be used.
    """
    planner = ImagePlanner(request)
    with planner.inspect() as inventory:
        job, copies = planner.job, len(planner.job.variants)
        weights = [array("q") for _ in job.splits]
        wanted = max(_WARM_IMAGES, min(_SAMPLE_IMAGES, _SAMPLE_RECORDS // copies))
        lines: list[str] = []
        reference_bytes = 0
        for split, weight, line in planner.assigned(inventory):
            weights[split].append(weight)
            reference_bytes += len(line) + 1
            if len(lines) < wanted:
                lines.append(line)
    splits = planner.cut(weights)
    tasks, parts = count_tasks(splits, workers)
    found = _sampled(job, lines)
    rejected = sum(inventory.seen.rejected.values())
    images = sum(split.images for split in splits)
    units = len(lines) * copies
    record_bytes, kept = found.shard.record_bytes / units, found.shard.records / units
    output_bytes = record_bytes * images * copies
    steps = [Step("write", tasks, found.seconds / units * images * copies)]
    if parts > 1:
        # Files are copied, in a time that does not count beside that of their making.
        steps.append(Step("join", tasks // parts, 0.0))
    return Forecast(
        inputs=(
            f"{images:,} images, {show_bytes(inventory.seen.bytes)}; {rejected:,} rejected so far"
        ),
        sample=(
            f"{len(lines)} images: {units / found.seconds:,.0f} records/s, "
            f"{found.shard.record_bytes / 1e6 / found.seconds:,.1f} MB/s, {1 - kept:.1%} rejected, "
            "by one process here"
        ),
        splits=tuple(
            (split.name, split.shards, record_bytes * split.images * copies) for split in splits
        ),
        records=kept * images * copies,
        steps=tuple(steps),
        regroups=0,
        range_reads=images * copies,
        temporary_bytes=reference_bytes + (output_bytes if parts > 1 else 0),
        worker_bytes=resident_bytes(),
    )
