"""Records of a fixed length, as CIFAR's .bin: a label and raw pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.list_images import SourceSpec, list_images
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.source_spec import RecordForm
from recordmill.transforms.images.stored_bytes import ImageReader

IMAGES = np.random.default_rng(1).integers(0, 256, (6, 4, 5, 3), np.uint8)  # [n, h, w, c]
LABELS = [3, 0, 9, 1, 1, 2]


def write(folder: Path, name: str, before: list[bytes], *, planar: bool = True) -> None:
    folder.mkdir(exist_ok=True)
    pixels = IMAGES.transpose(0, 3, 1, 2) if planar else IMAGES
    records = [head + image.tobytes() for head, image in zip(before, pixels, strict=True)]
    (folder / name).write_bytes(b"".join(records))


def listed(folder: Path, shape: str = "3x4x5", **options: Any) -> list[Any]:
    return list(list_images(SourceSpec((str(folder),), "fixed", record_shape=shape, **options)))


def pixels(items: list[ImageReference]) -> np.ndarray[Any, Any]:
    with ImageReader() as reader:
        data = b"".join(reader.read(item.image) for item in items)
    return np.frombuffer(data, np.uint8).reshape(IMAGES.shape)


@pytest.mark.parametrize("planar", [True, False])
def test_the_form_of_cifar_10(tmp_path: Path, planar: bool) -> None:
    write(tmp_path / "in", "data_batch_1.bin", [bytes([label]) for label in LABELS], planar=planar)
    (tmp_path / "in/batches.meta.txt").write_text("airplane\n")
    found = listed(tmp_path / "in", "3x4x5" if planar else "4x5x3")
    assert [item.name for item in found] == [f"data_batch_1.bin#{i}" for i in range(6)]
    assert [item.labels for item in found] == [(str(label),) for label in LABELS]
    assert {item.split for item in found} == {"train"}
    assert np.array_equal(pixels(found), IMAGES)


def test_the_form_of_cifar_100(tmp_path: Path) -> None:
    heads = [bytes([7, label]) for label in LABELS]
    write(tmp_path / "in", "test.bin", heads)
    found = listed(tmp_path / "in", record_bytes=62, label_offset=1)
    assert [item.labels for item in found] == [(str(label),) for label in LABELS]
    assert {item.split for item in found} == {"test"}
    assert np.array_equal(pixels(found), IMAGES)
    assert {item.labels for item in listed(tmp_path / "in", record_bytes=62)} == {("7",)}


def test_labels_have_names_where_they_are_given(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.bin", [bytes([label]) for label in LABELS])
    found = listed(tmp_path / "in", labels=("cat", "dog", "bird", "frog"))
    assert [item.labels for item in found if isinstance(item, ImageReference)] == [
        ("frog",), ("cat",), ("dog",), ("dog",), ("bird",),
    ]  # fmt: skip
    (reject,) = (item for item in found if isinstance(item, ListedReject))
    assert (reject.source, reject.reason) == ("a.bin#2", "unknown_label")


def test_pixels_without_labels(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.bin", [b""] * 6)
    found = listed(tmp_path / "in", labels_from="none")
    assert [item.labels for item in found] == [()] * 6
    assert np.array_equal(pixels(found), IMAGES)


def test_a_file_of_no_whole_records_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "in", "a.bin", [b"\0"] * 6)
    (tmp_path / "in/a.bin").write_bytes((tmp_path / "in/a.bin").read_bytes()[:-1])
    with pytest.raises(UsageError, match="has 365 bytes, which are not records of 61: the file is"):
        listed(tmp_path / "in")


@pytest.mark.parametrize(
    ("shape", "record_bytes", "label_offset", "message"),
    [
        ("3x4", 0, 0, "--record_shape must be CHANNELSxHEIGHTxWIDTH"),
        ("3x0x5", 0, 0, "--record_shape must be CHANNELSxHEIGHTxWIDTH"),
        ("5x4x5", 0, 0, "--record_shape must be CHANNELSxHEIGHTxWIDTH"),
        ("3x4x5", 59, 0, "--record_bytes must be at least the 60 of the pixels"),
        ("3x4x5", 0, 1, r"--label_offset must be in \[0, 1\)"),
        ("3x4x5", 62, 2, r"--label_offset must be in \[0, 2\)"),
    ],
)
def test_forms_without_sense(
    shape: str, record_bytes: int, label_offset: int, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        RecordForm.parse(shape, record_bytes, label_offset)


def test_the_layout_needs_a_form(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^layout='fixed' needs record_shape"):
        SourceSpec((str(tmp_path),), "fixed")
    with pytest.raises(UsageError, match=r"^record_shape='3x4x5' needs layout='fixed'"):
        SourceSpec((str(tmp_path),), record_shape="3x4x5")
