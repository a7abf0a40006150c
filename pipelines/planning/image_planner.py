"""Planning and running an image job: what it adds to `plan_job.py`."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from recordmill.pipelines.image_request import (
    ImageRequest,
    check_first_label,
    check_split_by,
)
from recordmill.pipelines.job_request import DEFAULT_SPLITS, parse_splits
from recordmill.pipelines.planning.image_inputs import (
    BATCH_ROWS,
    AssignedImage,
    ImageInventory,
    InputSummary,
    RejectLog,
    rank_images,
)
from recordmill.pipelines.planning.image_outline import ImageOutline
from recordmill.pipelines.planning.image_shards import (
    count_work_items,
    describe_copies,
    input_splits,
)
from recordmill.pipelines.planning.input_checks import check_outside
from recordmill.pipelines.planning.mask_checks import segmentation_masks
from recordmill.pipelines.planning.outline import Outline
from recordmill.pipelines.planning.planner import Planner, WorkPlan
from recordmill.records.errors import UsageError, listed
from recordmill.records.hashing import seed_for
from recordmill.records.spec import naming_flags
from recordmill.records.state import Count
from recordmill.transforms.dataset.error_budget import check_budget
from recordmill.transforms.dataset.labels import LABELS_PATH, first_fraction, forms_problem
from recordmill.transforms.dataset.output_spec import SplitSpec
from recordmill.transforms.dataset.splits import choose_splits
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.images.channel_statistics import statistics_work_items
from recordmill.transforms.images.image_job import ImageJob
from recordmill.transforms.images.image_shard_plan import ImageShardPlan
from recordmill.transforms.images.image_stages import image_stages
from recordmill.transforms.images.label_map import LABEL_MAP_PATH
from recordmill.transforms.images.listing.joins import Listed
from recordmill.transforms.images.listing.list_images import (
    Listing,
    category_ids,
    detect_layout,
    label_names,
    list_images,
)
from recordmill.transforms.images.listing.unpacking import Unpack
from recordmill.transforms.images.mask_samples import mask_labels
from recordmill.transforms.images.reference_files import ReferenceWriter
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.shard_cutting import (
    augmented_splits,
    cut_shards,
    expected_record_bytes,
)
from recordmill.transforms.images.source_spec import (
    LAYOUTS_OF_PATTERNS,
    SourceSpec,
    check_layout,
)
from recordmill.transforms.sources.work_item_files import write_work_items

_LABEL_IN_NAME = r"^(.+?)[._-].+\."  # also of cat.17.jpg
_LAYOUTS_WITHOUT_ANNOTATIONS = ("fixed", "flat", "folders", "idx")


class ImageStages(msgspec.Struct, frozen=True):
    """The stage plan of an image job.

    Attributes:
      work_items: the shards, or parts of shards, to build.
      parts: how many of them make a shard.
      statistics_work_items: the work items of the channel statistics; 0 where none are wanted.
      packs: that images in columns are unpacked to before.
    """

    work_items: Count
    parts: Count
    statistics_work_items: Count
    packs: Count = 0


class ImagePlanner(Planner[ImageJob, ImageStages, ImageInventory]):
    """Plans and builds `recordmill images`.

    Attributes:
      source: where the images are; with its layout, once it is listed.
    """

    kind = "images"
    stages_type = ImageStages
    packages = ("pillow",)
    bytes_version = 3
    metadata = (LABELS_PATH, LABEL_MAP_PATH)

    def __init__(self, request: ImageRequest) -> None:
        super().__init__(request.job)
        self._request = request
        self._limit = 0  # where it is reached
        self.source = request.source

    @contextmanager
    def inspect(self) -> Iterator[ImageInventory]:
        """Lists the input, and completes the job with its labels and splits."""
        check_outside(self._request.source.patterns, self.job.workspace.output)
        with naming_flags():
            self.source = spec = detect_layout(self._request.source)
        images = self.job.images
        annotated = bool(self.job.map and spec.labels)  # functions may give what is not there
        if not annotated:
            _check_annotations(images.task, spec)
        check_layout(spec.layout, self._request.given)
        summary = InputSummary(images.task)
        listing = Listing(on_file=summary.add_file)
        with RejectLog(self.job) as rejects:
            ranked = rank_images(
                self._first(list_images(self._listed(spec), listing)), summary, rejects,
                seed=seed_for(self.job.seed, "images"),
                record_bytes=lambda image: expected_record_bytes(images, image),
            )  # fmt: skip
            first = list(islice(ranked, BATCH_ROWS))  # by then the whole input is listed
            if not first:
                raise UsageError(
                    f"--input {' '.join(spec.patterns)} gives no image that can be used: "
                    f"{rejects.describe()}"
                )
            names = label_names(spec, summary.labels)
            if images.task == "segmentation":
                lines = (image.line for image in first)
                known = self._request.numbering.number(spec.labels, {}, images.task, images.format)
                with naming_flags():
                    with_labels = structs.replace(images, labels=known)
                if summary.segmented or not annotated:
                    images = segmentation_masks(with_labels, summary, lines, spec.layout)
                self.job = replace(self.job, images=images)
            labels = self._labels(names, category_ids(spec), summary)
            splits = self._splits(summary)
            with naming_flags():
                images = structs.replace(images, labels=labels)
            self.job = replace(self.job, images=images, splits=splits)
            wanted = self._request.given.get("augment_splits")
            with self._naming_limit(summary):
                augmented = augmented_splits(self.job, wanted)
            self.job = replace(self.job, augment_splits=augmented)
            if self.job.images.augmentation:
                print(describe_copies(self.job), file=sys.stderr)
            yield ImageInventory(
                input_bytes=summary.input_bytes,
                sources=summary.sources(),
                checksums={"layout": spec.layout, "pillow": version("pillow")},
                modified=summary.stamps.hexdigest(),
                images=chain(first, ranked),
                rejects=rejects,
                summary=summary,
                passed_over=dict(sorted(listing.filtered.items())),
                passed_over_kinds=dict(sorted(listing.passed_over.items())),
                packs=listing.packs,
            )

    def _listed(self, spec: SourceSpec) -> SourceSpec:
        """Returns what is listed: labels are known once the user's functions have seen images."""
        return structs.replace(spec, labels=()) if self.job.map else spec

    def _first(self, listed: Iterable[Listed]) -> Iterator[Listed]:
        """Yields what is listed up to the last of the first images, where --limit says how many."""
        images = 0
        for item in listed:
            yield item
            images += isinstance(item, ImageReference)
            if images == self._request.limit:
                self._limit = images
                return

    def _labels(
        self, names: list[str], categories: Mapping[str, object], summary: InputSummary
    ) -> dict[str, int]:
        """Returns the numbers of labels; warns of images that may be masks.

        Args:
          names: the labels in order of their ids.
          categories: COCO's ids of them; {} where there are none.
          summary: of the input.

        Raises:
          UsageError: a classification has no labels.
        """
        images = self.job.images
        numbering = self._request.numbering
        if images.task == "segmentation":
            regions = bool(summary.regions)
            first_label = 1 if numbering.first_label is None else numbering.first_label
            labels = mask_labels(
                images.mask_classes, names, first_label=first_label, regions=regions
            )
            check_first_label(self._request.given, numbered=bool(names) and [*labels] == names)
            return labels
        if images.numbers or images.unlabeled:
            return {}
        if images.task == "classification":
            if not self._request.source.labels:
                _refuse_numbers(names)
            if not names:
                raise UsageError(
                    "--task=classification needs labels, and the input has none; see --annotations "
                    f"and --labels{_in_names(self.source, summary.names)}"
                )
            if summary.same_stem:
                self.note(
                    f"{summary.same_stem} images have the name of another except for the "
                    "extension; if they are masks, remove them from --input"
                )
        return numbering.number(names, categories, images.task, images.format)

    def _splits(self, summary: InputSummary) -> tuple[SplitSpec, ...]:
        """Returns the splits that the input names, or else those of --splits.

        Raises:
          UsageError: both name splits.
        """
        request = self._request
        counts = {name: count for name, count in summary.splits.items() if name}
        drawn = len(self.job.splits) if request.splits_given else 1
        check_split_by(request.source.split_by, named=bool(counts), splits=drawn)
        if counts and request.splits_given:
            raise UsageError(
                f"--splits has no meaning where the input names the splits "
                f"({listed(sorted(counts))}); remove --splits, or add --split_from=none"
            )
        if counts:
            with self._naming_limit(summary):
                return input_splits(counts, request.num_shards)
        if request.splits_given:
            return self.job.splits
        return parse_splits(DEFAULT_SPLITS, request.num_shards)

    @contextmanager
    def _naming_limit(self, summary: InputSummary) -> Iterator[None]:
        """Adds to errors about splits that --limit may have left some of the input out."""
        try:
            yield
        except UsageError as error:
            if not self._limit or not any(summary.splits):
                raise
            raise UsageError(
                f"{error}; --limit={self._limit} may end before the first image of a split: give a "
                "larger one"
            ) from error

    def write(self, inventory: ImageInventory, *, workers: int) -> ImageStages:
        """Writes references by split in order of their hash, and the shard plan."""
        job, rejects = self.job, inventory.rejects
        record_bytes = [array("q") for _ in job.splits]
        inputs = job.workspace.inputs_folder
        writers = [ReferenceWriter(inputs, split) for split in range(len(job.splits))]
        for image in self.assign_splits(inventory):
            record_bytes[image.split].append(image.record_bytes)
            writers[image.split].add(image.line)
        for writer in writers:
            writer.close()
        splits = cut_shards(job, record_bytes)
        work_items, parts = count_work_items(splits, workers)
        rejected_file = rejects.write_for(job)
        check_budget(job, accepted=sum(map(len, record_bytes)), reasons=rejects.reasons)
        plan = ImageShardPlan(
            tuple(splits), rejects.reasons, rejected_file, inventory.passed_over,
            inventory.passed_over_kinds,
        )  # fmt: skip
        job.write_shard_plan(plan)
        packs = write_work_items(inputs, inventory.packs)
        return ImageStages(work_items, parts, statistics_work_items(job), packs)

    def assign_splits(self, inventory: ImageInventory) -> Iterator[AssignedImage]:
        """Yields the images in order of their hash, each with its split.

        Where the input names the splits of some images, those without one are rejected.
        """
        names = [split.name for split in self.job.splits]
        shares = [split.share for split in self.job.splits]
        named = any(inventory.summary.splits)
        while batch := list(islice(inventory.images, BATCH_ROWS)):
            groups = np.array([image.group for image in batch], np.uint64)
            drawn = choose_splits(groups, shares).tolist()
            for image, number in zip(batch, drawn, strict=True):
                if named and not image.split:
                    inventory.rejects.add_listed(
                        ListedReject(image.name, "no_split", "other images have one")
                    )
                    continue
                split = names.index(image.split) if image.split else number
                yield AssignedImage(split, image.record_bytes, image.line)

    def config(self) -> dict[str, Any]:
        """Returns the globs of the input, and how much of it was read."""
        limit = {"limit": self._limit} if self._limit else {}
        return {"input": list(self._request.source.patterns)} | limit

    def describe(self) -> str:
        """Returns the description of the dataset."""
        images = self.job.images
        return f"{images.task} images in {images.format} form, written by recordmill"

    def stages(self, plan: WorkPlan[ImageJob, ImageStages]) -> list[Stage[Any]]:
        """Returns the stages of `image_stages.py`, behind those that unpack columns."""
        job, stages, size = plan.job, plan.stages, plan.input_bytes
        unpack = [Unpack(job, self.source, stages.packs, size)] if stages.packs else []
        return [*unpack, *image_stages(job, parts=stages.parts, input_bytes=size)]

    def outline(self, inventory: ImageInventory, *, workers: int) -> Outline:
        """Returns what an estimate must know of the job."""
        images = self.assign_splits(inventory)
        return ImageOutline(self.job, self.source, inventory, images, workers=workers)


def _in_names(spec: SourceSpec, names: Iterable[str]) -> str:
    """Returns --label_pattern as advice, if possible with a pattern; "" where it is refused."""
    if spec.annotations or spec.layout not in LAYOUTS_OF_PATTERNS:
        return ""
    matches = (re.match(_LABEL_IN_NAME, path.rpartition("/")[2]) for path in names)
    found = [match for match in matches if match]
    if len({match[1] for match in found}) < 2:  # such as IMG_0001.jpg and IMG_0002.jpg
        return ", or --label_pattern where names of files have them"
    return (
        f", or --label_pattern='{_LABEL_IN_NAME}', which takes {found[0][1]} of {found[0].string}"
    )


def _refuse_numbers(names: list[str]) -> None:
    """Refuses labels that are numbers to be predicted: each would be a class of its own.

    Raises:
      UsageError: there are more than 20 labels, and most are fractions; or two are one number.
    """
    fraction = first_fraction(names)
    if fraction:
        raise UsageError(
            f"--labels=number is needed where labels are numbers to be predicted; {len(names)} "
            f"different ones occur, such as {fraction}; or list them in a file of --labels if "
            "they are classes"
        )
    if problem := forms_problem(names):
        raise UsageError(problem)


def _check_annotations(task: str, spec: SourceSpec) -> None:
    """Checks that the input has the annotations that a task needs.

    Raises:
      UsageError: it has images alone.
    """
    if spec.layout not in _LAYOUTS_WITHOUT_ANNOTATIONS or spec.masks:
        return
    if task == "segmentation":
        raise UsageError("--task=segmentation needs masks; see --masks and --annotations")
    if task == "detection" and spec.labels_from != "none":
        raise UsageError(
            "--task=detection needs boxes; see --annotations, or write images alone with "
            "--labels=none"
        )
