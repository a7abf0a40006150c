"""WebDataset's tars: samples of members with one name before the first dot."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.list_images import SourceSpec, list_images
from recordmill.transforms.images.references import ImageReference
from recordmill.transforms.images.stored_bytes import ImageReader


def write(path: Path, members: list[tuple[str, bytes]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))


def sample(key: str, **members: str) -> list[tuple[str, bytes]]:
    return [(f"{key}.{name.replace('_', '.')}", text.encode()) for name, text in members.items()]


def listed(folder: Path, **options: Any) -> list[Any]:
    spec = SourceSpec((f"{folder}/*",), "webdataset", **options)
    return list(list_images(spec))


def test_samples_are_grouped_by_key(tmp_path: Path) -> None:
    one, two = sample("x/001", jpg="first", cls="7\n"), sample("x/002", cls="8", PNG="second")
    # Members of a sample need not stand together; a mask is no image of the sample.
    write(tmp_path / "in/a.tar", [*one[:1], *two, *one[1:], ("x/002.seg.png", b"mask")])
    write(tmp_path / "in/b.tar", sample("001", jpeg="third", json='{"label": "cat"}'))
    found = listed(tmp_path / "in")
    assert [(item.name, item.labels) for item in found] == [
        ("a.tar/x/001.jpg", ("7",)), ("a.tar/x/002.PNG", ("8",)), ("b.tar/001.jpeg", ("cat",)),
    ]  # fmt: skip
    with ImageReader() as reader:
        data = [reader.read(item.image) for item in found]
    assert data == [b"first", b"second", b"third"]


def test_labels_and_fields_by_name(tmp_path: Path) -> None:
    fields = json.dumps({"kind": "dog", "width": 30})
    write(tmp_path / "in/a.tar", sample("1", jpg="x", cls="7", txt=" a caption\n", json=fields))
    (item,) = listed(tmp_path / "in", label_field="kind", keep_fields="txt,width:int")
    assert item.labels == ("dog",)
    assert item.fields == ("a caption", "30")
    (item,) = listed(tmp_path / "in", labels_from="none")
    assert item.labels == item.fields == ()


@pytest.mark.parametrize(
    ("members", "reason", "detail"),
    [
        (sample("1", cls="7"), "no_image", "its members are cls"),
        (sample("1", jpg="x", png="y", cls="7"), "duplicate", "its members are cls, jpg, png"),
        (sample("1", jpg="x", cls="7") * 2, "duplicate", "it has two members .jpg"),
        (sample("1", jpg="x", txt="y"), "no_label", "it has no cls or label among jpg, txt"),
        (sample("1", jpg="x", json="{"), "bad_row", "its .json: unexpected end"),
        (sample("1", jpg="x", json="[]"), "bad_row", "its .json: list"),
        (sample("1", jpg="x", json='{"label": "\\ud800"}'), "lone_surrogate", "its .json: 'label'"),
        ([("1.jpg", b"x"), ("1.cls", b"\xff")], "bad_row", "its .cls is no UTF-8"),
    ],
)
def test_what_cannot_be_used_is_a_reject(
    tmp_path: Path, members: list[tuple[str, bytes]], reason: str, detail: str
) -> None:
    write(tmp_path / "in/a.tar", [*members, *sample("2", jpg="x", cls="1")])
    reject, item = listed(tmp_path / "in")
    assert isinstance(item, ImageReference)
    assert (reject.source, reject.reason) == ("a.tar/1", reason)
    assert reject.detail.startswith(detail)


def test_a_cut_tar_is_used_up_to_the_cut(tmp_path: Path) -> None:
    write(tmp_path / "in/a.tar", [*sample("1", jpg="x", cls="1"), *sample("2", jpg="y", cls="1")])
    data = (tmp_path / "in/a.tar").read_bytes()
    (tmp_path / "in/a.tar").write_bytes(data[: 4 * 512 + 100])
    reject, item = listed(tmp_path / "in")
    assert (reject.reason, item.name) == ("broken_archive", "a.tar/1.jpg")


def test_compressed_tars_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "in/a.tar.gz", sample("1", jpg="x", cls="1"))
    with pytest.raises(UsageError, match=r"a.tar.gz must be a plain .tar or a .zip"):
        listed(tmp_path / "in")
    with pytest.raises(UsageError, match="path_field has no effect with"):
        SourceSpec(("a.tar",), "webdataset", path_field="x")
