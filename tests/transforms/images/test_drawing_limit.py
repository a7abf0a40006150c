"""Regions that take billions of pixels to draw are rejects, and usual ones cost little."""

from __future__ import annotations

import time

import numpy as np
import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.geometry import Matrix
from recordmill.transforms.images.image_spec import ImageSpec
from recordmill.transforms.images.masks import (
    DrawingLimit,
    bounds,
    class_mask,
    draw_polygons,
    region_bounds,
    region_mask,
)
from recordmill.transforms.images.objects import PixelTransform, transform_objects
from recordmill.transforms.images.references import ImageObject, Region


def square(side: float) -> Region:
    return Region("polygons", polygons=((0, 0, side, 0, side, side, 0, side),))


def zigzag(side: float, corners: int, reach: float = 1) -> Region:
    """A polygon whose outline goes from side to side."""
    numbers = [n for i in range(corners) for n in (i % 2 * side * reach, i * side / corners)]
    return Region("polygons", polygons=(tuple(numbers),))


def drawn_region(rng: np.random.Generator, height: int, width: int) -> Region:
    """A region of random runs, or of random polygons."""
    if rng.random() < 0.5:
        cuts = np.sort(rng.integers(0, height * width + 1, rng.integers(0, 12)))
        counts = np.diff([0, *cuts, height * width])
        return Region("coco", runs=tuple(counts.tolist()), size=(height, width))
    polygons = rng.uniform(-5, 1.2 * max(height, width), (rng.integers(0, 3), 8))
    return Region("polygons", polygons=tuple(map(tuple, polygons.tolist())))


@pytest.mark.parametrize("seed", range(40))
def test_masks_and_boxes_are_those_of_whole_masks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = (int(n) for n in rng.integers(1, 30, 2))
    regions = [("ab"[i % 2], drawn_region(rng, height, width)) for i in range(6)]
    wanted = np.zeros((height, width), np.uint8)
    for name, region in regions:
        whole = region_mask(region, height, width)
        wanted[whole > 0] = {"a": 1, "b": 7}[name]
        assert region_bounds(region, height, width) == bounds(whole)
    found = class_mask(regions, {"a": 1, "b": 7}, height=height, width=width)
    np.testing.assert_array_equal(found, wanted)


def test_many_runs_are_drawn_alike() -> None:
    stripes = Region("coco", runs=(1, 2) * 80_000, size=(400, 600))
    found = class_mask([("a", stripes)], {"a": 3}, height=400, width=600)
    np.testing.assert_array_equal(found, region_mask(stripes, 400, 600) * 3)


def test_large_regions_are_painted_in_little_time() -> None:
    regions = [("a", square(6000))] * 40
    began = time.process_time()
    most = 2_000_000_000
    mask = class_mask(regions, {"a": 1}, height=6000, width=6000, max_drawn_pixels=most)
    assert mask.all()
    assert time.process_time() - began < 5  # a whole mask for each took 12


@pytest.mark.parametrize(
    "regions",
    [
        pytest.param([square(6000)] * 100, id="interiors"),
        pytest.param([zigzag(13_000, 1_000)], id="an outline"),
        pytest.param([zigzag(13_000, 500, 15)], id="an outline beyond the image"),
        pytest.param(
            [Region("coco", runs=(1,) * 9_000_000, size=(3000, 3000))] * 300, id="many runs"
        ),
    ],
)
def test_too_much_to_draw_is_a_reject_in_no_time(regions: list[Region]) -> None:
    side = 3000 if regions[0].size[0] else 13_000 if len(regions) == 1 else 6000
    began = time.process_time()
    with pytest.raises(ImageRejectedError, match="more than 500000000 pixels") as caught:
        class_mask(
            [("a", region) for region in regions], {"a": 1},
            height=side, width=side, max_drawn_pixels=500_000_000,
        )  # fmt: skip
    assert caught.value.reason == "too_much_to_draw"
    assert time.process_time() - began < 10


def test_masks_of_objects_count_the_whole_image() -> None:
    item = ImageObject("a", (0.0, 0.0, 9.0, 9.0), square(9), area=81.0)
    transform = PixelTransform(Matrix(), (100, 100), (100, 100))
    drawn = 10_000 + 400 * (36 + 4)

    def number(count: int, most: int, *, masks: bool = True) -> int:
        found, _ = transform_objects(
            [item] * count, {"a": 1}, transform,
            min_visible=0.1, masks=masks, max_drawn_pixels=most,
        )  # fmt: skip
        return len(found)

    assert number(5, 5 * drawn) == 5
    with pytest.raises(ImageRejectedError, match="too_much_to_draw"):
        number(5, 5 * drawn - 1)
    assert number(50, 1, masks=False) == 50  # their boxes are given


def test_boxes_of_regions_are_not_drawn() -> None:
    item = ImageObject("a", None, square(9000), area=81.0)
    transform = PixelTransform(Matrix(), (9000, 9000), (9000, 9000))
    limit = DrawingLimit(400 * 4 * 9001)
    assert region_bounds(square(9000), 9000, 9000, limit) == (0, 0, 9000, 9000)
    with pytest.raises(ImageRejectedError, match="too_much_to_draw"):
        draw_polygons([square(9000).polygons[0]], 9000, 9000, limit)
    with pytest.raises(ImageRejectedError, match="too_much_to_draw"):
        transform_objects(
            [item] * 300, {"a": 1}, transform,
            min_visible=0.1, masks=False, max_drawn_pixels=10_000_000,
        )  # fmt: skip


def test_the_limit_is_a_number_of_pixels() -> None:
    with pytest.raises(UsageError, match=r"^ImageSpec\.max_drawn_pixels must be at least 1, got 0"):
        ImageSpec("detection", "object_detection", {"a": 1}, max_drawn_pixels=0)
