"""The image job of a PCollection: what only its images tell, and the plan of its shards."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import msgspec
import numpy as np
from msgspec import structs

from recordmill.records.errors import RunError, UsageError
from recordmill.records.hashing import fingerprint64
from recordmill.records.state import Count
from recordmill.transforms.dataset.element_sink import SpoolFile
from recordmill.transforms.dataset.error_budget import RejectList, check_budget
from recordmill.transforms.dataset.labels import (
    MAX_CLASSES,
    check_printable,
    first_fraction,
    forms_problem,
    sorted_labels,
)
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.dataset.splits import choose_splits
from recordmill.transforms.images.collecting import (
    CollectedImage,
    CollectedReject,
    parse_row,
    read_rows,
)
from recordmill.transforms.images.image_job import ImageJob
from recordmill.transforms.images.image_shard_plan import ImageShardPlan, ImageSplit
from recordmill.transforms.images.image_spec import NO_CLASS, ImageSpec, LabelNumbering
from recordmill.transforms.images.mask_samples import check_values, mask_labels, sample_masks
from recordmill.transforms.images.reference_files import ReferenceWriter
from recordmill.transforms.images.shard_cutting import cut_shards
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row, sort_rows

_BATCH_ROWS = 1024
_WORK_ITEMS = 32  # that a dataset of few shards is cut into: how many workers there are is unknown
_PART_RECORDS = 64  # of a part at least


class _LabelNumbers(msgspec.Struct, frozen=True):
    """The number of each label."""

    labels: Mapping[str, Count]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedImageJob(ImageJob):
    """An image job whose input is a PCollection.

    Attributes:
      numbering: how labels get their numbers, once all images are known.
    """

    numbering: LabelNumbering = field(default_factory=LabelNumbering)

    @property
    def lists_labels(self) -> bool:
        """Whether images have labels that are names of classes."""
        return not (self.images.numbers or self.images.unlabeled)

    def completed(self) -> CollectedImageJob:
        """Returns the job with its labels, which are known once all images are written."""
        labels = self.workspace.need_state(self.labels_path, _LabelNumbers).labels
        return replace(self, images=structs.replace(self.images, labels=labels))

    @property
    def labels_path(self) -> str:
        """The numbers of labels; written with the shard plan."""
        return files.join(self.workspace.work, "labels.json")


@dataclass
class _Sums:
    """Sums over the rows, complete once they are sorted."""

    labels: set[str] = field(default_factory=set)
    images: int = 0
    regions: int = 0
    masks: int = 0

    def add(self, row: Row) -> None:
        image = parse_row(row)
        if isinstance(image, CollectedReject):
            return
        self.images += 1
        self.regions += image.regions
        self.masks += image.masks
        if self.labels.issuperset(image.labels):
            return
        self.labels.update(image.labels)
        if len(self.labels) > MAX_CLASSES:
            raise RunError(
                f"images have more than {MAX_CLASSES:,} different labels, such as "
                f"{min(self.labels)!r}; give ImageSpec(numbers=True) if they are numbers to be "
                "predicted"
            )


def plan_collected(
    job: CollectedImageJob, spooled: Sequence[SpoolFile], *, named: bool = False
) -> ImageShardPlan:
    """Writes the references in order of their hash, the labels and the shard plan.

    Memory: what sorting needs, and 8 bytes for each image.

    Args:
      job: the job.
      spooled: the files of all bundles.
      named: each image names its split, and none was drawn.

    Raises:
      RunError: there is no image that can be used, or the shards or labels cannot be made of them.
    """
    sums = _Sums()

    def rows() -> Iterator[Row]:
        for row in read_rows(job, spooled):
            sums.add(row)
            yield row

    with RejectList(job, 0) as rejects:
        images = (parse_row(row) for row in sort_rows(rows()))
        first = _take_rejects(images, rejects)
        rejected = rejects.reasons
        if first is None:
            found = ", ".join(f"{reason} {count}" for reason, count in sorted(rejected.items()))
            raise RunError(
                f"the pipeline gave no image that can be used: {found or 'it gave none at all'}"
            )
        sample = list(islice(images, _BATCH_ROWS - 1))
        try:
            labels = _labels(job, sums, [first, *sample])
            job.workspace.write_state(job.labels_path, _LabelNumbers(labels))
            sizes = _write_references(job, chain([first], sample, images))
            splits = cut_shards(job.completed(), sizes, named=named)
        except UsageError as error:
            raise RunError(str(error)) from error
        rejected_file = rejects.write() if rejected else None
    check_budget(job, accepted=sums.images, reasons=rejected)
    plan = ImageShardPlan(tuple(splits), rejected, rejected_file, parts=_count_parts(splits))
    job.write_shard_plan(plan)
    return plan


def _take_rejects(
    images: Iterator[CollectedImage | CollectedReject], rejects: RejectList
) -> CollectedImage | None:
    """Adds rejects, which come first; returns the first image."""
    for item in images:
        if isinstance(item, CollectedImage):
            return item
        rejects.add([Reject(item.name, 0, "list", item.reason, item.detail)])
    return None


def _labels(
    job: CollectedImageJob, sums: _Sums, sample: Sequence[CollectedImage | CollectedReject]
) -> dict[str, int]:
    """Returns the numbers of labels: the given ones, or those of the names that occur, sorted.

    Raises:
      UsageError: a label cannot be written, or labels or masks are no classes.
    """
    images = job.images
    names = sorted_labels(sums.labels)
    check_printable(names)
    if images.task == "segmentation":
        first_label = 1 if job.numbering.first_label is None else job.numbering.first_label
        labels = dict(images.labels) or mask_labels(
            images.mask_classes, names, first_label=first_label, regions=bool(sums.regions)
        )
        if sums.masks:
            lines = (item.line for item in sample if isinstance(item, CollectedImage))
            last = max(labels.values(), default=NO_CLASS)
            values = sample_masks(lines, images.decode)
            check_values(values, images.mask_classes, last=last, implied=False)
        return labels
    if images.labels or images.numbers or images.unlabeled:
        return dict(images.labels)
    if images.task == "classification":
        if fraction := first_fraction(names):
            raise UsageError(
                f"labels must be classes, and {len(names)} different ones occur, such as "
                f"{fraction}; give ImageSpec(numbers=True) if they are numbers to be predicted"
            )
        if problem := forms_problem(names, listing="give both a number in ImageSpec.labels"):
            raise UsageError(problem)
    return job.numbering.number(names, {}, images.task, images.format)


def _write_references(
    job: ImageJob, images: Iterator[CollectedImage | CollectedReject]
) -> list[array[int]]:
    """Writes the references of each split; returns the expected bytes of their records."""
    writers = [
        ReferenceWriter(job.workspace.inputs_folder, split) for split in range(len(job.splits))
    ]
    record_bytes = [array("q") for _ in job.splits]
    shares = [split.share for split in job.splits]
    numbers = {split.name: number for number, split in enumerate(job.splits)}
    kept = (item for item in images if isinstance(item, CollectedImage))
    while batch := list(islice(kept, _BATCH_ROWS)):
        names = [image.group or image.name for image in batch]
        groups = np.array([fingerprint64(name.encode()) for name in names], np.uint64)
        for image, drawn in zip(batch, choose_splits(groups, shares).tolist(), strict=True):
            split = numbers[image.split] if image.split else drawn
            writers[split].add(image.line)
            record_bytes[split].append(image.record_bytes)
    for writer in writers:
        writer.close()
    return record_bytes


def _count_parts(splits: Sequence[ImageSplit]) -> int:
    """Returns how many work items share a shard."""
    shards = sum(split.num_shards for split in splits)
    records = sum(split.bounds[-1] for split in splits)
    return max(1, min(-(-_WORK_ITEMS // shards), records // (shards * _PART_RECORDS)))


def spec_of_elements(images: ImageSpec) -> ImageSpec:
    """Returns a spec for elements, whose keys are no file names.

    Raises:
      UsageError: it asks for what elements do not have.
    """
    if images.keep_fields:
        raise UsageError("keep_fields are columns of a table, which an Image has not; give none")
    decode = structs.replace(images.decode, wrong_extension="accept")
    return structs.replace(images, decode=decode)
