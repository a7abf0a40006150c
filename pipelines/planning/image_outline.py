"""What `recordmill plan` knows of an image job.

References come in order of their hash, so the first ones are a random sample of the input.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from recordmill.pipelines.planning.image_inputs import AssignedImage, ImageInventory
from recordmill.pipelines.planning.image_shards import count_work_items
from recordmill.pipelines.planning.outline import Outline, Sample, show_bytes
from recordmill.transforms.dataset.output_spec import SplitSpec
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.images.image_job import ImageJob, passed_over_json
from recordmill.transforms.images.image_shard_plan import ImageShardPlan, ImageSplit
from recordmill.transforms.images.image_stages import image_stages
from recordmill.transforms.images.listing.byte_rows import pack_name
from recordmill.transforms.images.listing.unpacking import Unpack
from recordmill.transforms.images.reference_files import write_references
from recordmill.transforms.images.references import ImageReference
from recordmill.transforms.images.shard_cutting import cut_shards
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.storage import files

_SAMPLE_RECORDS = 512
_SAMPLE_IMAGES = 256
_SAMPLES = 8
_LEAST_IMAGES = 4  # of a sample


class ImageOutline(Outline):
    """An image job; its samples are counted in images.

    Args:
      job: the job.
      source: of the input.
      inventory: of the input.
      images: with their splits.
      workers: that the job is cut for.
    """

    def __init__(
        self,
        job: ImageJob,
        source: SourceSpec,
        inventory: ImageInventory,
        images: Iterator[AssignedImage],
        *,
        workers: int,
    ) -> None:
        self._job = job
        self._source = source
        self._packs = inventory.packs
        record_bytes = [array("q") for _ in job.splits]
        self._lines: list[str] = []
        self._reference_bytes = 0
        for image in images:
            record_bytes[image.split].append(image.record_bytes)
            self._reference_bytes += len(image.line) + 1
            if len(self._lines) < _SAMPLE_IMAGES and self._has_pack(image.line):
                self._lines.append(image.line)
        self._splits = cut_shards(job, record_bytes)
        self._work_items, self._parts = count_work_items(self._splits, workers)
        self._packed_bytes = inventory.summary.image_bytes if self._packs else 0
        rejects = inventory.rejects
        count = sum(split.images for split in self._splits)
        listed = f"{count:,} images, {show_bytes(inventory.summary.image_bytes)}"
        self.inputs = f"{listed}; {rejects.reasons.total():,} rejected so far"
        self.unit = "images"
        self.statistics = {
            "inputs": {
                "passed_over": passed_over_json(inventory.passed_over_kinds),
                "rejected": {
                    reason: {"inputs": number, "first": rejects.first[reason]}
                    for reason, number in sorted(rejects.reasons.items())
                },
            }
        }

    def _has_pack(self, line: str) -> bool:
        """Tells whether an image can be read when the first pack is unpacked."""
        return not self._packs or f'"{pack_name(0)}"' in line

    def samples(self, folder: str) -> dict[str, list[Sample]]:
        """Returns samples of augmented images, which take longer, and of others, where both are."""
        del folder
        found: dict[str, list[Sample]] = {}
        for augmented, name in ((False, "the sample"), (True, "the augmented sample")):
            splits = {
                split.name: split.images
                for split in self._splits
                if (split.name in self._job.augment_splits) is augmented
            }
            whole = sum(splits.values())
            if not whole:
                continue
            job = replace(self._job, augment_splits=("train",) if augmented else ())
            most = max(_LEAST_IMAGES, _SAMPLE_RECORDS // len(job.variants("train")))
            lines = self._lines[:most]
            # A pack is unpacked once.
            count = 1 if self._packs else max(1, min(_SAMPLES, len(lines) // _LEAST_IMAGES))
            shares = {split: images / whole for split, images in splits.items()}
            local = files.is_local(ImageReference.from_line(lines[0]).image.path)
            found[name] = [
                Sample(partial(self._begin, job, part), len(part), whole, shares, local)
                for part in (lines[first::count] for first in range(count))
            ]
        return found

    def _begin(
        self, job: ImageJob, lines: Sequence[str], workspace: Workspace
    ) -> tuple[ImageJob, Sequence[Stage[Any]]]:
        job = replace(
            job, workspace=workspace, splits=(SplitSpec("train", 1.0),), max_rejected=1.0,
            statistics_images=0,
        )  # fmt: skip
        copies = len(job.variants("train"))
        split = ImageSplit("train", len(lines), copies, (0, len(lines) * copies))
        write_references(workspace.inputs_folder, 0, 0, lines)
        job.write_shard_plan(ImageShardPlan((split,)))
        stages: list[Stage[Any]] = []
        if self._packs:
            write_work_items(workspace.inputs_folder, self._packs[:1])
            stages.append(Unpack(job, self._source, 1))
        return job, [*stages, *image_stages(job, parts=1)]

    def shards(self, split_bytes: Mapping[str, float]) -> dict[str, int]:
        """Returns the shards, which listing has counted."""
        del split_bytes
        return {split.name: split.num_shards for split in self._splits}

    def steps(
        self, shards: Mapping[str, int], work_bytes: Mapping[str, float]
    ) -> Iterator[tuple[str, str, int]]:
        """Yields the steps; copying takes no time beside decoding."""
        del work_bytes
        if self._packs:
            yield "Unpack", "unpack", len(self._packs)
        yield "Build", "write", self._work_items
        if self._parts > 1:
            yield "Join", "join", sum(shards.values())

    def range_reads(self, shards: Mapping[str, int]) -> int:
        """Returns one for each record."""
        del shards
        return sum(split.images * split.copies for split in self._splits)

    def temporary_bytes(self, work_bytes: Mapping[str, float], output_bytes: float) -> float:
        """Returns the bytes of references, packs, and parts of shards."""
        del work_bytes
        parts = output_bytes if self._parts > 1 else 0.0
        return self._reference_bytes + self._packed_bytes + parts
