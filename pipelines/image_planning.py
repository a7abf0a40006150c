"""What planning and running an image job takes beyond what `planning.py` does for all."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import islice
from typing import Any

import apache_beam as beam
import numpy as np

from recordmill.pipelines.image_options import ImageRequest
from recordmill.pipelines.images import build_images
from recordmill.pipelines.options import parse_num_shards, parse_splits
from recordmill.pipelines.planning import Inventory, Phase, Plan, Planner
from recordmill.pipelines.tensorflow_loading import load_tensorflow
from recordmill.records.errors import UsageError
from recordmill.records.hashing import fingerprint64, mix64, seed_for
from recordmill.transforms import files
from recordmill.transforms.external_sort import sort_rows
from recordmill.transforms.image_build import write_rejects
from recordmill.transforms.image_entries import has_image_ending
from recordmill.transforms.image_job import LABELS_PATH, ImageJob
from recordmill.transforms.image_plan import (
    ROWS_PER_FILE,
    ImageSplit,
    choose_bounds,
    splits_to_json,
    write_references,
)
from recordmill.transforms.image_references import ImageReference, ListedReject
from recordmill.transforms.image_sources import Listing, detect_layout, label_names, list_images
from recordmill.transforms.image_statistics import statistics_tasks
from recordmill.transforms.job import SplitSpec, check_budget, write_json
from recordmill.transforms.rejects import Reject
from recordmill.transforms.scatter import choose_splits
from recordmill.transforms.shard_plan import count_shards

_TASKS_PER_WORKER = 4
_MOST_WAITING = 1.15  # of the time of workers that all end at once
_MOST_RECORDS = 10_000  # of a shard that is a task: what a killed worker loses
_LAYOUTS_OF_IMAGES_ALONE = ("flat", "folders", "idx")
_MOST_LISTED_SOURCES = 1000
_BATCH_ROWS = 1024
_USUAL_SPLITS = ("train", "validation", "test")
_RECORD_BYTES = 300  # of a record beside its image
_UNKNOWN_BYTES = 100_000  # of an image on storage whose size nobody has asked for
# Bytes a pixel and channel, of photographs: only shard counts depend on them.
_ENCODED_BYTES = {"JPEG": 0.25, "WEBP": 0.2, "PNG": 0.8, "keep": 0.5, "raw": 1.0, "float": 4.0}


@dataclass
class _Seen:
    """What a pass over the listing adds up."""

    task: str
    digest: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    stamps: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16))
    labels: set[str] = field(default_factory=set)
    splits: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    names: dict[str, int] = field(default_factory=dict)
    twins: int = 0  # images that differ from another in nothing but the name's ending
    images: int = 0
    bytes: int = 0
    input_bytes: int = 0
    _last_stem: str = ""

    def saw(self, path: str, size: int, modified: int) -> None:
        """Adds a file that the listing uses."""
        self.stamps.update(f"{path}\t{size}\t{modified}\n".encode("utf-8", "surrogateescape"))

    def add(self, image: ImageReference, line: str) -> None:
        """Adds an image; `line` is all that is known of it, but where the input lies."""
        size = max(image.image.size, 0)
        self.input_bytes += size if image.image.size >= 0 else _UNKNOWN_BYTES
        self.digest.update(f"{image.name}\t{size}\t{line}\n".encode())
        if self.task == "classification":
            self.labels.update(image.labels)
            if has_image_ending(image.name):
                stem = image.name.rpartition(".")[0]
                self.twins += stem == self._last_stem
                self._last_stem = stem
        elif self.task == "detection":
            self.labels.update(item.label for item in image.objects if item.label)
        else:
            self.labels.update(name for name, _ in image.regions)
        self.splits[image.split] += 1
        self.images += 1
        self.bytes += size
        if len(self.names) <= _MOST_LISTED_SOURCES:
            self.names[image.name] = size

    def sources(self) -> dict[str, Any]:
        """Returns what the manifest says of the input."""
        found = {"images": self.images, "bytes": self.bytes, "checksum": self.digest.hexdigest()}
        few = self.images <= _MOST_LISTED_SOURCES
        return found | ({"names": self.names} if few else {})


@dataclass(frozen=True, slots=True)
class ImageInventory(Inventory):
    """The images, in order of their hash, and what cannot be used of the input.

    Attributes:
      rows: `(hash, name, (reference, split, hash of the group, expected bytes))` in order.
      rejects: lines of those that listing found.
      seen: sums over all.
      passed_over: files that are no input, by reason.
    """

    rows: Iterator[tuple[str, str, Any]]
    rejects: tempfile.SpooledTemporaryFile[bytes]
    seen: _Seen
    passed_over: dict[str, int]


class ImagePlanner(Planner[ImageJob, ImageInventory]):
    """Plans and builds `recordmill images`."""

    kind = "images"
    worker_modules = ("recordmill.pipelines.images",)
    packages = ("pillow",)
    bytes_version = 1
    metadata = (LABELS_PATH,)

    def __init__(self, request: ImageRequest) -> None:
        super().__init__(request.job)
        self._request = request

    @contextmanager
    def inspect(self) -> Iterator[ImageInventory]:
        """Lists the input, and learns labels and splits from it."""
        spec = detect_layout(self._request.source)
        task = self.job.images.task
        alone = spec.layout in _LAYOUTS_OF_IMAGES_ALONE and not spec.masks
        if alone and task == "segmentation":
            raise UsageError("--task=segmentation needs masks; see --masks and --annotations")
        if alone and task == "detection" and spec.labels_from != "none":
            raise UsageError(
                "--task=detection needs boxes; see --annotations, or write images alone with "
                "--labels=none"
            )
        seen = _Seen(task)
        with tempfile.SpooledTemporaryFile(max_size=1 << 22) as rejects:
            listing = Listing(saw=seen.saw)
            rows = sort_rows(self._rows(list_images(spec, listing), seen, rejects))
            first = next(rows, None)  # by then all rows have been read
            if first is None:
                reasons = ", ".join(f"{reason} {n}" for reason, n in seen.rejected.items())
                raise UsageError(
                    f"--input {' '.join(spec.patterns)} gives no image that can be used: {reasons}"
                )
            self._bind(label_names(spec, seen.labels), seen)
            yield ImageInventory(
                seen.input_bytes,
                seen.sources(),
                {"layout": spec.layout, "pillow": version("pillow")},
                seen.stamps.hexdigest(),
                _chain(first, rows),
                rejects,
                seen,
                dict(sorted(listing.filtered.items())),
            )

    def _rows(
        self, found: Iterator[Any], seen: _Seen, rejects: Any
    ) -> Iterator[tuple[str, str, Any]]:
        """Yields images by hash: line, split, hash of the group and expected bytes of each."""
        seed = np.uint64(seed_for(self.job.seed, "images"))
        images = self._images(found, seen, rejects)
        while batch := list(islice(images, _BATCH_ROWS)):
            names = [fingerprint64(image.name.encode()) for image in batch]
            keys = mix64(np.array(names, np.uint64) ^ seed).tolist()
            for image, name, key in zip(batch, names, keys, strict=True):
                line = image.to_line()
                seen.add(image, _without_place(line, image))
                group = fingerprint64(image.group.encode()) if image.group else name
                row = line, image.split, group, self._weight(image)
                yield f"{key:016x}", image.name, row

    def _images(self, found: Iterator[Any], seen: _Seen, rejects: Any) -> Iterator[ImageReference]:
        """Yields images; what is none is written down."""
        for item in found:
            if isinstance(item, ListedReject):
                self._reject(item, seen, rejects)
            else:
                yield item

    def _reject(self, item: ListedReject, seen: _Seen, rejects: Any) -> None:
        seen.rejected[item.reason] += 1
        rejects.write(Reject(item.source, 0, "list", item.reason, item.detail).to_line().encode())

    def _bind(self, names: list[str], seen: _Seen) -> None:
        """Gives the job the labels and splits that the listing found."""
        request, job = self._request, self.job
        first = request.first_label
        if job.images.binary_masks and not names:
            names = ["foreground"]
        labels = {name: number for number, name in enumerate(names, first)}
        if job.images.task == "classification":
            if not labels:
                raise UsageError(
                    "--task=classification needs labels, and the input has none; see --labels and "
                    "--annotations"
                )
            if seen.twins:
                print(
                    f"{seen.twins} images have the name of another but for its ending; if they are "
                    "masks, leave them out of --input",
                    file=sys.stderr,
                )
        splits = job.splits
        named = {name: count for name, count in seen.splits.items() if name}
        if named:
            if request.splits_given:
                raise UsageError(
                    f"--splits has no meaning where the input says the split ("
                    f"{', '.join(sorted(named))}); leave it out, or add --split_from=none"
                )
            splits = _given_splits(named, request.num_shards)
        elif not request.splits_given:
            splits = parse_splits("train:1", request.num_shards)
        self.job = replace(job, images=replace(job.images, labels=labels), splits=splits)

    def write(self, inventory: ImageInventory, *, workers: int) -> dict[str, Any]:
        """Writes references by split in order of their hash, and the bounds of shards."""
        job, seen = self.job, inventory.seen
        weights = [array("q") for _ in job.splits]
        writers = [_ReferenceWriter(job.work, split) for split in range(len(job.splits))]
        for split, weight, line in self.assigned(inventory):
            weights[split].append(weight)
            writers[split].add(line)
        for writer in writers:
            writer.close()
        splits = self.cut(weights)
        tasks, parts = count_tasks(splits, workers)
        rejected_file = [0, 0, 0]
        if seen.rejected:
            inventory.rejects.seek(0)
            blocks = iter(lambda: inventory.rejects.read(1 << 22), b"")
            rejected_file = [0, *write_rejects(job, 0, blocks)]
        check_budget(job, accepted=sum(map(len, weights)), reasons=seen.rejected)
        content = {
            "splits": splits_to_json(splits),
            "rejected": dict(sorted(seen.rejected.items())),
            "rejected_file": rejected_file,
            "passed_over": inventory.passed_over,
        }
        write_json(job.shard_plan_path, content)
        return {
            "tasks": tasks, "parts": parts, "statistics_tasks": statistics_tasks(job),
        }  # fmt: skip

    def assigned(self, inventory: ImageInventory) -> Iterator[tuple[int, int, str]]:
        """Yields split, expected bytes of a record and line of each image, in order of its hash."""
        names = [split.name for split in self.job.splits]
        shares = [split.share for split in self.job.splits]
        given = any(inventory.seen.splits)
        while rows := list(islice(inventory.rows, _BATCH_ROWS)):
            groups = np.array([group for _, _, (_, _, group, _) in rows], np.uint64)
            drawn = choose_splits(groups, shares).tolist()
            for (_, name, (line, split, _, weight)), number in zip(rows, drawn, strict=True):
                if given and not split:
                    item = ListedReject(name, "no_split", "other images have one")
                    self._reject(item, inventory.seen, inventory.rejects)
                else:
                    yield names.index(split) if split else number, weight, line

    def _weight(self, image: ImageReference) -> int:
        """Returns the expected bytes of a record."""
        images, size = self.job.images, image.image.size
        if images.transform.fixed_size is not None:
            height, width = images.transform.fixed_size
            pixels = height * width * images.channels
            return _RECORD_BYTES + int(pixels * _ENCODED_BYTES[images.encode.format])
        mask = max(image.mask.size, 0) if image.mask else 0
        return _RECORD_BYTES + (size if size >= 0 else _UNKNOWN_BYTES) + mask

    def cut(self, weights: list[array[int]]) -> list[ImageSplit]:
        """Returns the shards of each split, from the expected bytes of each record by rank.

        Raises:
          UsageError: a split is empty, or has fewer records than shards.
        """
        job, copies = self.job, len(self.job.variants)
        for spec, found in zip(job.splits, weights, strict=True):
            if not found:
                raise UsageError(
                    f"--splits gives {spec.name} none of {sum(map(len, weights))} images; give it "
                    "a larger share, or leave it out"
                )
        totals = [sum(found) * copies for found in weights]
        counts = count_shards(totals, job.splits, job.shards)
        splits = []
        for spec, found, shards in zip(job.splits, weights, counts, strict=True):
            if spec.num_shards is not None and shards > len(found) * copies:
                raise UsageError(
                    f"--num_shards must be at most {len(found) * copies} for {spec.name}, the "
                    f"records it gets, got {shards}"
                )
            shards = min(shards, len(found) * copies)
            bounds = choose_bounds(np.array(found, np.int64), copies, shards)
            splits.append(ImageSplit(spec.name, len(found), copies, tuple(bounds)))
        return splits

    def config(self) -> dict[str, Any]:
        """Returns where the input was."""
        return {"input": list(self._request.source.patterns)}

    def describe(self) -> str:
        """Returns the description of the dataset."""
        images = self.job.images
        return f"{images.task} images in {images.format} form, written by recordmill"

    def build(self, pipeline: beam.Pipeline, plan: Plan[ImageJob]) -> object:
        """Applies the stages of `images.py`."""
        job, details = plan.job, plan.details
        waiting = 0 if files.exists(job.statistics_path) else details["statistics_tasks"]
        if waiting:
            load_tensorflow()
        return build_images(
            pipeline, job, tasks=details["tasks"], parts=details["parts"],
            statistics_tasks=waiting, commit=plan.commit,
        )  # fmt: skip

    def phases(self, plan: Plan[ImageJob]) -> Iterator[Phase]:
        """Yields statistics where they are wanted, write, and join where there are parts."""
        job, parts = plan.job, plan.details["parts"]
        if wanted := plan.details["statistics_tasks"]:
            rows = files.count(files.join(job.work, "statistics"), ".json")
            yield Phase("statistics", rows, wanted)
        done = files.count(files.join(job.staging, "done"), ".json")
        shards = plan.details["tasks"] // parts
        if parts > 1:
            made = files.count(files.join(job.work, "parts"), ".json")
            yield Phase("write", made, plan.details["tasks"], plan.input_bytes)
            yield Phase("join", done, shards)
        else:
            yield Phase("write", done, shards, plan.input_bytes)

    def summary(self, counts: dict[str, Any]) -> str:
        """Returns one line of what became of the images."""
        passed = ", ".join(f"{reason} {n}" for reason, n in counts["files_passed_over"].items())
        return (
            f"images: {counts['images_listed']} listed, {counts['images_written']} written; files "
            f"passed over: {passed or 'none'}"
        )


def count_tasks(splits: list[ImageSplit], workers: int) -> tuple[int, int]:
    """Returns the tasks for so many workers, and how many of them share a shard.

    What parts make is written twice, so shards are tasks where that lets few workers wait.
    """
    shards = sum(split.shards for split in splits)
    largest = max(int(np.diff(split.bounds).max()) for split in splits)
    rounds = -(-shards // workers)
    records = sum(split.bounds[-1] for split in splits)
    even = rounds > 1 and rounds * workers * largest <= records * _MOST_WAITING
    if workers == 1 or (even and largest <= _MOST_RECORDS):
        return shards, 1
    parts = -(-workers * _TASKS_PER_WORKER // shards)
    return shards * parts, parts


class _ReferenceWriter:
    """Writes the references of a split in files of equal numbers of lines."""

    def __init__(self, work: str, split: int) -> None:
        self._work = work
        self._split = split
        self._lines: list[str] = []
        self._files = 0

    def add(self, line: str) -> None:
        """Adds the next in order."""
        self._lines.append(line)
        if len(self._lines) == ROWS_PER_FILE:
            self.close()

    def close(self) -> None:
        """Writes what is held."""
        if self._lines:
            write_references(self._work, self._split, self._files, self._lines)
            self._files += 1
            self._lines = []


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _without_place(line: str, image: ImageReference) -> str:
    """Returns a reference's line without the path: moving the input changes nothing."""
    paths = {image.image.path, *([image.mask.path] if image.mask else [])}
    for path in paths:
        line = line.replace(path, "")
    return line


def _given_splits(counts: dict[str, int], num_shards: str | None) -> tuple[SplitSpec, ...]:
    """Returns the splits that the input names, in their usual order."""
    total = sum(counts.values())
    usual = {name: place for place, name in enumerate(_USUAL_SPLITS)}
    names = sorted(counts, key=lambda name: (usual.get(name, len(usual)), name))
    shards = parse_num_shards(num_shards, names)
    return tuple(SplitSpec(name, counts[name] / total, shards.get(name)) for name in names)
