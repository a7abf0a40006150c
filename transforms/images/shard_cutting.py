"""Cut the images of each split into shards, by the expected bytes of their records."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.images.image_job import ImageJob
from recordmill.transforms.images.image_shard_plan import ImageSplit, choose_bounds
from recordmill.transforms.images.image_spec import ImageSpec
from recordmill.transforms.images.references import ImageReference

UNKNOWN_BYTES = 100_000  # of an image on an object store whose size was not asked for
USUAL_SPLITS = ("train", "validation", "test")
_FEATURE_BYTES = 300  # of a record beside its image
# Bytes a pixel and channel, of photographs: only shard counts depend on them.
_ENCODED_BYTES = {"JPEG": 0.25, "WEBP": 0.2, "PNG": 0.8, "keep": 0.5, "raw": 1.0, "float": 4.0}


def expected_record_bytes(spec: ImageSpec, image: ImageReference) -> int:
    """Returns the expected bytes of a record: by pixels where all images get one size."""
    if spec.transform.fixed_size is not None:
        height, width = spec.transform.fixed_size
        pixels = height * width * spec.channels
        return _FEATURE_BYTES + int(pixels * _ENCODED_BYTES[spec.encode.format])
    mask = max(image.mask.size, 0) if image.mask else 0
    size = image.image.size
    return _FEATURE_BYTES + (size if size >= 0 else UNKNOWN_BYTES) + mask


def augmented_splits(job: ImageJob, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """Returns the splits whose images are augmented.

    Args:
      job: the job; its splits are complete.
      wanted: what --augment_splits names; None where it is not given.

    Raises:
      UsageError: the flag names a split that there is not, it has no effect, or it is needed.
    """
    names = tuple(split.name for split in job.splits)
    if not job.images.augmentation:
        if wanted:
            raise UsageError(
                f"--augment_splits={','.join(wanted)} must go with --augmentations, got none"
            )
        return ()
    if wanted == ("all",):
        return names
    if wanted is None:
        # A split of any other name, such as train_eval, may be one that models are measured on.
        usual = ("train",) if "train" in names else ("trainval", "training")
        wanted = tuple(name for name in names if name in usual)
        if not wanted:
            raise UsageError(
                "--augmentations must go with --augment_splits where no split is called train "
                f"({', '.join(names)}): give --augment_splits=all, or the names of some"
            )
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise UsageError(
            f"--augment_splits={','.join(wanted)} must name splits of this dataset "
            f"({', '.join(names)}), got {unknown[0]!r}; give all, or the names of some"
        )
    return tuple(name for name in names if name in wanted)


def cut_shards(
    job: ImageJob, record_bytes: Sequence[array[int]], *, named: bool = False
) -> list[ImageSplit]:
    """Returns the shards of each split.

    Args:
      job: the job; its splits are complete.
      record_bytes: for each split, the expected bytes of a record of each image, by rank.
      named: images of a PCollection name their splits, and none was drawn.

    Raises:
      UsageError: a split is empty, or has fewer records than shards.
    """
    copies = [len(job.variants(spec.name)) for spec in job.splits]
    for spec, sizes in zip(job.splits, record_bytes, strict=True):
        images = sum(map(len, record_bytes))
        if not sizes and named:
            raise UsageError(
                f"none of {images} images names the split {spec.name}; set Image.split of some, "
                "or remove it from --splits"
            )
        if not sizes:
            raise UsageError(
                f"--splits gives {spec.name} none of {images} images; give it a larger share, or "
                "remove it"
            )
    totals = [sum(sizes) * times for sizes, times in zip(record_bytes, copies, strict=True)]
    counts = count_shards(totals, job.splits, job.shards)
    splits = []
    for spec, sizes, times, shards in zip(job.splits, record_bytes, copies, counts, strict=True):
        records = len(sizes) * times
        if spec.num_shards is not None and shards > records:
            raise UsageError(
                f"--num_shards must be at most {records} for {spec.name}, the records it gets, got "
                f"{shards}"
            )
        bounds = choose_bounds(np.array(sizes, np.int64), times, min(shards, records))
        splits.append(ImageSplit(spec.name, len(sizes), times, tuple(bounds)))
    return splits
