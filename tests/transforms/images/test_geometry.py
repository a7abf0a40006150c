"""Geometry: what the matrix says is what happens to pixels, masks and boxes, within a pixel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.records.errors import UsageError
from recordmill.transforms.images.augmentation import draw, output_matrix
from recordmill.transforms.images.decoding import decode
from recordmill.transforms.images.geometry import (
    Matrix,
    box_around,
    clip,
    keeps_all,
    quarter_turns,
    render,
    resizing,
    rotation,
    scaling,
    shearing,
    shift,
    shrink_for,
    upright_matrix,
)
from recordmill.transforms.images.image_spec import (
    AugmentationSpec,
    DecodeSpec,
    TransformSpec,
    parse_size,
)

from ...pictures import drawn, turned_jpeg

EVERYTHING = AugmentationSpec.parse(
    "flip,vertical_flip,rot90,crop(0.3),scale(0.3),shear(0.2),rotate(40),translate(0.2),"
    "randaugment(2,6)"
)
SPECS = st.builds(
    lambda size, mode, resample: TransformSpec(size=size, mode=mode, resample=resample),
    st.sampled_from([None, (90, 90), (200, 200), (31, 31)]),
    st.sampled_from(["stretch", "fit", "crop", "longest", "shortest"]),
    st.sampled_from(["nearest", "bilinear", "bicubic", "lanczos"]),
)
EASY = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.filter_too_much]
)


def blob(width: int, height: int, x: float, y: float, sigma: float) -> Image.Image:
    across, down = np.arange(width) + 0.5, np.arange(height) + 0.5
    far = (across[None, :] - x) ** 2 + (down[:, None] - y) ** 2
    return Image.fromarray((255 * np.exp(-far / (2 * sigma**2))).astype(np.uint8))


def centre(image: Image.Image) -> tuple[float, float]:
    light = np.asarray(image).astype(float)
    across, down = np.arange(image.width) + 0.5, np.arange(image.height) + 0.5
    return (light * across).sum() / light.sum(), (light * down[:, None]).sum() / light.sum()


def black(image: Image.Image, matrix: Matrix, size: tuple[int, int], resample: str) -> Image.Image:
    return render(image, matrix, size, resample=resample, fill=(0, 0, 0))


class TestMatrix:
    def test_steps(self):
        point = np.array([[3.0, 1.0]])
        assert shift(2, 5).apply(point).tolist() == [[5, 6]]
        assert scaling(2, 5).apply(point).tolist() == [[6, 5]]
        assert shearing(0.5, 0).apply(point).tolist() == [[3.5, 1]]
        assert rotation(90).apply(point).tolist() == [[1, -3]]  # up is minus
        assert shift(1, 0).after(scaling(2, 2)).apply(point).tolist() == [[7, 2]]

    @EASY
    @given(st.integers(0, 2**64 - 1), SPECS, st.tuples(st.floats(0, 160), st.floats(0, 110)))
    def test_a_point_goes_there_and_back(self, key, spec, point):
        parameters = draw(EVERYTHING, (160, 110), seed=1, key=key, copy=1)
        matrix, _ = output_matrix(parameters, (160, 110), spec)
        there = matrix.apply(np.array([point]))
        np.testing.assert_allclose(matrix.inverse().apply(there), [point], atol=1e-6)

    @EASY
    @given(st.integers(0, 2**64 - 1), SPECS)
    def test_determinant_and_enlargement(self, key, spec):
        parameters = draw(EVERYTHING, (160, 110), seed=2, key=key, copy=1)
        matrix, _ = output_matrix(parameters, (160, 110), spec)
        linear = np.array([[matrix.a, matrix.b], [matrix.d, matrix.e]])
        assert matrix.determinant == pytest.approx(np.linalg.det(linear))
        assert matrix.enlargement == pytest.approx(np.linalg.svd(linear)[1][0])

    @pytest.mark.parametrize("turns", [0, 1, 2, 3, 4])
    def test_quarter_turns(self, turns):
        image = drawn(40, 30)
        size = (30, 40) if turns % 2 else (40, 30)
        found = black(image, quarter_turns(turns, 40, 30), size, "bilinear")
        np.testing.assert_array_equal(np.asarray(found), np.rot90(np.asarray(image), turns))

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_upright(self, orientation):
        data = turned_jpeg(orientation)
        upright = decode(data, DecodeSpec(), channels=3)
        stored = decode(turned_jpeg(1), DecodeSpec(), channels=3).image
        matrix = upright_matrix(orientation, 48, 32)
        found = black(stored, matrix, upright.header.decoded_size, "nearest")
        np.testing.assert_array_equal(np.asarray(found), upright.pixels)


class TestResizing:
    @pytest.mark.parametrize(
        ("mode", "size", "corners", "canvas"),
        [
            ("stretch", (50, 60), (0, 0, 60, 50), (60, 50)),
            ("fit", (60, 60), (0, 15, 60, 45), (60, 60)),
            ("fit", (30, 100), (20, 0, 80, 30), (100, 30)),
            ("crop", (60, 60), (-30, 0, 90, 60), (60, 60)),
            ("longest", (60, 60), (0, 0, 60, 30), (60, 30)),
            ("shortest", (60, 60), (0, 0, 120, 60), (120, 60)),
        ],
    )
    def test_modes(self, mode, size, corners, canvas):
        matrix, found = resizing(TransformSpec(size=size, mode=mode), 200, 100)
        assert found == canvas
        assert box_around(matrix, (0, 0, 200, 100)) == pytest.approx(corners)

    @pytest.mark.parametrize("mode", ["stretch", "fit", "crop", "longest", "shortest"])
    @pytest.mark.parametrize("size", [(1, 1000), (1000, 1), (3, 2)])
    def test_no_side_is_zero(self, mode, size):
        matrix, canvas = resizing(TransformSpec(size=(7, 7), mode=mode), *size)
        assert min(canvas) >= 1
        assert black(Image.new("RGB", size, (9, 9, 9)), matrix, canvas, "bilinear").size == canvas

    def test_a_plain_resize_is_pillows(self):
        image = drawn(200, 130)
        matrix, size = resizing(TransformSpec(size=(50, 70)), 200, 130)
        found = black(image, matrix, size, "bilinear")
        expected = image.resize((70, 50), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))

    def test_padding_has_the_fill_and_no_seam(self):
        matrix, size = resizing(TransformSpec(size=(40, 40), mode="fit"), 80, 40)
        found = np.asarray(
            render(Image.new("RGB", (80, 40), (9, 9, 9)), matrix, size, resample="bicubic",
                   fill=(1, 2, 3))
        )  # fmt: skip
        assert np.unique(found[:10].reshape(-1, 3), axis=0).tolist() == [[1, 2, 3]]
        assert np.unique(found[10:30].reshape(-1, 3), axis=0).tolist() == [[9, 9, 9]]

    @pytest.mark.parametrize(
        ("text", "size"), [("224", (224, 224)), ("3x5", (3, 5)), ("3X5", (3, 5))]
    )
    def test_parse_size(self, text, size):
        assert parse_size(text) == size

    @pytest.mark.parametrize("text", ["", "x", "3x", "3x4x5", "-3", "3.5", "²"])
    def test_sizes_that_are_none(self, text):
        with pytest.raises(UsageError, match="--image_size must be HEIGHTxWIDTH or one number"):
            parse_size(text)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"size": (0, 5)}, "TransformSpec.size must be sides from 1 to 65535, got 0x5"),
            ({"mode": "fill"}, "TransformSpec.mode must be one of crop, fit, .*, got 'fill'"),
            (
                {"resample": "cubic"},
                "TransformSpec.resample must be one of .*; did you mean 'bicubic'",
            ),
            ({"size": (3, 4), "mode": "longest"}, "one side in TransformSpec.size, .*, got 3x4"),
            ({"fill": (0, 0, 256)}, "TransformSpec.fill must be three numbers from 0 to 255, got"),
        ],
    )
    def test_errors(self, options, message):
        with pytest.raises(UsageError, match=message):
            TransformSpec(**options)


class TestRender:
    @EASY
    @given(
        st.integers(0, 2**64 - 1), SPECS,
        st.tuples(st.floats(0.2, 0.8), st.floats(0.2, 0.8)),
    )  # fmt: skip
    def test_pixels_go_where_the_matrix_says(self, key, spec, at):
        size = (160, 110)
        parameters = draw(EVERYTHING, size, seed=3, key=key, copy=1)
        matrix, canvas = output_matrix(parameters, size, spec)
        x, y = at[0] * size[0], at[1] * size[1]
        reach = 4 / min(1, max(0.5, matrix.enlargement))  # large enough to survive nearest
        image = blob(*size, x, y, reach)
        (moved,) = matrix.apply(np.array([[x, y]]))
        margin = 3 * reach * matrix.enlargement + 1
        assume(all(margin < moved[i] < canvas[i] - margin for i in (0, 1)))
        assume(3 * reach < x < size[0] - 3 * reach and 3 * reach < y < size[1] - 3 * reach)
        found = centre(black(image, matrix, canvas, spec.resample))
        assert found == pytest.approx(tuple(moved), abs=1)

    @EASY
    @given(st.integers(0, 2**64 - 1), SPECS)
    def test_a_mask_and_its_box_agree(self, key, spec):
        size = (160, 110)
        # Without slanted steps the box of the moved corners is the one around the mask.
        straight = AugmentationSpec.parse("flip,vertical_flip,rot90,crop,scale(0.3),translate(0.2)")
        matrix, canvas = output_matrix(draw(straight, size, seed=4, key=key, copy=1), size, spec)
        box = (40.0, 30.0, 90.0, 80.0)
        mask = np.zeros((110, 160), np.uint8)
        mask[30:80, 40:90] = 1
        seen, share = clip(box_around(matrix, box), canvas)
        found = np.asarray(black(Image.fromarray(mask), matrix, canvas, "nearest"))
        if share > 0 and min(seen[2] - seen[0], seen[3] - seen[1]) > 2:
            rows, columns = np.nonzero(found)
            around = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert around == pytest.approx(seen, abs=1)

    def test_shrinking_averages(self):
        # A fine chessboard becomes grey, along the axes and turned.
        board = Image.fromarray((np.indices((400, 400)).sum(axis=0) % 2 * 255).astype(np.uint8))
        for degrees in (0, 30):
            turned = rotation(degrees).after(shift(-200, -200))
            matrix = shift(20, 20).after(scaling(0.1, 0.1)).after(turned)
            middle = np.asarray(black(board, matrix, (40, 40), "bilinear"))[12:28, 12:28]
            assert abs(middle.astype(int) - 127).max() < 20

    def test_nothing_in_sight(self):
        image = Image.new("RGB", (10, 10), (9, 9, 9))
        for matrix in (shift(50, 0), shift(50, 0).after(rotation(10))):
            found = render(image, matrix, (20, 20), resample="bilinear", fill=(1, 2, 3))
            assert np.unique(np.asarray(found).reshape(-1, 3), axis=0).tolist() == [[1, 2, 3]]

    def test_grey_is_filled_too(self):
        found = render(
            Image.new("L", (10, 10), 9), shift(5, 0), (20, 10), resample="nearest", fill=(7, 0, 0)
        )
        assert np.asarray(found)[0].tolist() == [7] * 5 + [9] * 10 + [7] * 5

    def test_decoding_leaves_the_gap_that_is_asked_for(self):
        sizes = (1, 0.5, 0.3, 0.25, 0.13, 0.125, 0.06, 0.01)
        assert [shrink_for(scaling(s, s / 2), 2.0) for s in sizes] == [1, 1, 1, 2, 2, 4, 8, 8]
        assert [shrink_for(scaling(s, s / 2), 1.0) for s in sizes] == [1, 2, 2, 4, 4, 8, 8, 8]

    def test_a_large_gap_is_the_filter_alone_and_a_small_one_near_it(self):
        size = (310, 250)
        waves = np.indices(size).sum(axis=0) * 2 % 256
        image = Image.fromarray(waves.astype(np.uint8))

        def resized(gap: float | None) -> np.ndarray:
            matrix = scaling(100 / image.width, 100 / image.height)
            found = render(
                image, matrix, (100, 100), resample="bilinear", fill=(0, 0, 0), reducing_gap=gap
            )
            return np.asarray(found).astype(int)

        assert (resized(9.0) == resized(None)).all()
        difference = np.abs(resized(1.0) - resized(None))
        assert 0 < difference.mean() < 4


class TestBoxes:
    def test_clip(self):
        assert clip((-10, 0, 10, 10), (20, 20)) == ((0, 0, 10, 10), 0.5)
        assert clip((5, 5, 5, 9), (20, 20))[1] == 0
        assert clip((30, 0, 40, 10), (20, 20))[1] == 0

    def test_keeps_all(self):
        assert keeps_all(scaling(2, 3), (10, 10), (20, 30))
        assert keeps_all(quarter_turns(1, 10, 20), (10, 20), (20, 10))
        assert not keeps_all(scaling(2, 3), (10, 10), (20, 20))
        assert not keeps_all(rotation(5), (10, 10), (100, 100))
