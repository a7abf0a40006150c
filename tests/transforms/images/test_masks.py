"""Masks: runs and polygons to pixels, held against pycocotools; nothing wrong gets through."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from pycocotools import mask as coco

from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.masks import bounds, class_mask, region_mask
from recordmill.transforms.images.references import Region

MASKS = arrays(
    np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=12), elements=st.integers(0, 1)
)
EASY = settings(deadline=None, max_examples=200)


def reason(region: Region, height: int = 4, width: int = 5) -> str:
    with pytest.raises(ImageRejectedError) as caught:
        region_mask(region, height, width)
    assert caught.value.reason == "broken_mask"
    return caught.value.detail


class TestRuns:
    def test_severstal(self):
        mask = region_mask(Region("runs", runs=(2, 3, 9, 1)), 4, 3)
        assert mask.tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0]]

    @EASY
    @given(MASKS)
    def test_severstal_round_trip(self, mask):
        flat = np.concatenate([[0], mask.T.reshape(-1), [0]]).astype(int)
        starts, ends = np.flatnonzero(np.diff(flat) == 1), np.flatnonzero(np.diff(flat) == -1)
        runs = tuple(int(v) for pair in zip(starts + 1, ends - starts, strict=True) for v in pair)
        np.testing.assert_array_equal(region_mask(Region("runs", runs=runs), *mask.shape), mask)

    @EASY
    @given(MASKS)
    def test_coco(self, mask):
        packed = coco.encode(np.asfortranarray(mask))
        text = Region("coco", runs=packed["counts"].decode(), size=mask.shape)
        np.testing.assert_array_equal(region_mask(text, *mask.shape), mask)
        flat = mask.T.reshape(-1)
        edges = np.flatnonzero(np.diff(flat)) + 1
        counts = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
        counts = [0, *counts] if flat[0] else counts
        listed = Region("coco", runs=tuple(counts))
        np.testing.assert_array_equal(region_mask(listed, *mask.shape), mask)

    @EASY
    @given(st.text(max_size=20))
    def test_any_text_is_read_or_rejected(self, text):
        with suppress(ImageRejectedError):
            assert region_mask(Region("coco", runs=text), 3, 4).shape == (3, 4)

    @pytest.mark.parametrize(
        ("region", "detail"),
        [
            (Region("runs", runs=(1, 2, 3)), "runs are pairs of a start and a length"),
            (Region("runs", runs=(0, 2)), "run 0 2 in an image of 20 pixels"),
            (Region("runs", runs=(20, 2)), "run 20 2 in an image of 20 pixels"),
            (Region("runs", runs=(5, 3, 7, 2)), "run 7 2 in an image of 20 pixels"),
            (Region("runs", runs=(5, 0)), "run 5 0 in an image of 20 pixels"),
            (Region("coco", runs=(5, 10)), "runs of 15 pixels in an image of 20"),
            (Region("coco", runs=(25, -5)), "runs of 20 pixels in an image of 20"),
            (Region("coco", runs=(20,), size=(5, 4)), "a region of 4 x 5 pixels"),
            (Region("polygons", polygons=((1, 1, 2, 2),)), "a polygon of 4 numbers"),
            (Region("polygons", polygons=((1, 1, 2, 2, 3, 3, 4),)), "a polygon of 7 numbers"),
            (Region("polygons", polygons=((0, 0, 1, 0, 1, float("nan")),)), "far outside"),
            (Region("polygons", polygons=((0, 0, 1, 0, 1, 1e12),)), "far outside"),
        ],
    )
    def test_rejects(self, region, detail):
        assert detail in reason(region)

    def test_no_runs_is_no_pixel(self):
        assert region_mask(Region("runs"), 2, 2).sum() == 0
        assert region_mask(Region("polygons"), 2, 2).sum() == 0


class TestPolygons:
    @pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
    def test_as_pycocotools(self):
        polygons = ((10.5, 10.0, 40.0, 12.0, 30.0, 45.5), (50.0, 50.0, 60.0, 50.0, 60.0, 60.0))
        found = region_mask(Region("polygons", polygons=polygons), 64, 80)
        parts = coco.frPyObjects([list(p) for p in polygons], 64, 80)
        np.testing.assert_array_equal(found, coco.decode(coco.merge(parts)))
        assert bounds(found) == pytest.approx((10.5, 10, 60, 60), abs=1)

    def test_beyond_the_sides_is_cut(self):
        square = Region("polygons", polygons=((-20.0, -20.0, 5.0, -20.0, 5.0, 5.0, -20.0, 5.0),))
        found = region_mask(square, 20, 30)
        assert bounds(found) == pytest.approx((0, 0, 5, 5), abs=1)


class TestClasses:
    REGIONS = (("a", Region("runs", runs=(1, 4))), ("b", Region("runs", runs=(3, 4))))

    def test_later_regions_win(self):
        found = class_mask(self.REGIONS, {"a": 1, "b": 7}, height=2, width=4)
        assert found.tolist() == [[1, 7, 7, 0], [1, 7, 7, 0]]

    def test_unknown_label(self):
        with pytest.raises(ImageRejectedError) as caught:
            class_mask(self.REGIONS, {"a": 1}, height=2, width=4)
        assert (caught.value.reason, caught.value.detail) == ("unknown_label", "b")

    def test_a_region_cannot_be_background(self):
        with pytest.raises(ImageRejectedError) as caught:
            class_mask(self.REGIONS, {"a": 0, "b": 1}, height=2, width=4)
        assert caught.value.reason == "mask_classes"

    def test_bounds(self):
        mask = np.zeros((5, 6), np.uint8)
        assert bounds(mask) is None
        mask[2, 3] = mask[4, 1] = 1
        assert bounds(mask) == (1, 2, 4, 5)
