"""`WriteImages` with splits and groups of elements, and with statistics of channels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines.command_line import main
from recordmill.records.errors import UsageError
from recordmill.transforms import Image, ImageSpec, ReadImages, WriteImages

from ...pipelines.jobs import shard_bytes
from ..user_pipelines import counts, write_elements
from .test_write_images import images, picture, reasons


def write(output: Path, elements: list[Any], *, bundles: int = 1, **options: Any) -> Path:
    write_elements(WriteImages(str(output), **options), elements, bundles=bundles, workers=1)
    return output


def statistics(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "_meta/statistics.json").read_bytes())
    return found


def test_elements_name_their_splits(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for n, split in enumerate(["train"] * 8 + ["test"] * 4):
        path = folder / split / "ab"[n % 2] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(n))
    options = ["--split_from=folder", "--num_shards=2", "--direct_num_workers=1"]
    command = ["images", f"--input={folder}", f"--output={tmp_path}/command", *options]
    assert main(command) == 0
    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([])) as pipeline:
        read = pipeline | "Read" >> ReadImages(str(folder), split_from="folder")
        splits = ["train", "test"]
        _ = read | "Write" >> WriteImages(str(tmp_path / "ds"), splits=splits, num_shards=2)
    assert shard_bytes(tmp_path / "ds") == shard_bytes(tmp_path / "command") != {}
    assert [statistics(tmp_path / "ds")[name]["images"] for name in splits] == [8, 4]
    # One split alone needs no names.
    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions([])) as pipeline:
        read = pipeline | "Read" >> ReadImages(str(folder), split_from="folder", split="test")
        _ = read | "Write" >> WriteImages(str(tmp_path / "one"))
    assert counts(tmp_path / "one")["images_written"] == 4


def test_shares_are_for_those_without_a_split(tmp_path: Path) -> None:
    elements = [
        replace(image, split="test" if n < 5 else None) for n, image in enumerate(images(30))
    ]
    options: dict[str, Any] = {"splits": {"train": 0.9, "test": 0.1}, "num_shards": 1}
    first = write(tmp_path / "a", elements, **options)
    drawn = statistics(write(tmp_path / "b", images(30)[5:], **options))
    assert statistics(first)["test"]["images"] == 5 + drawn["test"]["images"]
    other = write(tmp_path / "c", elements[::-1], bundles=4, **options)
    assert shard_bytes(other) == shard_bytes(first)


def test_images_of_other_splits_are_rejected(tmp_path: Path) -> None:
    elements = [replace(image, split="train") for image in images(6)]
    elements += [replace(image, key="other", split="dev") for image in images(1)]
    elements += [replace(image, key="none") for image in images(1)]
    output = write(tmp_path / "ds", elements, splits=["train"], max_rejected=0.5)
    assert reasons(output) == [("none", "no_split"), ("other", "no_split")]
    message = r"1 of 2 elements rejected .*the first is other: .*split='dev', where WriteImages has"
    with pytest.raises(Exception, match=message):
        write(tmp_path / "two", elements[5:7])


def test_a_group_decides_the_split(tmp_path: Path) -> None:
    elements = [replace(image, group=f"g{n % 5}") for n, image in enumerate(images(40))]
    options: dict[str, Any] = {"splits": {"train": 0.5, "test": 0.5}, "num_shards": 1}
    found = statistics(write(tmp_path / "a", elements, **options))
    sizes = [found[split]["images"] for split in ("train", "test")]
    assert sum(sizes) == 40
    assert all(size % 8 == 0 for size in sizes)
    with pytest.raises(Exception, match="none of 40 images"):
        write(tmp_path / "b", [replace(image, group="one") for image in elements], **options)


@pytest.mark.slow
def test_statistics_are_those_of_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    elements = images(20)
    for image in elements:
        path = folder / str(image.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(image.data))
    options = ["--statistics=sample", "--statistics_sample=15", "--splits=train:0.8,test:0.2"]
    command = ["images", f"--input={folder}", f"--output={tmp_path}/command", *options]
    assert main([*command, "--num_shards=2", "--direct_num_workers=1"]) == 0
    output = write(
        tmp_path / "ds", elements[::-1], bundles=3, num_shards=2, statistics="sample",
        statistics_sample=15, splits={"train": 0.8, "test": 0.2},
    )  # fmt: skip
    one, two = statistics(tmp_path / "command"), statistics(output)
    assert two["train"] == one["train"]
    assert two["train"]["channel_images"] == 15
    assert len(two["train"]["channel_mean"]) == 3
    labels = [
        (path / "_meta/transform/transform_fn/assets/labels").read_bytes()
        for path in (tmp_path / "command", output)
    ]
    assert labels[0] == labels[1]
    assert main(["verify", str(output)]) == 0
    # What is rejected while it is built is not analyzed, and the means are those of all others.
    broken = Image(b"no image", "broken", "cat")
    spec = ImageSpec(task="classification", format="tfds", channels=1)
    full = write(
        tmp_path / "full", [*elements, broken], images=spec, statistics="full", max_rejected=0.1
    )
    found = statistics(full)["train"]
    assert found["channel_images"] == 20
    assert len(found["channel_mean"]) == 1
    assert 100 < np.mean(found["channel_mean"]) < 155
    assert {path.name for path in full.glob("_*")} == {"_meta", "_SUCCESS"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"statistics": "all"}, "statistics must be one of .*, got 'all'"),
        ({"statistics_sample": 0}, "statistics_sample must be at least 1, got 0"),
        ({"splits": "train"}, "splits must be names with shares, .* or names, .* got 'train'"),
        ({"splits": []}, "splits must name a split, got none"),
        ({"splits": ["a", "a"]}, "must name each split once, got a,a"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        WriteImages(str(tmp_path / "ds"), **options)
