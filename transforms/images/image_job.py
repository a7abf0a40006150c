"""The image job: options that every stage needs, small enough to be sent with it, and its sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec
from msgspec import structs

from recordmill.records.errors import RunError, UsageError, at_least
from recordmill.records.schema import Schema
from recordmill.records.spec import python_names
from recordmill.transforms.dataset.content_sample import shared_contents
from recordmill.transforms.dataset.error_budget import check_budget
from recordmill.transforms.dataset.job import Job, JobStatistics, JobSummary
from recordmill.transforms.dataset.labels import LABELS_PATH, labels_file
from recordmill.transforms.images.image_shard_plan import ImageShardPlan
from recordmill.transforms.images.image_spec import ImageSpec, ImagesSpec
from recordmill.transforms.images.label_map import LABEL_MAP_PATH, label_map
from recordmill.transforms.images.mask_classes import class_name
from recordmill.transforms.images.statistics import ImageStatistics
from recordmill.transforms.storage import files

TRANSFORM_PATH = "_meta/transform"
SAMPLE_IMAGES = 1000  # of channel statistics
_LABEL_MAP_FORMATS = ("object_detection", "model_garden")


class ChannelFigures(msgspec.Struct, frozen=True):
    """The statistics of channels.

    Attributes:
      figures: mean and deviation, as the dataset's statistics have them.
      graph: relative path -> bytes, of the files of the transform graph.
    """

    figures: dict[str, Any]
    graph: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageJob(Job):
    """An image job.

    Attributes:
      images: what is done to each image; its labels are complete once the input was listed.
      copies: augmented copies of each image.
      keep_original: the untouched image is written too.
      augment_splits: the splits whose images are augmented, known once all splits are; the others
        get each image once, as it is.
      statistics_images: how many images of the first split the channels' mean and deviation are
        computed from; None is all of them.

    Raises:
      UsageError: --copies is below 1, or several copies of an image would be equal.
    """

    argument_names: ClassVar[Mapping[str, str]] = python_names(ImagesSpec)
    shard_statistics: ClassVar[Any] = ImageStatistics

    images: ImageSpec
    copies: int = 1
    keep_original: bool = False
    augment_splits: tuple[str, ...] = ("train",)
    statistics_images: int | None = 0

    def __post_init__(self) -> None:
        Job.__post_init__(self)
        at_least("--copies", self.copies, 1)
        if not self.images.augmentation and (self.copies > 1 or self.keep_original):
            flag = f"--copies={self.copies}" if self.copies > 1 else "--keep_original"
            raise UsageError(f"{flag} must go with --augmentations: copies would be all alike")

    @property
    def lists_labels(self) -> bool:
        """Whether images have labels that are names of classes."""
        return bool(self.images.labels)

    def completed(self) -> ImageJob:
        """Returns the job with its labels."""
        return self

    def variants(self, split: str) -> tuple[int | None, ...]:
        """Returns the copies of each image of a split; None is the untouched one."""
        if not self.images.augmentation or split not in self.augment_splits:
            return (None,)
        return (*([None] if self.keep_original else []), *range(1, self.copies + 1))

    def fingerprint_options(self) -> dict[str, Any]:
        """Returns the options that decide bytes; an unset --drawn_on is the stored picture."""
        if self.images.drawn_on != "stored":
            return Job.fingerprint_options(self)
        unset = structs.replace(self.images, drawn_on="")
        return Job.fingerprint_options(replace(self, images=unset))

    def schema(self) -> Schema:
        """Returns the schema of the records."""
        return self.images.schema

    def planned_splits(self) -> list[tuple[str, int]]:
        """Returns the splits of the shard plan, with their numbers of shards."""
        return [(split.name, split.num_shards) for split in self.read_shard_plan().splits]

    def read_shard_plan(self) -> ImageShardPlan:
        """Reads the shard plan that planning wrote."""
        return self.workspace.need_state(self.shard_plan_path, ImageShardPlan)

    def write_shard_plan(self, plan: ImageShardPlan) -> None:
        """Writes the shard plan."""
        self.workspace.write_state(self.shard_plan_path, plan)

    def write_figures(self, figures: ChannelFigures) -> None:
        """Writes mean and deviation of channels, and the transform graph, as one file."""
        self.workspace.write_state(self.statistics_path, figures)

    def read_figures(self) -> ChannelFigures | None:
        """Returns mean and deviation of channels; None where the statistics are not complete."""
        return self.workspace.read_state(self.statistics_path, ChannelFigures)

    def statistics(self) -> JobStatistics:
        """Returns the object that adds up the statistics of the shards."""
        return _ImageJobStatistics(self, self.read_shard_plan())

    def describe_counts(self, counts: Mapping[str, Any]) -> str:
        """Returns one line of what became of the images."""
        passed = ", ".join(f"{reason} {n}" for reason, n in counts["files_passed_over"].items())
        mapped = ""
        if "dropped" in counts:
            added, dropped = counts["images_added"], counts["dropped"]["map"]
            mapped = f", {added} added and {dropped} dropped by --map"
        return (
            f"images: {counts['images_listed']} listed, {counts['images_written']} written"
            f"{mapped}; files passed over: {passed or 'none'}"
        )

    @property
    def shard_plan_path(self) -> str:
        """The file of the shard plan: which images go into which shard, and listing's counts."""
        return files.join(self.workspace.work, "shards.json")

    def part_path(self, work_item: int) -> str:
        """A part of a shard, without extension, until the parts are joined."""
        return files.join(self.workspace.work, "parts", f"part-{work_item:06d}")

    @property
    def packs_folder(self) -> str:
        """The packs of images whose bytes the input has in columns."""
        return files.join(self.workspace.work, "packs")

    def statistics_row_path(self, work_item: int) -> str:
        """The histograms that a work item of the statistics counted."""
        return files.join(self.workspace.work, "statistics", f"row-{work_item:06d}.json")

    @property
    def statistics_path(self) -> str:
        """Mean and deviation of channels, with their graph, when the statistics are complete."""
        return files.join(self.workspace.work, "statistics.json")


class _ImageJobStatistics(JobStatistics):
    """Adds up the statistics of shards, by split."""

    def __init__(self, job: ImageJob, plan: ImageShardPlan) -> None:
        self._job = job
        self._plan = plan
        self._splits: dict[str, ImageStatistics] = {}
        self._examples: Counter[str] = Counter()

    def add(self, split: str, records: int, statistics: ImageStatistics) -> None:
        self._examples[split] += records
        self._splits.setdefault(split, ImageStatistics()).merge(statistics)

    def _check_copies(self) -> None:
        """Checks that each image was rejected in all of its copies or in none.

        Otherwise its bytes changed between two reads.

        Raises:
          RunError: an image was rejected in some copies only.
        """
        if not self._job.images.decode.verifies:
            return  # the untouched copy of a broken image is not decoded, so it is not rejected
        for split, sums in self._splits.items():
            others = len(self._job.variants(split)) - 1
            if sums.counts["copies_rejected"] != sums.rejected.total() * others:
                raise RunError(
                    f"an image of split {split} could be used for some of its copies only: the "
                    "input changed or its storage failed meanwhile; start anew with --overwrite"
                )

    def _class_names(self) -> list[str]:
        """Returns the names of all classes, () without any; masks may have some without names."""
        images = self._job.images
        if images.task != "segmentation":
            return list(images.classes) if images.labels else []
        last = max((sums.last_mask_class for sums in self._splits.values()), default=0)
        count = max(last + 1, len(images.classes))
        return [class_name(images.classes, number) for number in range(count)]

    def of_splits(self) -> dict[str, Any]:
        names = self._class_names()
        return {
            split: sums.summarize(self._examples[split], names)
            for split, sums in self._splits.items()
        }

    def summarize(self) -> JobSummary:
        plan = self._plan
        rejected = Counter(plan.rejected)
        rejected_files = [plan.rejected_file] if plan.rejected_file else []
        for sums in self._splits.values():
            rejected.update(sums.rejected)
            rejected_files += sums.rejected_files
        inputs = sum(split.images for split in plan.splits) + sum(plan.rejected.values())
        accepted = inputs - rejected.total()
        added = sum(sums.counts["images_added"] for sums in self._splits.values())
        dropped = sum(sums.counts["dropped_map"] for sums in self._splits.values())
        self._check_copies()
        check_budget(self._job, accepted=accepted, reasons=rejected)
        for split, examples in self._examples.items():
            if not examples:
                lost = self._splits[split].counts["dropped_map"]
                why = f"{lost} left out by --map" if lost else "see the reasons of the rejects"
                raise RunError(f"split {split} has no image that can be used; {why}")
        names = self._class_names()
        statistics = self.of_splits()
        extra_files = {}
        if names:
            extra_files[LABELS_PATH] = labels_file(names)
        images = self._job.images
        if images.labels and images.task == "detection" and images.format in _LABEL_MAP_FORMATS:
            extra_files[LABEL_MAP_PATH] = label_map(images.labels)
        if self._job.statistics_images != 0:
            figures = self._job.read_figures()
            if figures is None:
                raise RunError(
                    f"{self._job.statistics_path} is missing or damaged; run the same command again"
                )
            statistics[plan.splits[0].name] |= figures.figures
            for path, data in figures.graph.items():
                extra_files[f"{TRANSFORM_PATH}/{path}"] = data
        return JobSummary(
            statistics=statistics,
            counts={
                "images_listed": inputs,
                "images_written": accepted + added - dropped,
                **({"images_added": added, "dropped": {"map": dropped}} if self._job.map else {}),
                "rejected": dict(sorted(rejected.items())),
                "files_passed_over": dict(plan.passed_over),
                "examples": self._examples.total(),
            },
            rejected_files={number: (size, crc) for number, size, crc in rejected_files},
            extra_files=extra_files,
            inputs={
                "passed_over": passed_over_json(plan.passed_over_kinds),
                "shared_contents": shared_contents(
                    {split: sums.contents for split, sums in sorted(self._splits.items())}
                ),
            },
        )


def passed_over_json(kinds: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Returns the files passed over by kind, as `statistics.json` has them."""
    return {
        kind: {"files": number, "first": name} for kind, (number, name) in sorted(kinds.items())
    }
