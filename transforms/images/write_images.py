"""`WriteImages`: any PCollection of images to a dataset, as `recordmill images` writes it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from recordmill.records.errors import UsageError
from recordmill.records.spec import (
    check_type,
    from_arguments,
    naming_arguments,
    python_names,
    takes,
)
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.element_sink import ElementSink, ElementSpool, SpoolFile
from recordmill.transforms.dataset.pipeline_run import commit_spec, pipeline_job
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.write_elements import WriteElements
from recordmill.transforms.elements import Image
from recordmill.transforms.images.collected_job import (
    CollectedImageJob,
    plan_collected,
    spec_of_elements,
)
from recordmill.transforms.images.collecting import ImageSpool
from recordmill.transforms.images.image_spec import (
    ImageSpec,
    ImagesSpec,
    LabelNumbering,
    WriteImagesSpec,
)
from recordmill.transforms.images.image_stages import image_stages
from recordmill.transforms.images.shard_cutting import augmented_splits


@dataclass(frozen=True)
class _ImageSink(ElementSink[CollectedImageJob]):
    """Images.

    Attributes:
      need_splits: an image that names no split is a reject.
    """

    transform = "WriteImages"
    need_splits: bool = False

    def size_of(self, element: Any) -> int:
        """Returns the bytes of an image, and of its mask."""
        if not isinstance(element, Image):
            return 0
        return sum(
            len(each) if isinstance(each, bytes) else each.nbytes
            for each in (element.data, element.mask)
            if each is not None
        )

    def open_spool(self) -> ElementSpool:
        """Returns what writes images to packs."""
        return ImageSpool(self.job, need_splits=self.need_splits)

    def plan(self, spooled: list[SpoolFile]) -> None:
        """Sorts the images and cuts them into shards."""
        plan_collected(self.job, spooled, named=self.need_splits)

    def stages(self) -> list[Stage[Any]]:
        """Returns the stages that build shards."""
        return image_stages(self.job)

    def commit_spec(self) -> CommitSpec:
        """Returns what the manifest says."""
        images = self.job.images
        description = f"{images.task} images in {images.format} form, written by recordmill"
        spec = commit_spec(self.job, self.transform, ("pillow",))
        return structs.replace(spec, description=description)


class WriteImages(WriteElements):
    """Images -> a dataset; gives the counts of it, once `_SUCCESS` is written.

    An element is a `recordmill.transforms.Image`. What is written is what `recordmill images`
    writes of files with these names, labels, boxes and masks: the records, statistics,
    `labels.txt` and `label_map.pbtxt`. What cannot be used is a reject, with its reason.

    The key of an image decides its position, its split and its augmentations; without one the hash
    of its data does. `Image.group` decides the split instead of the key, and `Image.split` names
    it; one that names another than those of the dataset is a reject. So equal images give equal
    shards for any engine, any number of workers and any bundles. Until the end the output's folder
    holds each image's bytes once more. Memory: an image, some megabytes of records, and 8 bytes for
    each image. Repeated bundles change nothing.
    """

    @takes(WriteImagesSpec)
    @naming_arguments(python_names(ImagesSpec))
    def __init__(
        self, output: str | os.PathLike[str], images: ImageSpec | None = None, **options: Any
    ) -> None:
        """Checks what can be checked before the pipeline runs.

        Args:
          output: the folder of the dataset, on storage that all workers see.
          images: task, format, sizes, encoding, augmentations; by default images with one label
            each in TFDS's form. Without labels in it, those that occur are numbered in order. Its
            seed is not used.
          options: the keyword arguments listed below.

        Raises:
          UsageError: a value is not valid, or a dataset is there.
          TypeError: an argument that there is not.
        """
        given = from_arguments(WriteImagesSpec, options)
        dataset, splits = given.dataset, given.dataset.splits
        spec = spec_of_elements(check_type("images", images, ImageSpec | None) or ImageSpec())
        if spec.labels and given.first_label is not None:
            raise UsageError("first_label has no meaning where labels have numbers; remove it")
        statistics = given.statistics
        made = ImagesSpec(
            numbering=LabelNumbering(given.first_label),
            copies=given.copies,
            augment_splits=given.augment_splits,
            statistics=statistics,
            statistics_sample=given.statistics_sample if statistics == "sample" else None,
        )
        job = CollectedImageJob(
            **pipeline_job(output, dataset, _shares(splits)),
            statistics_images=made.statistics_images,
            warnings=given.warnings,
            images=structs.replace(spec, seed=dataset.seed),
            copies=made.copies,
            keep_original=given.keep_original,
            max_rejected=given.max_rejected,
            numbering=made.numbering,
        )
        job = replace(job, augment_splits=augmented_splits(job, made.augment_splits))
        need_splits = splits is not None and not isinstance(splits, Mapping)
        super().__init__(_ImageSink(job, given.pack_bytes, need_splits))


def _shares(splits: Mapping[str, float] | Sequence[str] | None) -> Mapping[str, float] | None:
    """Returns the share of each split; of names alone the shares decide nothing."""
    if splits is None or isinstance(splits, Mapping):
        return splits
    if not splits:
        raise UsageError("splits must name a split, got none")
    if len(set(splits)) < len(splits):
        raise UsageError(f"splits must name each split once, got {','.join(splits)}")
    return {name: 1 / len(splits) for name in splits}
