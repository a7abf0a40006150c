"""Build for images: decode, transform, encode, write; a task is a shard, or a part of one.

Where shards are fewer than workers could share, tasks are parts of shards, whose files are then
joined. What a worker holds is one image at a time, and the records of some megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

import apache_beam as beam
import google_crc32c
import numpy as np

from recordmill.records.encoding import encode_batch
from recordmill.records.errors import RunError
from recordmill.records.framing import Bytes, scan_records
from recordmill.records.hashing import fingerprint64
from recordmill.records.shards import ShardName
from recordmill.transforms import files
from recordmill.transforms.image_bytes import ImageReader, UnreadableBytesError
from recordmill.transforms.image_columns import Prepared
from recordmill.transforms.image_decoding import ImageRejectedError
from recordmill.transforms.image_found import ImageFound
from recordmill.transforms.image_job import ImageJob
from recordmill.transforms.image_plan import read_units
from recordmill.transforms.image_preparing import prepare
from recordmill.transforms.image_references import ImageReference
from recordmill.transforms.job import fail, read_json, write_json
from recordmill.transforms.lines import Int64s
from recordmill.transforms.rejects import Reject
from recordmill.transforms.shard_files import ShardWriter, finished_shard, write_shard

_BATCH_BYTES = 1 << 23
_BATCH_IMAGES = 256
_BLOCK_BYTES = 1 << 23
_SPOOL_BYTES = 1 << 22

AddRecords = Callable[[Bytes, Int64s], object]


class ShardBuilder:
    """Does tasks one after the other."""

    def __init__(self, job: ImageJob, parts: int) -> None:
        self._job = job
        self._parts = parts
        self._splits = job.read_splits()
        self._reader = ImageReader()

    def close(self) -> None:
        """Closes the archives that it reads from."""
        self._reader.close()

    def build(self, task: int) -> tuple[tuple[int, int], dict[str, Any]]:
        """Writes a shard or a part, unless it is there; returns whose, and what was found."""
        split, shard, part = self._place(task)
        plan = self._splits[split]
        units = plan.part(shard, part, self._parts)
        if self._parts == 1:
            name = ShardName(plan.name, shard, plan.shards)
            if not finished_shard(self._job, name):
                write_shard(self._job, name, lambda w: self._fill(task, split, units, w.add))
            return (split, shard), dict(read_json(self._job.done_path(name))["found"])
        path = self._job.part_path(task)
        if not files.exists(f"{path}.json"):
            with files.writing(f"{path}.bin") as handle:
                found = self._fill(task, split, units, lambda data, _: handle.write(data.data))
            write_json(f"{path}.json", found)
        return (split, shard), dict(read_json(f"{path}.json"))

    def _place(self, task: int) -> tuple[int, int, int]:
        """Returns split, shard and part of a task."""
        for split, plan in enumerate(self._splits):
            tasks = plan.shards * self._parts
            if task < tasks:
                return split, *divmod(task, self._parts)
            task -= tasks
        raise ValueError(f"the plan has no such task, {task} too many")

    def _fill(self, task: int, split: int, units: range, add: AddRecords) -> dict[str, Any]:
        """Makes the records of some units; returns what was found."""
        found = ImageFound()
        batch: list[Prepared] = []
        held = 0
        with SpooledTemporaryFile(max_size=_SPOOL_BYTES) as rejects:
            for reference, copy in read_units(self._job.work, split, self._splits[split], units):
                try:
                    image = self._prepare(reference, self._job.variants[copy])
                except ImageRejectedError as error:
                    if copy:
                        found.sums["copies_rejected"] += 1
                        continue
                    reject = Reject(reference.name, 0, "decode", error.reason, error.detail)
                    rejects.write(reject.to_line().encode())
                    found.rejected[error.reason] += 1
                    continue
                found.add(image)
                batch.append(image)
                held += image.held_bytes
                if held >= _BATCH_BYTES or len(batch) >= _BATCH_IMAGES:
                    self._encode(batch, add)
                    batch, held = [], 0
            self._encode(batch, add)
            if found.rejected:
                rejects.seek(0)
                found.rejected_files.append([task + 1, *self._write_rejects(task + 1, rejects)])
        return found.to_json()

    def _prepare(self, reference: ImageReference, copy: int | None) -> Prepared:
        try:
            image = self._reader.read(reference.image)
            mask = self._reader.read(reference.mask) if reference.mask else None
        except UnreadableBytesError as error:
            raise ImageRejectedError("unreadable_file", str(error)) from error
        key = fingerprint64(reference.name.encode())
        return prepare(reference, image, mask, self._job.images, key=key, copy=copy)

    def _encode(self, batch: list[Prepared], add: AddRecords) -> None:
        if batch:
            work = self._job.images
            encoded = encode_batch(work.schema, work.columns(batch))
            add(encoded.buffer, encoded.offsets)

    def _write_rejects(self, number: int, lines: Any) -> tuple[int, int]:
        return write_rejects(self._job, number, iter(lambda: lines.read(_SPOOL_BYTES), b""))

    def join(self, split: int, shard: int) -> int:
        """Makes a shard of its parts unless it is there; returns its records."""
        plan = self._splits[split]
        name = ShardName(plan.name, shard, plan.shards)
        info = finished_shard(self._job, name)
        if info is None:
            first = sum(s.shards for s in self._splits[:split]) * self._parts + shard * self._parts
            paths = [self._job.part_path(first + part) for part in range(self._parts)]
            try:
                info = write_shard(self._job, name, lambda writer: _join(paths, writer))
            except FileNotFoundError:
                info = finished_shard(self._job, name)  # by another, who has removed the parts
                if info is None:
                    raise
            files.delete_quietly(f"{path}.bin" for path in paths)
        return info.records


def _join(paths: Iterable[str], writer: ShardWriter) -> dict[str, Any]:
    found = ImageFound()
    for path in paths:
        found.merge(ImageFound.from_json(read_json(f"{path}.json")))
        carried = b""
        with files.open_read(f"{path}.bin") as handle:
            while block := handle.read(_BLOCK_BYTES):
                data = np.frombuffer(carried + block, np.uint8)
                offsets, used, problem = scan_records(data)
                if problem:
                    raise RunError(
                        f"{path}.bin is damaged: {problem}; check the storage and start anew with "
                        "--overwrite"
                    )
                if used:
                    writer.add(data[:used], offsets)
                carried = data[used:].tobytes()
        if carried:
            raise RunError(f"{path}.bin is cut short; start anew with --overwrite")
    return found.to_json()


def write_rejects(job: ImageJob, number: int, blocks: Iterable[bytes]) -> tuple[int, int]:
    """Writes a file of rejects; returns its bytes and crc32c."""
    size, crc = 0, 0
    with files.writing(job.rejected_path(number), job.partial_folder) as out:
        for block in blocks:
            out.write(block)
            size, crc = size + len(block), google_crc32c.extend(crc, block)
    return size, crc


class _BuildDoFn(beam.DoFn):
    def __init__(self, job: ImageJob, parts: int) -> None:
        self._job = job
        self._parts = parts
        self._images = beam.metrics.Metrics.counter("recordmill", "images_written")

    def setup(self) -> None:
        self._builder = ShardBuilder(self._job, self._parts)

    def teardown(self) -> None:
        self._builder.close()

    def process(self, task: int) -> Iterator[tuple[tuple[int, int], int]]:
        try:
            place, found = self._builder.build(task)
        except RunError as error:
            fail(self._job, error)
        for reason, count in found["rejected"].items():
            beam.metrics.Metrics.counter("recordmill", f"rejected_{reason}").inc(count)
        self._images.inc(sum(found["pixels"].values()))
        yield place, 1


class _JoinDoFn(beam.DoFn):
    def __init__(self, job: ImageJob, parts: int) -> None:
        self._job = job
        self._parts = parts

    def setup(self) -> None:
        self._builder = ShardBuilder(self._job, self._parts)

    def process(self, finished: tuple[tuple[int, int], int]) -> Iterator[int]:
        try:
            yield self._builder.join(*finished[0])
        except RunError as error:
            fail(self._job, error)


class BuildImageShards(beam.PTransform[beam.PCollection[int], beam.PCollection[int]]):
    """Numbers of tasks -> the number of examples in each shard, once it is written whole.

    Memory: an image and some megabytes of records, whatever the size of the shard. Deterministic:
    bytes depend on neither the number of parts nor where they are made. Doing a task twice, or two
    at once, changes nothing.
    """

    def __init__(self, job: ImageJob, parts: int) -> None:
        super().__init__()
        self._job = job
        self._parts = parts

    def expand(self, tasks: beam.PCollection[int]) -> beam.PCollection[int]:
        """Writes parts, and joins them once those of a shard are there."""
        place = tuple[tuple[int, int], int]
        return (
            tasks
            | "BuildPart" >> beam.ParDo(_BuildDoFn(self._job, self._parts)).with_output_types(place)
            | "AwaitParts" >> beam.CombinePerKey(sum).with_output_types(place)
            | "SpreadShards" >> beam.Reshuffle()
            | "JoinParts" >> beam.ParDo(_JoinDoFn(self._job, self._parts)).with_output_types(int)
        )
