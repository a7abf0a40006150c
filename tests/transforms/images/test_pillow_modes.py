"""Pictures of every mode, format and entry of `info` of Pillow's: none ends a run."""

from __future__ import annotations

import io
import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageMode

from recordmill.transforms.dataset.rejects import REASONS
from recordmill.transforms.images.columns import Prepared
from recordmill.transforms.images.decoding import ImageRejectedError, decode
from recordmill.transforms.images.encoding import encode_image
from recordmill.transforms.images.image_spec import (
    AugmentationSpec,
    DecodeSpec,
    EncodeSpec,
    ImageSpec,
    TransformSpec,
)
from recordmill.transforms.images.preparing import prepare
from recordmill.transforms.images.references import ImageReference, StoredBytes

MODES = (
    "1", "L", "P", "LA", "PA", "RGB", "RGBA", "RGBX", "RGBa", "La", "CMYK", "YCbCr", "LAB", "HSV",
    "I", "F", "I;16", "I;16L", "I;16B",
)  # fmt: skip
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
INFO: tuple[dict[str, Any], ...] = (
    {}, {"transparency": 0}, {"transparency": 255}, {"transparency": b"\0\x80"},
    {"transparency": (0, 1, 2)}, {"icc_profile": b"no profile"}, {"exif": b"Exif\0\0MM\0*"},
    {"dpi": (72, 72)}, {"gamma": 0.45}, {"comment": b"\xff\0"}, {"background": 3},
)  # fmt: skip
SPECS = [
    ImageSpec(
        "classification", "tfds", {"cat": 0}, channels=channels, encode=EncodeSpec(encoding),
        transform=TransformSpec(size=(4, 5)), augmentation=AugmentationSpec.parse("rotate,color"),
    )
    for channels, encoding in itertools.product((1, 3), ("keep", "JPEG", "PNG", "WEBP"))
]  # fmt: skip


def stored() -> list[tuple[str, bytes]]:
    """Returns all pictures that Pillow can write."""
    found = {}
    for mode, form, info in itertools.product(MODES, FORMATS, INFO):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = io.BytesIO()
                Image.new(mode, (9, 8)).save(out, form, **info)
        except Exception:  # Pillow writes no such picture
            continue
        found.setdefault(out.getvalue(), f"{mode} {form} {info}")
    return [(name, data) for data, name in found.items()]


STORED = stored()


def make(data: bytes, spec: ImageSpec, copy: int | None) -> Prepared:
    reference = ImageReference("a", StoredBytes("/a"), ("cat",))
    return prepare(reference, data, None, spec, key=1, copy=copy)


def test_the_modes_are_pillows_own() -> None:
    assert len(STORED) > 100
    for mode in MODES:
        assert ImageMode.getmode(mode).mode == mode


def test_every_picture_is_written_or_rejected() -> None:
    reasons = set()
    for name, data in STORED:
        for spec, copy in itertools.product(SPECS, (None, 1)):
            try:
                made = make(data, spec, copy)
            except ImageRejectedError as error:
                reasons.add(error.reason)
                continue
            assert isinstance(made.data, bytes)
            written = Image.open(io.BytesIO(made.data))
            assert written.size == (5, 4), name
            assert "transparency" not in written.info, name
    assert reasons <= REASONS.keys()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
def test_a_transparent_colour_is_dropped(mode: str, channels: int) -> None:
    out = io.BytesIO()
    Image.new(mode, (8, 8)).save(out, "PNG", transparency=(0, 0, 0) if mode == "RGB" else 0)
    made = make(out.getvalue(), SPECS[2 if channels == 1 else 6], None)
    assert np.asarray(Image.open(io.BytesIO(bytes(made.data)))).max() == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("channels", [1, 3])
def test_lab_in_tiff(channels: Any) -> None:
    out = io.BytesIO()
    Image.new("LAB", (8, 8), (128, 128, 128)).save(out, "TIFF")
    found = decode(out.getvalue(), DecodeSpec(), channels=channels).pixels
    assert found.shape == (8, 8, channels)
    assert 90 < found.mean() < 160


def test_what_pillow_cannot_encode_is_a_reject(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("no such mode")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(ImageRejectedError, match="unencodable"):
        encode_image(Image.new("RGB", (2, 2)), "PNG", quality=1)
