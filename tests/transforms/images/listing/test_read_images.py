"""`ReadImages`: elements are what the input holds, and writing them is what the command does."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.testing.util import assert_that, equal_to
from PIL import Image as Pictures

from recordmill.pipelines.command_line import main
from recordmill.records.errors import RunError, UsageError
from recordmill.transforms import Image, ImageSpec, ReadImages, WriteImages
from recordmill.transforms.images.listing.read_images import (
    _Form,
    list_references,
    read_image,
)
from recordmill.transforms.images.references import ImageReference
from recordmill.transforms.images.stored_bytes import ImageReader

from ....conftest import REAL_DATA
from ....pictures import encoded, jpeg, png, turned_jpeg
from ....pipelines.jobs import shard_bytes


def elements(*patterns: str | Path, **options: Any) -> dict[str | None, Image]:
    """The images that `ReadImages` gives, by key, without a pipeline."""
    transform = ReadImages(*map(str, patterns), **options)
    found = {}
    with ImageReader() as reader:
        for listed in list_references(transform._source):
            for line in listed.lines:
                image = read_image(ImageReference.from_line(line), _Form(*listed.form), reader)
                found[image.key] = image
    return found


def fill(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos in folders of classes, some of them in an archive."""
    names = {f"{'cat' if n % 2 else 'dog'}/{n}.jpg": jpeg(seed=n) for n in range(8)}
    folder = fill(tmp_path / "photos", names)
    with zipfile.ZipFile(folder / "more.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(8, 12):
            archive.writestr(f"emu/{number}.png", png(seed=number))
    return folder


def test_images_of_folders_and_archives_have_their_labels(photos: Path) -> None:
    found = elements(photos)
    assert len(found) == 12
    assert found["cat/1.jpg"] == Image(jpeg(seed=1), "cat/1.jpg", "cat")
    assert found["more.zip/emu/9.png"] == Image(png(seed=9), "more.zip/emu/9.png", "emu")


def test_rows_of_boxes(photos: Path) -> None:
    table = photos / "boxes.csv"
    table.write_text(
        "path,label,xmin,ymin,xmax,ymax\ncat/1.jpg,ear,1,2,3,4.5\ncat/1.jpg,eye,5,6,7,8\n"
        "dog/2.jpg,,,,,\n"
    )
    found = elements(table)
    (ear, eye) = found["cat/1.jpg"].boxes or ()
    assert (ear.label, ear.xmin, ear.ymin, ear.xmax, ear.ymax) == ("ear", 1, 2, 3, 4.5)
    assert eye.label == "eye"
    assert found["cat/1.jpg"].label == ("ear", "eye")
    assert found["dog/2.jpg"].boxes == ()


def test_boxes_in_fractions_of_the_shown_picture(photos: Path) -> None:
    (photos / "cat/turned.jpg").write_bytes(turned_jpeg(6, 48, 32))
    table = photos / "boxes.csv"
    table.write_text("path,label,xmin,ymin,xmax,ymax\ncat/turned.jpg,ear,0,0,0.5,0.25\n")
    for drawn_on, sides in (("", (24, 8)), ("stored", (24, 8)), ("shown", (16, 12))):
        found = elements(table, box_units="fraction", drawn_on=drawn_on)
        (box,) = found["cat/turned.jpg"].boxes or ()
        assert (box.xmax, box.ymax) == sides


def test_several_labels_and_numbers(photos: Path) -> None:
    table = photos / "labels.csv"
    table.write_text("path,label\ncat/1.jpg,a;b\ncat/3.jpg,a\ndog/2.jpg,\n")
    found = elements(table, label_delimiter=";")
    assert [found[name].label for name in sorted(map(str, found))] == [("a", "b"), ("a",), ()]
    table.write_text("path,label\ncat/1.jpg,2\ncat/3.jpg,0.5\n")
    found = elements(table, labels_from="number")
    assert [image.label for image in found.values()] == [2.0, 0.5]


def test_masks_and_regions(tmp_path: Path) -> None:
    mask = encoded(Pictures.new("L", (48, 32), 3), "PNG")
    fill(tmp_path / "pairs", {"images/a.jpg": jpeg(), "masks/a.png": mask})
    (image,) = elements(tmp_path / "pairs").values()
    assert (image.mask, image.boxes, image.label) == (mask, None, None)
    fill(tmp_path / "steel", {"train_images/a.jpg": jpeg(), "train_images/b.jpg": jpeg(seed=1)})
    table = "ImageId,ClassId,EncodedPixels\na.jpg,2,1 3 33 3\n"
    (tmp_path / "steel/train.csv").write_text(table)
    found = elements(tmp_path / "steel")
    (box,) = found["a.jpg"].boxes or ()
    assert (box.label, box.xmin, box.ymin, box.xmax, box.ymax) == ("2", 0, 0, 2, 3)
    assert found["b.jpg"].boxes == ()


def test_pixels_are_arrays_and_a_split_is_chosen(tmp_path: Path) -> None:
    import struct

    pixels = np.arange(2 * 6, dtype=np.uint8).reshape(2, 2, 3)
    head, labels = struct.pack(">4I", 2051, 2, 2, 3), struct.pack(">2I", 2049, 2) + bytes([7, 8])
    images = head + pixels.tobytes()
    names = {"train-images-idx3-ubyte": images, "train-labels-idx1-ubyte": labels}
    names |= {name.replace("train", "t10k"): data for name, data in names.items()}
    fill(tmp_path / "idx", names)
    found = elements(tmp_path / "idx", split="test")
    assert [image.label for image in found.values()] == ["7", "8"]
    for image, expected in zip(found.values(), pixels, strict=True):
        assert np.array_equal(np.squeeze(image.data), expected)
    with pytest.raises(UsageError, match=r"\(test, train\), got 'dev'"):
        elements(tmp_path / "idx", split="dev")


def test_records_of_a_fixed_length_and_groups(photos: Path, tmp_path: Path) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    record = bytes([9, 4]) + pixels.transpose(2, 0, 1).tobytes()
    fill(tmp_path / "cifar", {"data.bin": record})
    options = {"layout": "fixed", "record_shape": "3x2x2", "record_bytes": 14, "label_offset": 1}
    (image,) = elements(tmp_path / "cifar", **options).values()
    assert (image.label, np.array_equal(image.data, pixels)) == ("4", True)
    assert elements(photos, split_by="folder")["cat/1.jpg"].group == "cat"


def test_reading_and_writing_is_what_the_command_does(photos: Path, tmp_path: Path) -> None:
    options = ["--num_shards=2", "--direct_num_workers=1"]
    assert main(["images", f"--input={photos}", f"--output={tmp_path}/command", *options]) == 0
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = (
            pipeline
            | "Read" >> ReadImages(str(photos))
            | "Write" >> WriteImages(str(tmp_path / "ds"), num_shards=2)
        )
    assert shard_bytes(tmp_path / "ds") == shard_bytes(tmp_path / "command")


def test_rejects_end_the_pipeline_or_are_counted(photos: Path) -> None:
    (photos / "stray.jpg").write_bytes(jpeg())
    with pytest.raises(RunError, match=r"stray.jpg: the image or row has no label.*skip_rejected"):
        elements(photos)
    (photos / "more.zip").write_bytes((photos / "more.zip").read_bytes()[:-400])
    pipeline = beam.Pipeline(runner="FnApiRunner")
    found = pipeline | ReadImages(str(photos), skip_rejected=True) | beam.Map(lambda i: i.key)
    names = [f"{'cat' if n % 2 else 'dog'}/{n}.jpg" for n in range(8)]
    assert_that(found, equal_to(names))
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query(MetricsFilter().with_namespace("recordmill"))["counters"]
    counts = {counter.key.metric.name: counter.committed for counter in counters}
    assert counts["images_read"] == 8
    assert counts["rejected_no_label"] == 1
    assert counts["rejected_broken_archive"] == 1


@pytest.mark.parametrize(
    ("patterns", "options", "message"),
    [((), {}, "patterns must be"), (("x",), {"layout": "vocc"}, "did you mean 'voc'"),
     (("x",), {"layout": "coco"}, "needs annotations"),
     (("x",), {"labels_from": "labels.txt"}, "^labels_from must be one of auto, field"),
     (("x",), {"annotations": 3}, "^annotations must be a path, or a list of paths, got 3")],
)  # fmt: skip
def test_wrong_options_fail_at_once(
    patterns: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        ReadImages(*patterns, **options)


def test_arguments_that_there_are_not() -> None:
    for name in ("keep_fields", "patterns", "options"):
        with pytest.raises(TypeError, match=rf"^ReadImages\(\) has no argument named {name}"):
            ReadImages("x", **{name: "y"})


def test_an_image_with_too_many_objects_names_the_argument(photos: Path) -> None:
    table = photos / "boxes.csv"
    table.write_text("path,label,xmin,ymin,xmax,ymax\n" + "cat/1.jpg,ear,1,2,3,4\n" * 3)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = pipeline | ReadImages(str(table), max_objects=2)
    with pytest.raises(Exception, match="3 objects, at most 2, see max_objects"):
        pipeline.run()


REAL = REAL_DATA / "images"


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.skipif(not REAL.exists(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    ("folder", "flags", "spec"),
    [
        (
            "raccoon",
            ["--task=detection", "--split_from=none"],
            ImageSpec("detection", "object_detection"),
        ),
        ("derived_severstal_layout", ["--task=segmentation"], ImageSpec("segmentation", "tfds")),
    ],
)
def test_real_images_are_written_as_by_the_command(
    folder: str, flags: list[str], spec: ImageSpec, tmp_path: Path
) -> None:
    command = ["images", f"--input={REAL / folder}", f"--output={tmp_path}/command", *flags]
    assert main([*command, "--num_shards=2", "--max_rejected=0.1"]) == 0
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = (
            pipeline
            | "Read" >> ReadImages(str(REAL / folder), skip_rejected=True)
            | "Write" >> WriteImages(str(tmp_path / "ds"), spec, num_shards=2, max_rejected=0.1)
        )
    assert shard_bytes(tmp_path / "ds") == shard_bytes(tmp_path / "command")
