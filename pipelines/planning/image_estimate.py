"""Estimates what `recordmill images` will take, by listing the input and building a sample of it.

References come in order of their hash, so the first ones are a random sample of the input.
"""

from __future__ import annotations

import tempfile
import time
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from recordmill.pipelines.image_request import ImageRequest
from recordmill.pipelines.planning.estimate import Estimate, Step, show_bytes
from recordmill.pipelines.planning.image_planner import ImagePlanner
from recordmill.pipelines.planning.image_shards import count_work_items
from recordmill.pipelines.progress import resident_bytes
from recordmill.pipelines.temporary_folders import prefix
from recordmill.records.errors import UsageError
from recordmill.records.manifest import ShardInfo
from recordmill.transforms.dataset.output_spec import SplitSpec
from recordmill.transforms.dataset.shard_writer import ShardDescription
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.images.build_image_shards import ImageShardBuilder
from recordmill.transforms.images.image_job import ImageJob, passed_over_json
from recordmill.transforms.images.image_shard_plan import ImageShardPlan, ImageSplit
from recordmill.transforms.images.listing.byte_rows import pack_name
from recordmill.transforms.images.listing.unpacking import unpack
from recordmill.transforms.images.reference_files import write_references
from recordmill.transforms.images.references import ImageReference
from recordmill.transforms.images.shard_cutting import cut_shards
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.images.statistics import ImageStatistics
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files

_SAMPLE_RECORDS = 512
_SAMPLE_IMAGES = 256
_WARM_IMAGES = 4


@dataclass(frozen=True, slots=True)
class _ImageSample:
    """A sample that was built into a shard.

    Attributes:
      shard: that shard.
      statistics: of its images.
      seconds: that it took.
      slots: how many records it would have if no image were rejected.
    """

    shard: ShardInfo
    statistics: ImageStatistics
    seconds: float
    slots: int

    @property
    def mean_bytes(self) -> float:
        """The bytes for each example slot."""
        return self.shard.record_bytes / self.slots

    @property
    def mean_seconds(self) -> float:
        """The seconds for each example slot."""
        return self.seconds / self.slots

    @property
    def kept(self) -> float:
        """The share of example slots that become records."""
        return self.shard.records / self.slots


class _Packs(NamedTuple):
    """The ranges of rows that images in columns are unpacked from, and the input that they are of.

    Samples are images of the first pack, so that no other must be unpacked.
    """

    ranges: list[list[SourceRange]]
    source: SourceSpec

    def holds(self, line: str) -> bool:
        """Tells whether a sample may have an image."""
        return not self.ranges or f'"{pack_name(0)}"' in line

    def write_first(self, job: ImageJob) -> None:
        """Unpacks the first one."""
        if self.ranges:
            write_work_items(job.workspace.inputs_folder, self.ranges[:1])
            unpack(job, self.source, 0)


def _measure(job: ImageJob, lines: list[str], folder: str, packs: _Packs) -> _ImageSample:
    """Builds one shard of some images, and measures the time."""
    job = replace(
        job, workspace=Workspace(output=folder, work=folder, staging=folder),
        splits=(SplitSpec("train", 1.0),),
        max_rejected=1.0,
    )  # fmt: skip
    copies = len(job.variants("train"))
    split = ImageSplit("train", len(lines), copies, (0, len(lines) * copies))
    write_references(folder, 0, 0, lines)
    job.write_shard_plan(ImageShardPlan((split,)))
    packs.write_first(job)
    builder = ImageShardBuilder(job, 1)
    # Processor time does not depend on other processes; waiting for remote storage must count.
    local = files.is_local(ImageReference.from_line(lines[0]).image.path)
    clock = time.process_time if local else time.perf_counter
    began = clock()
    try:
        builder.build(0)
    finally:
        builder.close()
    seconds = clock() - began
    path = job.workspace.done_path(job.shard_name("train", 0, 1))
    done = job.workspace.need_state(path, ShardDescription[ImageStatistics])
    return _ImageSample(done.shard, done.statistics, seconds, len(lines) * copies)


def _measure_sample(
    job: ImageJob, lines: list[str], packs: _Packs, *, augmented: bool
) -> _ImageSample:
    """Builds a sample as an augmented split would be built, or as another."""
    job = replace(job, augment_splits=("train",) if augmented else ())
    lines = lines[: max(_WARM_IMAGES, _SAMPLE_RECORDS // len(job.variants("train")))]
    with tempfile.TemporaryDirectory(prefix=prefix()) as folder:
        # The first run would also measure the compiling and loading of code.
        _measure(job, lines[:_WARM_IMAGES], files.join(folder, "warm"), packs)
        sample = _measure(job, lines, files.join(folder, "job"), packs)
    if not sample.shard.records:
        raise UsageError(
            f"none of {len(lines)} images of a sample can be used; `recordmill images` with "
            "--max_rejected=1 reports why"
        )
    return sample


def estimate_images(request: ImageRequest, *, workers: int) -> Estimate:
    """Estimates a job; only the system's temporary folder is written to.

    Raises:
      UsageError: the input or a flag cannot be used.
    """
    planner = ImagePlanner(request)
    with planner.inspect() as inventory:
        job, packs = planner.job, _Packs(inventory.packs, planner.source)
        record_bytes = [array("q") for _ in job.splits]
        lines: list[str] = []
        reference_bytes = 0
        for image in planner.assign_splits(inventory):
            record_bytes[image.split].append(image.record_bytes)
            reference_bytes += len(image.line) + 1
            if len(lines) < _SAMPLE_IMAGES and packs.holds(image.line):
                lines.append(image.line)
    splits = cut_shards(job, record_bytes)
    work_items, parts = count_work_items(splits, workers)
    # Augmented images take longer, and are encoded anew: a sample of each kind.
    kinds = {split.name: split.name in job.augment_splits for split in splits}
    samples = {
        kind: _measure_sample(job, lines, packs, augmented=kind)
        for kind in sorted(set(kinds.values()))
    }
    rejected = inventory.rejects.counts.total()
    slots = {split.name: split.images * split.copies for split in splits}
    split_bytes = {name: samples[kinds[name]].mean_bytes * slots[name] for name in slots}
    seconds = sum(samples[kinds[name]].mean_seconds * slots[name] for name in slots)
    packed_bytes = inventory.summary.image_bytes if packs.ranges else 0
    images = sum(split.images for split in splits)
    listed = f"{images:,} images, {show_bytes(inventory.summary.image_bytes)}"
    return Estimate(
        inputs=f"{listed}; {rejected:,} rejected so far",
        sample=_describe_samples(len(lines), samples.values()),
        splits=tuple((split.name, split.num_shards, split_bytes[split.name]) for split in splits),
        records=sum(samples[kinds[name]].kept * slots[name] for name in slots),
        steps=tuple(_steps(work_items, parts, len(packs.ranges), seconds)),
        regroups=0,
        range_reads=sum(slots.values()),
        temporary_bytes=reference_bytes
        + packed_bytes
        + (sum(split_bytes.values()) if parts > 1 else 0),
        worker_bytes=(resident_bytes() or 0),
        statistics={
            **_summaries(job, samples),
            "inputs": {
                "passed_over": passed_over_json(inventory.passed_over_kinds),
                "rejected": {
                    reason: {"inputs": count, "first": inventory.rejects.first[reason]}
                    for reason, count in sorted(inventory.rejects.counts.items())
                },
            },
        },
    )


def _steps(work_items: int, parts: int, packs: int, seconds: float) -> Iterator[Step]:
    """Yields the steps; files are copied in a time that does not count beside that of decoding."""
    if packs:
        yield Step("unpack", packs, 0.0)
    yield Step("write", work_items, seconds)
    if parts > 1:
        yield Step("join", work_items // parts, 0.0)


def _summaries(job: ImageJob, samples: dict[bool, _ImageSample]) -> dict[str, Any]:
    """Returns the statistics of each kind of sample."""
    names = {True: "the augmented sample", False: "the sample"}
    return {
        names[kind]: sample.statistics.summarize(sample.shard.records, job.images.classes)
        for kind, sample in samples.items()
    }


def _describe_samples(images: int, samples: Collection[_ImageSample]) -> str:
    slots = sum(sample.slots for sample in samples)
    seconds = sum(sample.seconds for sample in samples)
    megabytes = sum(sample.shard.record_bytes for sample in samples) / 1e6 / seconds
    kept = sum(sample.shard.records for sample in samples) / slots
    return (
        f"{images} images: {slots / seconds:,.0f} records/s, {megabytes:,.1f} MB/s, "
        f"{1 - kept:.1%} rejected, by one process here"
    )
