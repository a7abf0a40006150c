"""Cut the images of each split into shards, and shards into work items for the workers at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from recordmill.pipelines.job_request import parse_num_shards
from recordmill.transforms.dataset.output_spec import SplitSpec
from recordmill.transforms.images.image_job import ImageJob
from recordmill.transforms.images.image_shard_plan import ImageSplit
from recordmill.transforms.images.shard_cutting import USUAL_SPLITS

_WORK_ITEMS_PER_WORKER = 4
_MOST_WAITING = 1.15  # of the time of workers that all end at once
_MOST_WORK_ITEM_RECORDS = 10_000  # of a work item that is a whole shard: what a killed worker loses


def input_splits(counts: Mapping[str, int], num_shards: str | None) -> tuple[SplitSpec, ...]:
    """Returns the splits that the input names, in their usual order.

    Args:
      counts: split -> images.
      num_shards: the flag, as given.
    """
    total = sum(counts.values())
    usual = {name: position for position, name in enumerate(USUAL_SPLITS)}
    names = sorted(counts, key=lambda name: (usual.get(name, len(usual)), name))
    shards = parse_num_shards(num_shards, names)
    return tuple(SplitSpec(name, counts[name] / total, shards.get(name)) for name in names)


def describe_copies(job: ImageJob) -> str:
    """Returns one line: which splits are augmented, and which are not."""
    parts: dict[str, list[str]] = {}
    for split in job.splits:
        copies = job.variants(split.name)
        augmented = sum(copy is not None for copy in copies)
        what = f"{augmented} augmented" if augmented else "one unaugmented copy"
        if augmented and None in copies:
            what += " and the original"
        parts.setdefault(what, []).append(split.name)
    shown = "; ".join(f"{', '.join(names)}: {what}" for what, names in parts.items())
    return f"copies of each image in {shown} (--augment_splits)"


def count_work_items(splits: Sequence[ImageSplit], workers: int) -> tuple[int, int]:
    """Returns the work items for so many workers, and how many of them share a shard.

    Records of parts are written twice, so a work item is a whole shard where then few workers wait.
    """
    shards = sum(split.num_shards for split in splits)
    largest = max(int(np.diff(split.bounds).max()) for split in splits)
    rounds = -(-shards // workers)
    records = sum(split.bounds[-1] for split in splits)
    even = rounds > 1 and rounds * workers * largest <= records * _MOST_WAITING
    if workers == 1 or (even and largest <= _MOST_WORK_ITEM_RECORDS):
        return shards, 1
    parts = -(-workers * _WORK_ITEMS_PER_WORKER // shards)
    return shards * parts, parts
