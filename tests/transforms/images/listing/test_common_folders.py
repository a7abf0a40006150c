"""Leading folders that all images share are neither labels nor splits."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.list_images import SourceSpec, label_names

from ..image_trees import fill, listed


def found(images):
    return {name: (image.labels, image.split) for name, image in images.items()}


def archive(path: Path, *names: str) -> str:
    with zipfile.ZipFile(path, "w") as members:
        for name in names:
            members.writestr(name, b"x")
    return str(path)


def test_members_of_a_zip(tmp_path: Path):
    path = archive(tmp_path / "x.zip", "cifar/test/cat/a.png", "cifar/test/dog/b.png")
    images, rejects = listed(path)
    assert not rejects
    assert [image.labels for image in images.values()] == [("cat",), ("dog",)]
    images, _ = listed(path, split_from="folder")
    assert list(found(images).values()) == [(("cat",), "test"), (("dog",), "test")]
    images, _ = listed(path, label_folder=1)
    assert {image.labels for image in images.values()} == {("cifar",)}


def test_splits_below_a_common_folder(tmp_path: Path):
    fill(tmp_path, "cifar/train/cat/a.png", "cifar/val/dog/b.png", "cifar/read.png", "top.png")
    images, rejects = listed(str(tmp_path), split_from="folder")
    assert found(images) == {
        "cifar/train/cat/a.png": (("cat",), "train"),
        "cifar/val/dog/b.png": (("dog",), "validation"),
    }
    assert {source for source, _ in rejects} == {"cifar/read.png", "top.png"}
    with pytest.raises(
        UsageError, match=r"--split_from=folder is needed .* train, val; or --label"
    ):
        listed(str(tmp_path))
    images, _ = listed(str(tmp_path), label_folder=2)
    assert {image.labels for image in images.values()} == {("train",), ("val",)}


def test_splits_in_a_zip_need_the_flag(tmp_path: Path):
    path = archive(tmp_path / "x.zip", "train/cat/a.png", "test/dog/b.png")
    with pytest.raises(UsageError, match="--split_from=folder is needed"):
        listed(path)


def test_a_folder_without_others_below_it_is_a_label(tmp_path: Path):
    fill(tmp_path, "cat/a.png", "cat/b.png")
    assert {i.labels for i in listed(str(tmp_path))[0].values()} == {("cat",)}
    fill(tmp_path / "deep", "x/cat/a.png")
    assert [i.labels for i in listed(f"{tmp_path}/deep")[0].values()] == [("cat",)]


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\vb", "a\u2028b", "a\u2029", "a\x85b", "\x00"])
def test_labels_that_are_no_line_of_text_are_refused(name: str):
    with pytest.raises(UsageError, match="neither control characters nor line separators"):
        label_names(SourceSpec(("x",), layout="folders"), {name, "fine"})
    # A soft hyphen or a space of another width breaks no line.
    assert label_names(SourceSpec(("x",), layout="folders"), {"a\u00adb\u00a0c"})
