"""Objects: boxes and masks say the same before and after, and what is lost is counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.images.augmentation import draw, output_matrix
from recordmill.transforms.images.decoding import ImageRejectedError, decode_mask
from recordmill.transforms.images.geometry import Matrix, scaling, shift
from recordmill.transforms.images.image_spec import AugmentationSpec, DecodeSpec, TransformSpec
from recordmill.transforms.images.masks import bounds, region_mask
from recordmill.transforms.images.objects import (
    PixelTransform,
    TransformedObject,
    transform_mask,
    transform_objects,
)
from recordmill.transforms.images.references import ImageObject, Region

SIZE = (160, 110)  # width, height
SQUARE = (40.0, 30.0, 100.0, 30.0, 100.0, 80.0, 40.0, 80.0)
POLYGON = Region("polygons", polygons=(SQUARE,))
ELL = Region("polygons", polygons=((20.0, 20.0, 40.0, 20.0, 40.0, 70.0, 90.0, 70.0, 90.0, 90.0,
                                    20.0, 90.0),))  # fmt: skip
EVERYTHING = AugmentationSpec.parse(
    "flip,vertical_flip,rot90,crop(0.3),scale(0.3),shear(0.2),rotate(40),translate(0.2)"
)
LABELS = {"cat": 3}


def as_runs(region: Region) -> Region:
    flat = region_mask(region, SIZE[1], SIZE[0]).T.reshape(-1)
    edges = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
    return Region("coco", runs=tuple(counts), size=SIZE[::-1])


def placed(item: ImageObject, transform: PixelTransform, min_visible: float = 0.0):
    return transform_objects([item], LABELS, transform, min_visible=min_visible, masks=True)


def pixels(item: TransformedObject) -> np.ndarray:
    return np.asarray(decode_mask(item.mask, DecodeSpec())[1])


def moved(matrix: Matrix) -> PixelTransform:
    return PixelTransform(matrix, SIZE, SIZE)


class TestProperties:
    @settings(deadline=None, max_examples=150)
    @given(
        st.integers(0, 2**64 - 1),
        st.sampled_from([None, (90, 90), (200, 200)]),
        st.sampled_from(["stretch", "fit", "crop", "shortest"]),
        st.sampled_from([POLYGON, ELL]),
    )
    def test_box_polygon_and_runs_agree(self, key, size, mode, region):
        spec = TransformSpec(size=size, mode=mode)
        matrix, canvas = output_matrix(draw(EVERYTHING, SIZE, seed=1, key=key, copy=1), SIZE, spec)
        transform = PixelTransform(matrix, SIZE, canvas)
        box = bounds(region_mask(region, SIZE[1], SIZE[0]))
        drawn, _ = placed(ImageObject("cat", box, region), transform)
        run, _ = placed(ImageObject("cat", box, as_runs(region)), transform)
        alone, _ = placed(ImageObject("cat", box), transform)
        if not drawn or not run:
            return
        assert drawn[0].box == pytest.approx(bounds(pixels(drawn[0])), abs=1)
        assert run[0].box == pytest.approx(bounds(pixels(run[0])), abs=1)
        # A pixel of the source, where the copy is enlarged.
        pixel = max(1.0, matrix.enlargement)
        differ = (pixels(drawn[0]) != pixels(run[0])).sum()
        around = 2 * sum(np.ptp(np.reshape(drawn[0].box, (2, 2)), axis=0))
        assert differ <= 1.5 * pixel * around + 8
        assert drawn[0].box == pytest.approx(run[0].box, abs=2 * pixel)
        # The box of the moved corners holds whatever is inside.
        for side, sign in enumerate((1, 1, -1, -1)):
            assert sign * alone[0].box[side] <= sign * run[0].box[side] + 1.5 * pixel

    @settings(deadline=None, max_examples=100)
    @given(st.integers(0, 2**64 - 1))
    def test_a_box_goes_back(self, key):
        straight = AugmentationSpec.parse("flip,vertical_flip,rot90")
        spec = TransformSpec(size=(64, 48))
        matrix, canvas = output_matrix(draw(straight, SIZE, seed=1, key=key, copy=1), SIZE, spec)
        box = (12.5, 30.0, 101.0, 77.25)
        (there,), _ = placed(ImageObject("cat", box), PixelTransform(matrix, SIZE, canvas))
        (back,), _ = placed(
            ImageObject("cat", there.box), PixelTransform(matrix.inverse(), canvas, SIZE)
        )
        assert back.box == pytest.approx(box, abs=1e-6)


class TestObjects:
    def test_all_is_kept(self):
        item = ImageObject("cat", (1, 2, 11, 22), is_crowd=True, difficult=True, area=50)
        (found,), counts = placed(item, PixelTransform(scaling(2, 3), SIZE, (320, 330)))
        assert found.box == (2, 6, 22, 66)
        assert (found.label, found.number, found.is_crowd, found.difficult) == (
            "cat",
            3,
            True,
            True,
        )
        assert (found.area, found.mask) == (300, b"")
        assert not any(counts.values())

    def test_area_where_none_is_given(self):
        (boxed,), _ = placed(ImageObject("cat", (0, 0, 10, 20)), moved(scaling(2, 2)))
        assert boxed.area == 800
        (masked,), _ = placed(ImageObject("cat", region=POLYGON), moved(Matrix()))
        assert masked.area == pixels(masked).sum() == 60 * 50
        assert masked.box == (40, 30, 100, 80)

    def test_masks_only_where_they_are_asked_for(self):
        item = ImageObject("cat", (40, 30, 100, 80), POLYGON, area=7)
        for transform in (moved(Matrix()), moved(shift(-60, 0))):
            (asked,), _ = placed(item, transform)
            (found,), _ = transform_objects([item], LABELS, transform, min_visible=0.0, masks=False)
            assert asked.mask
            assert found == replace(asked, mask=b"")

    @pytest.mark.parametrize(
        ("box", "reason"),
        [
            ((5, 5, 5, 9), "empty"),
            ((9, 9, 5, 5), "inverted"),
            ((9, 5, 5, 9), "inverted"),
            ((200, 0, 220, 10), "outside"),
            ((-20, 0, -10, 10), "outside"),
        ],
    )
    def test_boxes_of_nothing_are_counted_by_reason(self, box, reason: str):
        found, counts = placed(ImageObject("cat", box), moved(Matrix()))
        assert not found
        assert {k: n for k, n in counts.items() if n} == {f"boxes_dropped_{reason}": 1}

    def test_clipped_boxes_are_counted(self):
        for box, clipped in (
            ((-5, 0, 10000, 90), 1), ((0, 0, 160, 110), 0), ((-0.3, 0, 160.4, 110), 0),
        ):  # fmt: skip
            found, counts = placed(ImageObject("cat", box), moved(Matrix()))
            assert (len(found), counts["boxes_clipped"]) == (1, clipped)

    def test_fractions_are_of_the_stored_image(self):
        item = ImageObject("cat", (0.1, 0.5, 0.5, 1.0), is_fraction=True)
        (found,), _ = placed(item, PixelTransform(scaling(2, 2), SIZE, (320, 220)))
        assert found.box == (32, 110, 160, 220)

    def test_no_box_and_no_pixels(self):
        item = ImageObject("cat", region=Region("runs"))
        assert placed(item, moved(Matrix()))[1]["boxes_dropped_empty"] == 1
        assert placed(ImageObject("cat"), moved(Matrix()))[1]["boxes_dropped_empty"] == 1

    def test_boxes_end_at_the_sides(self):
        (found,), _ = placed(ImageObject("cat", (-5, 100, 20, 120)), moved(Matrix()))
        assert found.box == (0, 100, 20, 110)

    def test_what_is_cut_away_is_counted(self):
        item = ImageObject("cat", (0, 0, 10, 10))
        for share, kept in ((0.29, 1), (0.31, 0)):
            found, counts = placed(item, moved(shift(-7, 0)), min_visible=share)
            assert (len(found), counts["boxes_dropped_cut"]) == (kept, 1 - kept)
        assert placed(item, moved(shift(-11, 0)))[1]["boxes_dropped_cut"] == 1

    def test_a_cut_object_has_the_box_of_what_is_seen(self):
        # Of the L, only its foot is left of x = 50: the box of the corners would be too high.
        item = ImageObject("cat", (20, 20, 90, 90), ELL)
        (found,), _ = placed(item, moved(shift(-50, 0)))
        assert found.box == pytest.approx((0, 70, 40, 90), abs=1)

    def test_unknown_label(self):
        with pytest.raises(ImageRejectedError) as caught:
            placed(ImageObject("dog", (0, 0, 10, 10)), moved(Matrix()))
        assert (caught.value.reason, caught.value.detail) == ("unknown_label", "dog")

    def test_broken_polygon(self):
        item = ImageObject("cat", (0, 0, 9, 9), Region("polygons", polygons=((1.0, 2.0),)))
        with pytest.raises(ImageRejectedError) as caught:
            placed(item, moved(Matrix()))
        assert caught.value.reason == "broken_mask"

    def test_masks_move_by_nearest(self):
        mask = np.array([[7, 0], [0, 200]], np.uint8)
        found = transform_mask(mask, PixelTransform(scaling(2, 1), (2, 2), (4, 3)))
        assert found.tolist() == [[7, 7, 0, 0], [0, 0, 200, 200], [0, 0, 0, 0]]
