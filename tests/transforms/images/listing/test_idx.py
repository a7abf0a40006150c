from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Listing
from recordmill.transforms.images.stored_bytes import (
    ImageReader,
    ReadLimits,
    UnreadableBytesError,
)

from ..image_trees import listed


def idx(array: np.ndarray) -> bytes:
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def write(folder: Path, prefix: str, pixels: np.ndarray, labels: list[int], packed: bool) -> None:
    end, pack = (".gz", gzip.compress) if packed else ("", bytes)
    name = f"{prefix}-images-idx{pixels.ndim}-ubyte{end}"
    (folder / name).write_bytes(pack(idx(pixels)))
    (folder / f"{prefix}-labels-idx1-ubyte{end}").write_bytes(pack(idx(np.array(labels))))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("channels", [0, 3])
def test_pixels_labels_and_splits(tmp_path: Path, packed: bool, channels: int):
    shape = (5, 3, 4, *([channels] if channels else []))
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    write(tmp_path, "train", pixels, [3, 1, 4, 1, 5], packed)
    write(tmp_path, "t10k", pixels[:2], [9, 2], packed)
    images, rejects = listed(str(tmp_path))
    assert not rejects
    stem = f"train-images-idx{len(shape)}-ubyte{'.gz' if packed else ''}"
    train = [image for image in images.values() if image.split == "train"]
    assert [image.name for image in train] == [f"{stem}#{i}" for i in range(5)]
    assert [image.labels for image in train] == [(label,) for label in "31415"]
    assert [image.labels for image in images.values() if image.split == "test"] == [("9",), ("2",)]
    with ImageReader() as reader:
        for number, image in enumerate(train):
            assert image.image.shape == (3, 4, channels or 1)
            assert reader.read(image.image) == pixels[number].tobytes()
    assert {i.split for i in listed(str(tmp_path), split_from="none")[0].values()} == {""}
    assert {i.labels for i in listed(str(tmp_path), labels_from="none")[0].values()} == {()}


def test_cut_files_are_found_on_reading(tmp_path: Path):
    pixels = np.zeros((2, 3, 4))
    write(tmp_path, "train", pixels, [0, 1], False)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    images, _ = listed(str(tmp_path))
    with ImageReader() as reader:
        assert reader.read(images[f"{path.name}#0"].image) == bytes(12)
        with pytest.raises(UnreadableBytesError, match="ends within it"):
            reader.read(images[f"{path.name}#1"].image)


def test_errors(tmp_path: Path):
    images = tmp_path / "x-images-idx3-ubyte"
    images.write_bytes(idx(np.zeros((2, 3, 4))))
    with pytest.raises(UsageError, match=r"must have its labels beside it, in x-labels-idx1-ubyte"):
        listed(str(tmp_path))
    labels = tmp_path / "x-labels-idx1-ubyte"
    labels.write_bytes(idx(np.zeros(3)))
    with pytest.raises(UsageError, match=r"a label for each of the 2 images .* shape \[3\]"):
        listed(str(tmp_path))
    labels.write_bytes(idx(np.zeros(2))[:-1])
    with pytest.raises(UsageError, match="ends 1 labels too early"):
        listed(str(tmp_path))
    images.write_bytes(idx(np.zeros((2, 3))))
    with pytest.raises(UsageError, match=r"have the shape \[n, height, width\].* got \[2, 3\]"):
        listed(str(tmp_path))
    images.write_bytes(b"\0\0\x0d\3" + bytes(12))
    with pytest.raises(UsageError, match="must be an idx file of unsigned bytes"):
        listed(str(tmp_path))
    images.write_bytes(b"\0\0\x08\3" + bytes(3))
    with pytest.raises(UsageError, match="cannot be read as an idx file"):
        listed(str(tmp_path))
    packed = tmp_path / "y-images-idx3-ubyte.gz"
    packed.write_bytes(gzip.compress(idx(np.zeros((2, 3, 4)))))
    with pytest.raises(UsageError, match=r"must be unpacked \(gunzip\)"):
        listed(str(packed), listing=Listing(limits=ReadLimits(unpacked_bytes=20)))
