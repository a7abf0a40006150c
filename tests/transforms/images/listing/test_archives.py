from __future__ import annotations

import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Listing
from recordmill.transforms.images.references import ImageReference, StoredBytes
from recordmill.transforms.images.stored_bytes import (
    ImageReader,
    ReadLimits,
    UnreadableBytesError,
)
from recordmill.transforms.sources.changes import InputChangedError

from ..image_trees import Shelf, listed

MEMBERS = st.dictionaries(
    st.lists(st.sampled_from(["a", "b", "é", "long" * 12]), min_size=1, max_size=3).map(
        lambda parts: "/".join(parts) + ".jpg"
    ),
    st.binary(max_size=2000) | st.just(b"x" * 5000),
    max_size=8,
    min_size=1,
)
FORMATS = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


def write_tar(path: Path, members: list[tuple[str, bytes]], kind: int = tarfile.PAX_FORMAT) -> None:
    with tarfile.open(path, "w", format=kind) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


class Stream(io.BytesIO):
    """Cannot seek while it is written, so zip puts sizes and checksums behind the members."""

    def tell(self) -> int:
        raise OSError("a stream has no position")


def contents(images: dict[str, ImageReference]) -> dict[str, bytes]:
    with ImageReader() as reader:
        return {name: reader.read(image.image) for name, image in images.items()}


@settings(max_examples=60, deadline=None)
@given(members=MEMBERS, kind=FORMATS)
def test_ranges_of_a_tar_are_its_members(tmp_path_factory, members, kind):
    folder = tmp_path_factory.mktemp("tar")
    write_tar(folder / "x.tar", list(members.items()), kind)
    images, rejects = listed(f"{folder}/x.tar", labels_from="none")
    assert not rejects
    assert contents(images) == {f"x.tar/{name}": data for name, data in members.items()}
    assert list(images) == sorted(images)
    with open(folder / "x.tar", "rb") as handle:
        for name, image in images.items():
            handle.seek(image.image.offset)
            assert handle.read(image.image.size) == members[name[len("x.tar/") :]]


@settings(max_examples=60, deadline=None)
@given(members=MEMBERS, deflated=st.booleans(), streamed=st.booleans())
def test_members_of_a_zip_are_read_stored_and_deflated(
    tmp_path_factory, members, deflated, streamed
):
    folder = tmp_path_factory.mktemp("zip")
    method = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    target = Stream() if streamed else io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    (folder / "x.zip").write_bytes(target.getvalue())
    images, rejects = listed(f"{folder}/x.zip", labels_from="none")
    assert not rejects
    assert contents(images) == {f"x.zip/{name}": data for name, data in members.items()}


def test_folders_in_archives_are_labels(tmp_path: Path):
    write_tar(tmp_path / "x.tar", [("./cat/1.jpg", b"1"), ("dog/2.jpg", b"2"), ("3.jpg", b"3")])
    images, rejects = listed(f"{tmp_path}/*.tar")
    assert {name: image.labels for name, image in images.items()} == {
        "x.tar/cat/1.jpg": ("cat",),
        "x.tar/dog/2.jpg": ("dog",),
    }
    assert rejects == [("x.tar/3.jpg", "no_label")]


def test_of_members_of_one_name_the_last_counts(tmp_path: Path):
    write_tar(tmp_path / "x.tar", [("a/1.jpg", b"old"), ("a/1.jpg", b"new")])
    images, rejects = listed(f"{tmp_path}/x.tar")
    assert contents(images) == {"x.tar/a/1.jpg": b"new"}
    assert rejects == [("x.tar/a/1.jpg", "duplicate")]


def test_what_is_no_image_is_counted(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("a/1.jpg", "__MACOSX/a/._1.jpg", "a/.DS_Store", "README.md", "a/"):
            archive.writestr(name, b"x")
    listing = Listing()
    images, _ = listed(f"{tmp_path}/x.zip", listing=listing)
    assert list(images) == ["x.zip/a/1.jpg"]
    assert listing.filtered == {"hidden": 2, "no_image_extension": 1}


def test_members_without_a_name_are_rejected(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a/1.jpg", b"x")
        archive.writestr("b", b"x")
    data = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "x.zip").write_bytes(data.replace(b"b", b"\0"))  # zipfile ends names at NUL
    images, rejects = listed(f"{tmp_path}/x.zip")
    assert list(images) == ["x.zip/a/1.jpg"]
    assert rejects == [("x.zip", "bad_name")]


def test_links_and_other_compressions_are_rejected(tmp_path: Path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        link = tarfile.TarInfo("a/link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "1.jpg"
        archive.addfile(link)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_BZIP2) as zipped:
        zipped.writestr("a/1.jpg", b"x")
    _, rejects = listed(f"{tmp_path}/x.*")
    assert rejects == [("x.tar/a/link.jpg", "no_image"), ("x.zip/a/1.jpg", "no_image")]


@pytest.mark.parametrize("name", ["x.tar", "x.zip"])
def test_a_damaged_archive_is_a_reject(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(b"PK no archive " * 100)
    assert listed(f"{tmp_path}/{name}") == ({}, [(name, "broken_archive")])


def test_a_cut_tar_gives_what_came_before(tmp_path: Path):
    write_tar(tmp_path / "x.tar", [("a/1.jpg", b"1" * 2000), ("a/2.jpg", b"2" * 2000)])
    data = (tmp_path / "x.tar").read_bytes()
    (tmp_path / "x.tar").write_bytes(data[:4000])
    images, rejects = listed(f"{tmp_path}/x.tar")
    assert ("x.tar", "broken_archive") in rejects
    assert contents({"x": images["x.tar/a/1.jpg"]}) == {"x": b"1" * 2000}


@pytest.mark.parametrize("name", ["x.tar.gz", "x.tgz", "X.TAR.BZ2", "x.tar.zst"])
def test_compressed_tars_are_refused(tmp_path: Path, name: str):
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"must be a plain \.tar or a \.zip: .* unpack it"):
        listed(f"{tmp_path}/{name}")


class TestReading:
    def test_of_files_that_changed(self, tmp_path: Path):
        path = tmp_path / "x.tar"
        write_tar(path, [("1.jpg", b"1" * 600)])
        [image] = listed(str(path), labels_from="none")[0].values()
        path.write_bytes(path.read_bytes()[:700])
        with ImageReader() as reader, pytest.raises(InputChangedError, match="was written to"):
            reader.read(image.image)
        without_time = replace(image.image, modified_ns=0)
        with ImageReader() as reader, pytest.raises(UnreadableBytesError, match="ends within it"):
            reader.read(without_time)
        path.unlink()
        with ImageReader() as reader, pytest.raises(UnreadableBytesError, match="No such file"):
            reader.read(image.image)
        with ImageReader() as reader, pytest.raises(UnreadableBytesError, match="No such file"):
            reader.read(StoredBytes(f"{tmp_path}/no.jpg"))

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_a_flipped_bit_in_a_zip_is_found(self, tmp_path: Path, method: int):
        path = tmp_path / "x.zip"
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("1.jpg", bytes(range(256)) * 4)
        [image] = listed(str(path), labels_from="none")[0].values()
        stored = replace(image.image, modified_ns=0)  # as on a disk that rots
        data = bytearray(path.read_bytes())
        data[60] ^= 1
        path.write_bytes(bytes(data))
        with ImageReader() as reader, pytest.raises(UnreadableBytesError):
            reader.read(stored)
        data[0] ^= 1
        path.write_bytes(bytes(data))
        with ImageReader() as reader, pytest.raises(UnreadableBytesError, match="no member there"):
            reader.read(stored)

    def test_the_directory_of_a_zip_checks_members_with_data_descriptors(self, tmp_path: Path):
        path, target = tmp_path / "x.zip", Stream()
        content = bytes(range(256)) * 4
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("1.jpg", content)
        data = bytearray(target.getvalue())
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.getinfo("1.jpg").flag_bits & 8  # the header has no checksum
        path.write_bytes(data)
        [image] = listed(str(path), labels_from="none")[0].values()
        with ImageReader() as reader:
            assert reader.read(image.image) == content
        data[100] ^= 1
        path.write_bytes(data)
        with ImageReader() as reader, pytest.raises(UnreadableBytesError, match="checksum is"):
            reader.read(replace(image.image, modified_ns=0))

    def test_what_grows_too_large_is_not_held(self, tmp_path: Path):
        path = tmp_path / "x.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("bomb.jpg", bytes(10**6))
            archive.writestr("fits.jpg", bytes(1000))
        (tmp_path / "y.jpg").write_bytes(bytes(1001))
        images, _ = listed(f"{tmp_path}/*", labels_from="none")
        with ImageReader(ReadLimits(image_bytes=1000)) as reader:
            assert reader.read(images["x.zip/fits.jpg"].image) == bytes(1000)
            for name in ("x.zip/bomb.jpg", "y.jpg"):
                with pytest.raises(UnreadableBytesError, match="at most 0 MiB are read"):
                    reader.read(images[name].image)

    def test_of_an_object_store(self, tmp_path: Path, monkeypatch):
        write_tar(tmp_path / "x.tar", [("1.jpg", b"one"), ("2.jpg", b"two")])
        with zipfile.ZipFile(tmp_path / "y.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("3.jpg", b"three" * 100)
        stored = {f"shelf://s/{p.name}": p.read_bytes() for p in tmp_path.iterdir()}
        monkeypatch.setattr(Shelf, "objects", stored | {"shelf://s/z.jpg": b"four"})
        images, rejects = listed("shelf://s/*", labels_from="none")
        assert not rejects
        assert contents(images) == {
            "x.tar/1.jpg": b"one", "x.tar/2.jpg": b"two", "y.zip/3.jpg": b"three" * 100,
            "z.jpg": b"four",
        }  # fmt: skip
        with ImageReader() as reader, pytest.raises(UnreadableBytesError, match="no such object"):
            reader.read(StoredBytes("shelf://s/no.jpg"))

    def test_archives_stay_open_but_not_too_many(self, tmp_path: Path):
        for number in range(12):
            write_tar(tmp_path / f"{number}.tar", [("1.jpg", b"%d" % number)])
        images, _ = listed(f"{tmp_path}/*.tar", labels_from="none")
        with ImageReader() as reader:
            for _ in range(2):
                for name, image in images.items():
                    assert reader.read(image.image) == name.partition(".")[0].encode()
            assert len(reader._open) == 8
