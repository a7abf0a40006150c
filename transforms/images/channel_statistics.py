"""A pass over pixels: channel means, deviations and labels, by tensorflow_transform's analyzers.

(Counts and sizes of the written images come from the build itself: `statistics.py`.)

Workers reduce some images to a histogram of each channel before they hand it on, so an analyzer is
given few small rows, and adds up integers: the figures are exact, and the same in any order. What
is analyzed are pixels as the job writes them, but without augmentation and before they are encoded.

TensorFlow and Beam are loaded where a job asks for statistics, and nowhere else.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from PIL import Image

from recordmill.records.arrays import Int64s
from recordmill.records.state import Count
from recordmill.transforms.dataset.stages import Done, OnceStage, Phase, Stage
from recordmill.transforms.dataset.tensorflow_loading import load_tensorflow
from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.image_job import ChannelFigures, ImageJob
from recordmill.transforms.images.mapped_images import ImageMapper
from recordmill.transforms.images.preparing import untouched
from recordmill.transforms.images.reference_files import ReferenceFiles
from recordmill.transforms.images.stored_bytes import ImageReader, UnreadableBytesError
from recordmill.transforms.storage import files
from recordmill.transforms.storage.beam_storage_internals import beam_options

_GRAPH = "graph"  # a folder
_VOCABULARY = "labels"
_LEVELS = 256
_WORK_ITEM_IMAGES = 128


def channel_histograms(image: Image.Image) -> Int64s:
    """Returns `[channels, 256] int64`: how many pixels have each value."""
    return np.array(image.histogram(), np.int64).reshape(-1, _LEVELS)


def statistics_work_items(job: ImageJob) -> int:
    """Returns into how many work items the images of the statistics are cut."""
    return -(-_count_images(job) // _WORK_ITEM_IMAGES)


def _count_images(job: ImageJob) -> int:
    images = job.read_shard_plan().splits[0].images
    return images if job.statistics_images is None else min(images, job.statistics_images)


class _PixelCounts(msgspec.Struct, frozen=True):
    """The row of a work item.

    Attributes:
      images: their number.
      histograms: `[channels * 256]`, how many pixels of each channel have each value.
      labels: of the images.
    """

    images: Count
    histograms: list[Count]
    labels: list[str]


def _count(job: ImageJob, work_item: int, reader: ImageReader) -> _PixelCounts:
    """Returns the row of a work item; it skips images that the build will reject."""
    spec = job.completed().images
    mapper = ImageMapper(job.map, spec) if job.map else None
    images, labels = 0, []
    sums = np.zeros((spec.channels, _LEVELS), np.int64)
    references = ReferenceFiles(job.workspace.inputs_folder, 0)
    for rank in range(
        work_item * _WORK_ITEM_IMAGES, min((work_item + 1) * _WORK_ITEM_IMAGES, _count_images(job))
    ):
        reference = references.read(rank, 0)
        try:
            made = [(reference, reader.read(reference.image))]
            if mapper:
                mask = reader.read(reference.mask) if reference.mask else None
                made = [(each.reference, each.data) for each in mapper(reference, made[0][1], mask)]
            found = [untouched(each, data, spec) for each, data in made]
        except (ImageRejectedError, UnreadableBytesError):
            continue
        for image, names in found:
            images += 1
            sums += channel_histograms(image)
            labels += names
    return _PixelCounts(images, sums.ravel().tolist(), labels)


class CountPixels(Stage[ImageJob]):
    """Writes how many pixels of some images have each value, and their labels.

    Memory: an image. It has nothing to do where the figures are there.
    """

    name = "CountPixels"

    @cached_property
    def _reader(self) -> ImageReader:
        return ImageReader(packs=self.job.packs_folder)

    def close(self) -> None:
        """Closes the archives that were read from."""
        if "_reader" in self.__dict__:
            self._reader.close()

    def items(self) -> int:
        """Returns into how many work items the images are cut."""
        return statistics_work_items(self.job) if self.job.read_figures() is None else 0

    def do(self, item: int) -> Done:
        """Writes the row of a work item."""
        path = self.job.statistics_row_path(item)
        if self.job.workspace.read_state(path, _PixelCounts) is None:
            self.job.workspace.check_own()
            row = _count(self.job, item, self._reader)
            self.job.workspace.write_state(path, row)
        return Done()

    def phases(self) -> Iterator[Phase]:
        """Yields the rows that are written."""
        folder = self.job.statistics_row_path(0).rpartition("/")[0]
        yield Phase("statistics", files.count(folder, ".json"), statistics_work_items(self.job))


def _read_row(item: int, job: ImageJob) -> pa.RecordBatch:
    """Returns the row of a work item as a record batch."""
    row = job.workspace.need_state(job.statistics_row_path(item), _PixelCounts)
    values = {
        "pixel": [0.0] * job.images.channels,
        "histograms": row.histograms,
        "images": [row.images],
        "labels": [name.encode() for name in row.labels],
    }
    columns = [pa.array([values[each.name]], each.type) for each in _ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


_ARROW_SCHEMA = pa.schema(
    [
        ("pixel", pa.list_(pa.float32())),
        ("histograms", pa.list_(pa.int64())),
        ("images", pa.list_(pa.int64())),
        ("labels", pa.list_(pa.binary())),
    ]
)


def _tensor_columns(channels: int) -> Any:
    """Returns how TFT reads the rows."""
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

    def dense(name: str, *sizes: int) -> Any:
        shape = {"dim": [{"size": size} for size in sizes]}
        return schema_pb2.TensorRepresentation(dense_tensor={"column_name": name, "shape": shape})

    return TensorAdapterConfig(
        _ARROW_SCHEMA,
        {
            "pixel": dense("pixel", channels),
            "histograms": dense("histograms", channels, _LEVELS),
            "images": dense("images"),
            "labels": schema_pb2.TensorRepresentation(
                varlen_sparse_tensor={"column_name": "labels"}
            ),
        },
    )


def _graph(*, labels: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns what is analyzed, and the graph of it that is kept."""

    def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
        import tensorflow as tf
        import tensorflow_transform as tft

        counts = tft.sum(inputs["histograms"], reduce_instance_dims=False, name="histograms")
        images = tft.sum(inputs["images"], name="images")
        if labels:
            tft.vocabulary(inputs["labels"], vocab_filename=_VOCABULARY, name=_VOCABULARY)
        levels = tf.range(_LEVELS, dtype=tf.float64)
        counts = tf.cast(counts, tf.float64)
        pixels = tf.reduce_sum(counts, axis=1)
        exact = tf.math.divide_no_nan(tf.linalg.matvec(counts, levels), pixels)
        squares = counts * tf.square(levels - exact[:, None])
        spread = tf.sqrt(tf.math.divide_no_nan(tf.reduce_sum(squares, axis=1), pixels))
        mean, std = tf.cast(exact, tf.float32), tf.cast(spread, tf.float32)
        pixel = inputs["pixel"]
        return {
            "pixel": (pixel - mean) / tf.where(std > 0, std, tf.ones_like(std)),
            "mean": tf.zeros_like(pixel) + mean,
            "std": tf.zeros_like(pixel) + std,
            "images": tf.zeros_like(pixel[:, 0], tf.int64) + images,
        }

    return preprocess


class AnalyzePixels(OnceStage[ImageJob]):
    """Writes the figures of all rows, and the graph that uses them, to `job.statistics_path`.

    The graph takes `pixel`, `[n, channels] float32` in [0, 255], and gives it less the mean, by
    the deviation. tensorflow_transform's analyzers add up the rows, in a pipeline of their own in
    this process. Memory: a row. Deterministic: neither order nor retries show.
    """

    name = "AnalyzePixels"

    def do(self, item: int) -> Done:
        """Adds up the rows, unless the figures are there."""
        if self.job.read_figures() is None:
            load_tensorflow()
            from apache_beam.io.filesystems import FileSystems

            # A folder of this attempt: another one may be at the same work meanwhile.
            folder = files.join(self.job.workspace.work, "transform", uuid.uuid4().hex)
            # Beam keeps what it counts by thread, and this one does an item of a pipeline.
            # A new pipeline has no options, and gives these to the storage of the whole process.
            options = beam_options()
            try:
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(_analyze, self.job, folder).result()
            finally:
                FileSystems.set_options(options)
            self.job.write_figures(_figures(self.job, files.join(folder, _GRAPH)))
            files.delete_folder(folder)
        return Done()


def _analyze(job: ImageJob, folder: str) -> None:
    """Writes the graph of the figures of all rows below a folder."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    labels = job.lists_labels and job.images.task != "segmentation"
    work_items = range(statistics_work_items(job))
    with (
        beam.Pipeline(runner=FnApiRunner()) as pipeline,
        tft_beam.Context(temp_dir=files.join(folder, "temp")),
    ):
        rows = (
            pipeline
            | "Rows" >> beam.Create(work_items, reshuffle=False)
            | "ReadRow" >> beam.Map(_read_row, job).with_output_types(pa.RecordBatch)
        )
        analyzed = (rows, _tensor_columns(job.images.channels)) | "Analyze" >> (
            tft_beam.AnalyzeDataset(_graph(labels=labels))
        )
        # The sink writes when the pipeline runs; nothing follows it.
        _ = analyzed | "WriteGraph" >> tft_beam.WriteTransformFn(files.join(folder, _GRAPH))


def _figures(job: ImageJob, folder: str) -> ChannelFigures:
    """Returns what the graph in a folder says, with its files."""
    import tensorflow as tf
    import tensorflow_transform as tft

    pixel = tf.zeros([1, job.images.channels])
    outputs = tft.TFTransformOutput(folder).transform_raw_features({"pixel": pixel})
    figures: dict[str, Any] = {"channel_images": int(outputs["images"][0])}
    for name in ("mean", "std"):  # the shortest decimals that give the graph's very float32 again
        figures[f"channel_{name}"] = [float(str(value)) for value in outputs[name][0].numpy()]
    graph = {
        path[len(folder) :].lstrip("/"): files.read_bytes(path)
        for path in sorted(files.list_files(folder))
    }
    return ChannelFigures(figures, graph)
