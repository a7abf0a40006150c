"""Augmentations: what is drawn is a pure function, every operation does something, and no more."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from recordmill.records.augmentations import AUGMENTATIONS, Flip, RandAugment, Rot90, Rotate
from recordmill.records.errors import UsageError
from recordmill.records.spec import plain
from recordmill.transforms.images.augmentation import draw, output_matrix
from recordmill.transforms.images.colors import recolour
from recordmill.transforms.images.geometry import render
from recordmill.transforms.images.image_spec import AugmentationSpec, TransformSpec

from ...pictures import drawn

SIZE = (60, 40)
GEOMETRIC = {"flip", "vertical_flip", "rot90", "crop", "scale", "shear", "rotate", "translate"}


def drawn_for(text: str, key: int, copy: int = 1, seed: int = 0) -> dict:
    return draw(AugmentationSpec.parse(text), SIZE, seed=seed, key=key, copy=copy)


def augmented(text: str, key: int) -> np.ndarray:
    parameters = drawn_for(text, key)
    matrix, size = output_matrix(parameters, SIZE, TransformSpec())
    image = render(drawn(*SIZE), matrix, size, resample="bilinear", fill=(1, 2, 3))
    return np.asarray(recolour(image, parameters, (1, 2, 3)))


class TestDraws:
    def test_are_of_seed_operation_key_and_copy(self):
        first = drawn_for("rotate,translate", 5)
        assert first == drawn_for("rotate,translate", 5)
        assert first["rotate"] == drawn_for("flip,rotate,crop", 5)["rotate"]
        others = [
            drawn_for("rotate", 6), drawn_for("rotate", 5, copy=2), drawn_for("rotate", 5, seed=1),
        ]  # fmt: skip
        assert len({first["rotate"], *(other["rotate"] for other in others)}) == 4

    def test_golden(self):
        # A change of these is a change of every augmented dataset: it belongs into CHANGELOG.md.
        assert drawn_for("flip,crop,rotate,color,noise,randaugment", 2**63 + 7) == {
            "flip": True,
            "crop": [1, 7, 24, 31],
            "rotate": 12.217253,
            "color": [1.059142, 1.002644, 0.80875],
            "noise": [0.003989, 1760546747],
            "randaugment": [["equalize", 0], ["posterize", 4]],
        }

    @pytest.mark.parametrize("name", AUGMENTATIONS)
    def test_are_json_and_decide_all(self, name):
        for key in range(20):
            parameters = drawn_for(name, key)
            assert json.loads(json.dumps(parameters)) == parameters

    def test_rates(self):
        flips = Counter(drawn_for("flip(0.2)", key)["flip"] for key in range(2000))
        assert 320 < flips[True] < 480
        turns = Counter(drawn_for("rot90", key)["rot90"] for key in range(2000))
        assert all(400 < turns[count] < 600 for count in range(4))
        angles = [drawn_for("rotate(30)", key)["rotate"] for key in range(500)]
        assert -30 <= min(angles) < -25
        assert 25 < max(angles) <= 30
        names = Counter(
            name for key in range(700) for name, _ in drawn_for("randaugment", key)["randaugment"]
        )
        assert len(names) == 14
        assert min(names.values()) > 60

    def test_crops_lie_inside_and_have_the_share(self):
        for key in range(500):
            x, y, width, height = drawn_for("crop(0.3)", key)["crop"]
            assert x >= 0
            assert y >= 0
            assert x + width <= 60
            assert y + height <= 40
            assert width * height >= 0.3 * 60 * 40 * 0.9
        assert draw(AugmentationSpec.parse("crop"), (1, 500), seed=0, key=1, copy=1) == {
            "crop": [0, 0, 1, 500]
        }


class TestEffects:
    @pytest.mark.parametrize("name", AUGMENTATIONS)
    def test_every_operation_does_something(self, name):
        before = np.asarray(drawn(*SIZE))
        outcomes = [augmented(name, key) for key in range(8)]
        assert any(not np.array_equal(before, after) for after in outcomes)
        assert all(after.dtype == np.uint8 for after in outcomes)
        assert {after.shape for after in outcomes} <= {before.shape, (60, 40, 3)}

    @pytest.mark.parametrize("name", sorted(set(AUGMENTATIONS) - GEOMETRIC - {"randaugment"}))
    def test_colours_move_no_pixel(self, name):
        matrix, size = output_matrix(drawn_for(name, 3), SIZE, TransformSpec())
        assert matrix == (1, 0, 0, 0, 1, 0)
        assert size == SIZE

    def test_grey_images_too(self):
        grey = drawn(*SIZE).convert("L")
        every = ",".join(AUGMENTATIONS)
        for key in range(10):
            assert recolour(grey, drawn_for(every, key), (1, 2, 3)).mode == "L"

    def test_flips(self):
        before = np.asarray(drawn(*SIZE))
        np.testing.assert_array_equal(augmented("flip(1)", 0), before[:, ::-1])
        np.testing.assert_array_equal(augmented("vertical_flip(1)", 0), before[::-1])

    def test_crop_is_enlarged_to_the_image_again(self):
        x, y, width, height = drawn_for("crop", 1)["crop"]
        part = drawn(*SIZE).crop((x, y, x + width, y + height)).resize(SIZE, 2)
        # Pillow lets a filter see beyond the box that is resized, here not further than a pixel.
        found = augmented("crop", 1).astype(int)
        assert np.abs(found - np.asarray(part))[2:-2, 2:-2].max() < 25

    def test_noise_is_near_to_normal(self):
        flat = np.full((300, 300, 3), 128, np.uint8)
        found = np.asarray(recolour(Image.fromarray(flat), {"noise": [0.1, 77]}, (0, 0, 0)))
        noise = found.astype(float) - 128
        assert abs(noise.mean()) < 0.3
        assert noise.std() == pytest.approx(25.5, rel=0.02)
        within = [np.mean(np.abs(noise) < k * 25.5) for k in (1, 2)]
        assert within == pytest.approx([0.683, 0.954], abs=0.02)
        # Rows made in parts are as rows made at once: no seam, no repetition.
        assert abs(np.corrcoef(noise[:64].reshape(-1), noise[64:128].reshape(-1))[0, 1]) < 0.02

    def test_cutout_leaves_a_square_of_the_fill(self):
        found = np.asarray(recolour(drawn(*SIZE), {"cutout": [0.5, 0.5, 0.25]}, (1, 2, 3)))
        assert (found[15:25, 25:35] == (1, 2, 3)).all()
        changed = (found != np.asarray(drawn(*SIZE))).any(axis=-1)
        assert changed.sum() == 100


class TestParsing:
    def test_defaults_and_strengths(self):
        spec = AugmentationSpec.parse("flip, rotate(30),randaugment(3, 5),rot90")
        assert spec.operations == (Flip(0.5), Rotate(30.0), RandAugment(3, 5.0), Rot90())
        assert plain(spec) == {
            "operations": [
                {"name": "flip", "probability": 0.5}, {"name": "rotate", "degrees": 30.0},
                {"name": "randaugment", "operations": 3, "magnitude": 5.0}, {"name": "rot90"},
            ],
        }  # fmt: skip
        assert spec
        assert not AugmentationSpec.parse("")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("flop", "ImageSpec.augmentation must be one of .*, got 'flop'; did you mean 'flip'"),
            ("flip,,crop", "ImageSpec.augmentation must be names with commas between"),
            ("flip(0.5", "ImageSpec.augmentation must be names with commas between"),
            ("flip(a)", "ImageSpec.augmentation='flip' must have numbers, got 'a'"),
            ("flip(nan)", "ImageSpec.augmentation='flip' must be in .0, 1., got nan"),
            ("flip(2)", "ImageSpec.augmentation='flip' must be in .0, 1., got 2"),
            ("randaugment(2)", "='randaugment' must have 2 numbers in its parentheses, got 1"),
            ("randaugment(1.5,9)", "whole number of operations, got 1.5"),
            (
                "randaugment(2,31)",
                "ImageSpec.augmentation='randaugment': magnitude must be in .0, 10., got 31",
            ),
            ("flip,flip", "ImageSpec.augmentation must name each once, got flip,flip"),
        ],
    )
    def test_errors(self, text, message):
        with pytest.raises(UsageError, match=message):
            AugmentationSpec.parse(text)
