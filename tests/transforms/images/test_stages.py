"""The stages of an image job on their own, on a plan of five images that is written by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that, equal_to
from PIL import Image

from recordmill.records.codec.framing import scan_records
from recordmill.records.shards import ShardName
from recordmill.transforms.dataset.output_spec import SplitSpec
from recordmill.transforms.dataset.shard_writer import read_description
from recordmill.transforms.dataset.stage_pipeline import DoStages
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.images.build_image_shards import BuildImages, JoinParts
from recordmill.transforms.images.channel_statistics import AnalyzePixels, CountPixels
from recordmill.transforms.images.image_job import ChannelFigures, ImageJob
from recordmill.transforms.images.image_shard_plan import ImageShardPlan, ImageSplit
from recordmill.transforms.images.image_spec import EncodeSpec, ImageSpec
from recordmill.transforms.images.reference_files import ReferenceWriter
from recordmill.transforms.images.references import ImageReference, StoredBytes
from recordmill.transforms.storage.beam_storage_internals import beam_options

from ...pictures import encoded

VALUES = (10, 20, 30, 40, 60)  # of all pixels of each image
SPEC = ImageSpec(
    task="classification", format="raw", labels={"cat": 0, "dog": 1}, encode=EncodeSpec("raw")
)


@pytest.fixture
def job(tmp_path: Path) -> ImageJob:
    """Five images of 2 x 1 pixels and a broken one, in two shards."""
    folder = str(tmp_path / "ds")
    job = ImageJob(
        workspace=Workspace(output=folder, work=f"{folder}/_tmp", staging=f"{folder}/_tmp"),
        images=SPEC,
        splits=(SplitSpec("train", 1.0),), max_rejected=1.0, statistics_images=None,
    )  # fmt: skip
    writer = ReferenceWriter(job.workspace.work, 0)
    for number, value in enumerate(VALUES):
        path = tmp_path / f"{number}.png"
        path.write_bytes(encoded(Image.new("RGB", (2, 1), (value, 100, 2 * value)), "PNG"))
        label = ("cat", "dog")[number % 2]
        writer.add(ImageReference(path.name, StoredBytes(str(path)), (label,)).to_line())
    (tmp_path / "broken.png").write_bytes(b"no image")
    broken = ImageReference("broken.png", StoredBytes(f"{tmp_path}/broken.png"), ("cat",))
    writer.add(broken.to_line())
    writer.close()
    split = ImageSplit("train", len(VALUES) + 1, 1, (0, 3, 6))
    job.write_shard_plan(ImageShardPlan((split,)))
    return job


def shards(job: ImageJob) -> list[bytes]:
    return [Path(job.workspace.shard_path(ShardName("train", n, 2))).read_bytes() for n in range(2)]


def build(job: ImageJob, parts: int) -> None:
    with test_pipeline.TestPipeline(runner=FnApiRunner()) as pipeline:
        stages = BuildImages(job, parts), JoinParts(job, parts)
        total = pipeline | DoStages(stages)
        assert_that(total, equal_to([5]))


class TestBuildImages:
    def test_records_and_rejects_are_those_of_the_plan(self, job: ImageJob) -> None:
        build(job, parts=1)
        for number, (data, images) in enumerate(zip(shards(job), ((0, 1, 2), (3, 4)), strict=True)):
            offsets, used, problem = scan_records(np.frombuffer(data, np.uint8))
            assert (len(offsets) - 1, used, problem) == (len(images), len(data), "")
            for image in images:
                value = VALUES[image]
                assert bytes([value, 100, 2 * value] * 2) in data
            description = read_description(job, ShardName("train", number, 2))
            assert description
            assert (
                description.statistics.classes
                == [{"cat": 2, "dog": 1}, {"dog": 1, "cat": 1}][number]
            )
        (line,) = Path(job.workspace.rejected_path(2)).read_text().splitlines()
        assert json.loads(line) == {
            "source": "broken.png", "position": 0, "stage": "decode", "reason": "not_an_image",
            "detail": "begins with 6e 6f 20 69 6d 61 67 65",
        }  # fmt: skip
        assert not Path(job.workspace.rejected_path(1)).exists()

    def test_parts_make_the_same_bytes(self, job: ImageJob, tmp_path: Path) -> None:
        build(job, parts=1)
        whole = shards(job)
        staging = f"{tmp_path}/other"
        other = replace(job, workspace=replace(job.workspace, staging=staging))
        build(other, parts=3)
        assert shards(other) == whole

    @pytest.mark.parametrize("lost", ["shard", "index", "description", "rejects"])
    def test_parts_of_a_shard_that_is_lost_are_built_again(self, job: ImageJob, lost: str) -> None:
        build(job, parts=3)
        whole = shards(job)
        name = ShardName("train", 1, 2)
        path = {
            "shard": job.workspace.shard_path(name),
            "index": job.workspace.index_path(name),
            "description": job.workspace.done_path(name),
            "rejects": job.workspace.rejected_path(6),
        }[lost]
        assert Path(path).stat().st_size
        Path(path).write_bytes(b"")
        build(job, parts=3)
        assert shards(job) == whole
        assert Path(path).stat().st_size

    def test_finished_shards_are_not_built_again(self, job: ImageJob) -> None:
        build(job, parts=1)
        for path in Path(job.workspace.output).parent.glob("*.png"):
            path.unlink()
        build(job, parts=1)


class TestAnalyzePixels:
    @pytest.mark.slow
    def test_figures_are_those_of_the_pixels(self, job: ImageJob) -> None:
        pytest.importorskip("tensorflow_transform")
        with test_pipeline.TestPipeline(runner=FnApiRunner()) as pipeline:
            stages = CountPixels(job), AnalyzePixels(job)
            assert_that(pipeline | DoStages(stages), equal_to([0]))
        assert CountPixels(job).items() == 0  # they are not counted again
        found: ChannelFigures | None = job.read_figures()
        assert found is not None
        figures = found.figures
        reds = np.array(VALUES, np.float64)
        assert figures["channel_images"] == len(VALUES)  # the broken one is skipped
        assert figures["channel_mean"] == [32.0, 100.0, 64.0]
        np.testing.assert_allclose(
            figures["channel_std"], [reds.std(), 0.0, 2 * reds.std()], rtol=1e-6
        )
        assert "transform_fn/saved_model.pb" in found.graph
        assert not list(Path(job.workspace.work).glob("transform/*"))

    @pytest.mark.slow
    def test_the_storage_keeps_its_options(self, job: ImageJob) -> None:
        before, given = beam_options(), PipelineOptions(["--s3_region_name=nowhere"])
        FileSystems.set_options(given)
        try:
            for stage in (CountPixels(job), AnalyzePixels(job)):
                stage.do(0)
            assert beam_options() is given
        finally:
            FileSystems.set_options(before)
