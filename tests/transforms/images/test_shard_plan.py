from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.images.image_shard_plan import ImageSplit, choose_bounds
from recordmill.transforms.images.reference_files import (
    ROWS_PER_FILE,
    ReferenceFiles,
    ReferenceWriter,
)
from recordmill.transforms.images.references import ImageReference, StoredBytes


@settings(deadline=None)
@given(
    images=st.integers(1, 60), copies=st.integers(1, 7), shards=st.integers(1, 20),
    parts=st.integers(1, 5), seed=st.integers(0, 9),
)  # fmt: skip
def test_every_copy_of_every_image_is_in_one_part(
    images: int, copies: int, shards: int, parts: int, seed: int
) -> None:
    shards = min(shards, images * copies)
    record_bytes = np.random.default_rng(seed).integers(1, 1000, images)
    bounds = choose_bounds(record_bytes, copies, shards)
    split = ImageSplit("train", images, copies, tuple(bounds))
    slots = [
        split.locate(slot)
        for shard in range(split.num_shards)
        for part in range(parts)
        for slot in split.part_slots(shard, part, parts)
    ]
    assert Counter(slots) == {(r, c): 1 for r in range(images) for c in range(copies)}
    assert all(low < high for low, high in itertools.pairwise(bounds))


@given(images=st.integers(1, 200), copies=st.integers(1, 4), shards=st.integers(1, 30))
def test_equal_images_make_shards_that_differ_by_one(images: int, copies: int, shards: int) -> None:
    shards = min(shards, images * copies)
    bounds = choose_bounds(np.full(images, 5000), copies, shards)
    sizes = np.diff(bounds)
    assert sizes.max() - sizes.min() <= 1


def test_unequal_images_make_shards_of_equal_bytes() -> None:
    record_bytes = np.random.default_rng(0).lognormal(11, 1.2, 4000).astype(np.int64)
    for copies in (1, 3):
        bounds = choose_bounds(record_bytes, copies, 8)
        split = ImageSplit("train", len(record_bytes), copies, tuple(bounds))
        sizes = [
            sum(int(record_bytes[split.locate(slot)[0]]) for slot in range(low, high))
            for low, high in itertools.pairwise(bounds)
        ]
        assert max(sizes) / min(sizes) < 1.05


def test_copies_of_an_image_are_apart() -> None:
    split = ImageSplit("train", 100, 4, tuple(choose_bounds(np.full(100, 1), 4, 8)))
    for low, high in itertools.pairwise(split.bounds):
        ranks = [split.locate(slot)[0] for slot in range(low, high)]
        assert len(set(ranks)) == len(ranks)


def test_references_by_rank(tmp_path: Path) -> None:
    count = ROWS_PER_FILE + 7
    names = [f"a/{i}.jpg" for i in range(count)]
    lines = [ImageReference(name, StoredBytes(f"/in/{name}")).to_line() for name in names]
    writer = ReferenceWriter(str(tmp_path), 0)
    for line in lines:
        writer.add(line)
    writer.close()
    references = ReferenceFiles(str(tmp_path), 0)
    assert [references.read(rank, 0).name for rank in range(count)] == names
    split = ImageSplit("train", count, 1, (0, count))
    found = [reference.name for reference, _ in split.read_slots(references, range(500, 519))]
    assert found == names[500:519]
