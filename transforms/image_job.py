"""What every stage of an image job needs to know, small enough to be sent with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from recordmill.records.errors import RunError, UsageError
from recordmill.records.schema import Schema
from recordmill.transforms import files
from recordmill.transforms.image_examples import ImageWork
from recordmill.transforms.image_found import ImageFound
from recordmill.transforms.image_plan import ImageSplit, splits_from_json
from recordmill.transforms.job import Conclusion, Job, Tally, check_budget, read_json

LABELS_PATH = "labels.txt"
TRANSFORM_PATH = "_meta/transform"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageJob(Job):
    """An image job.

    Attributes:
      images: what is done to each image; its labels are known once the input was listed.
      copies: augmented copies of each image.
      keep_original: the untouched image is written too.
      statistics_images: of how many images of the first split the channels' mean and deviation are
        found; None is all of them.
    """

    images: ImageWork
    copies: int = 1
    keep_original: bool = False
    statistics_images: int | None = 0

    def __post_init__(self) -> None:
        Job.__post_init__(self)
        if self.copies < 1:
            raise UsageError(f"--copies must be at least 1, got {self.copies}")
        if not self.images.augmentation and (self.copies > 1 or self.keep_original):
            flag = f"--copies={self.copies}" if self.copies > 1 else "--keep_original"
            raise UsageError(f"{flag} must go with --augmentations: copies would be all alike")

    @property
    def variants(self) -> tuple[int | None, ...]:
        """The copies of each image that are written; None is the untouched one."""
        if not self.images.augmentation:
            return (None,)
        return (*([None] if self.keep_original else []), *range(1, self.copies + 1))

    def schema(self) -> Schema:
        """Returns what the records hold."""
        return self.images.schema

    def planned_splits(self) -> list[tuple[str, int]]:
        """Returns what the plan decided."""
        return [(split.name, split.shards) for split in self.read_splits()]

    def read_splits(self) -> list[ImageSplit]:
        """Reads the plan's splits."""
        return splits_from_json(read_json(self.shard_plan_path)["splits"])

    def tally(self) -> Tally:
        """Returns what adds up the shards at the end."""
        return _ImageTally(self, read_json(self.shard_plan_path))

    @property
    def shard_plan_path(self) -> str:
        """Which images go into which shard, and what listing them found."""
        return files.join(self.work, "shards.json")

    def part_path(self, task: int) -> str:
        """A part of a shard, without its ending, until the parts are joined."""
        return files.join(self.work, "parts", f"part-{task:06d}")

    def statistics_row_path(self, task: int) -> str:
        """What a task of the statistics found."""
        return files.join(self.work, "statistics", f"row-{task:06d}.json")

    @property
    def statistics_path(self) -> str:
        """Mean and deviation of channels; written when all of the statistics is there."""
        return files.join(self.work, "statistics.json")

    @property
    def transform_folder(self) -> str:
        """The graph that tensorflow_transform made of the statistics."""
        return files.join(self.work, "transform")


class _ImageTally(Tally):
    """Adds up what was found in images, by split."""

    def __init__(self, job: ImageJob, plan: dict[str, Any]) -> None:
        self._job = job
        self._plan = plan
        self._found: dict[str, ImageFound] = {}
        self._examples: Counter[str] = Counter()

    def add(self, split: str, records: int, found: dict[str, Any]) -> None:
        self._examples[split] += records
        self._found.setdefault(split, ImageFound()).merge(ImageFound.from_json(found))

    def _check_copies(self) -> None:
        """An image is rejected in all of its copies, or its input was not always the same."""
        if not self._job.images.decode.check:
            return  # the untouched copy of a broken image passes unseen
        others = len(self._job.variants) - 1
        for split, found in self._found.items():
            if found.sums["copies_rejected"] != found.rejected.total() * others:
                raise RunError(
                    f"an image of split {split} could be used for some of its copies only: the "
                    "input changed or its storage failed meanwhile; start anew with --overwrite"
                )

    def conclude(self) -> Conclusion:
        listed = sum(split["images"] for split in self._plan["splits"])
        rejected = Counter(self._plan["rejected"])
        rejected_files = [self._plan["rejected_file"]] if rejected else []
        for found in self._found.values():
            rejected.update(found.rejected)
            rejected_files += found.rejected_files
        inputs = listed + sum(self._plan["rejected"].values())
        accepted = inputs - rejected.total()
        self._check_copies()
        check_budget(self._job, accepted=accepted, reasons=rejected)
        for split, examples in self._examples.items():
            if not examples:
                raise RunError(f"no image is left for split {split}; see the rejects' reasons")
        statistics = {s: f.statistics(self._examples[s]) for s, f in self._found.items()}
        extra_files = {}
        if self._job.images.labels:
            labels = "".join(f"{name}\n" for name in self._job.images.classes)
            extra_files[LABELS_PATH] = labels.encode()
        if self._job.statistics_images != 0:
            statistics[self._plan["splits"][0]["name"]] |= read_json(self._job.statistics_path)
            extra_files |= _files_below(self._job.transform_folder, TRANSFORM_PATH)
        return Conclusion(
            statistics=statistics,
            counts={
                "images_listed": inputs,
                "images_written": accepted,
                "rejected": dict(sorted(rejected.items())),
                "files_passed_over": self._plan["passed_over"],
                "examples": self._examples.total(),
            },
            rejected_files={number: (size, crc) for number, size, crc in rejected_files},
            extra_files=extra_files,
        )


def _files_below(folder: str, target: str) -> dict[str, bytes]:
    """Returns the contents of all files of a folder, by the path they will have."""
    paths = sorted(files.list_files(folder))
    return {target + path[len(folder) :]: files.read_bytes(path) for path in paths}
