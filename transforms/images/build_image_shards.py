"""Build for images: decode, transform, encode, write; a work item is a shard, or a part of one.

Where shards are fewer than workers could share, work items are parts of shards, whose files are
then joined. A worker holds one image at a time, and the records of some megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.encoding import encode_batch
from recordmill.records.codec.framing import Bytes, scan_records
from recordmill.records.errors import RunError
from recordmill.records.hashing import fingerprint64
from recordmill.records.manifest import ShardInfo
from recordmill.records.shards import ShardName
from recordmill.records.state import Count
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.error_budget import RejectList
from recordmill.transforms.dataset.rejects import Reject, RejectFile
from recordmill.transforms.dataset.run_state import DamagedStateError
from recordmill.transforms.dataset.shard_writer import (
    ShardWriter,
    finished_shard,
    read_description,
    write_shard,
)
from recordmill.transforms.dataset.stages import Done, Phase, Stage
from recordmill.transforms.dataset.worker_note import note
from recordmill.transforms.images.columns import Prepared, record_columns
from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.image_job import ImageJob
from recordmill.transforms.images.mapped_images import ImageMapper, MappedImage
from recordmill.transforms.images.preparing import prepare
from recordmill.transforms.images.reference_files import ReferenceFiles
from recordmill.transforms.images.references import ImageReference
from recordmill.transforms.images.statistics import ImageStatistics
from recordmill.transforms.images.stored_bytes import (
    DEFAULT_LIMITS,
    ImageReader,
    UnreadableBytesError,
)
from recordmill.transforms.storage import files

_BATCH_BYTES = 1 << 23
_BATCH_IMAGES = 256
_BLOCK_BYTES = 1 << 23

AddRecords = Callable[[Bytes, Int64s], object]


class PartPosition(NamedTuple):
    """The shard, and the part of it, that a work item builds."""

    split: int
    shard: int
    part: int


class BuiltPart(NamedTuple):
    """A part that is written: the shard that it belongs to, and its statistics."""

    position: PartPosition
    statistics: ImageStatistics


class ImageShardBuilder:
    """Builds shards, or parts of shards, one after the other.

    Args:
      job: the job, whose shard plan is written.
      parts: how many work items share a shard; None leaves it to the shard plan.
    """

    def __init__(self, job: ImageJob, parts: int | None = None) -> None:
        self._job = job.completed()
        plan = job.read_shard_plan()
        self._parts = parts or plan.parts
        self._splits = plan.splits
        self._images = sum(split.images for split in self._splits)
        self._reader = ImageReader(packs=job.packs_folder)
        self._mapper: ImageMapper | None = None

    def close(self) -> None:
        """Closes the archives that it reads from."""
        self._reader.close()

    def build(self, work_item: int) -> BuiltPart:
        """Writes a shard or a part, unless it is already written."""
        position = self._position(work_item)
        name = self._shard_name(position)
        if self._parts > 1:
            return BuiltPart(position, self._build_part(work_item, position, name))
        if not self._finished(name):
            write_shard(self._job, name, lambda writer: self._fill(work_item, position, writer.add))
        found = read_description(self._job, name)
        if found is None:
            raise RunError(f"the description of {name.path} is gone; run the same command again")
        return BuiltPart(position, found.statistics)

    def _build_part(
        self, work_item: int, position: PartPosition, name: ShardName
    ) -> ImageStatistics:
        """Writes a part, unless it, or its shard, is already written; returns its statistics."""
        workspace, path = self._job.workspace, self._job.part_path(work_item)
        done = workspace.read_state(f"{path}.json", _Part)
        if done is not None:
            lists = done.statistics.rejected_files
            whole = all(workspace.holds_rejects(each.number, each.size_bytes) for each in lists)
            # The parts of a finished shard are deleted.
            if whole and (files.size(f"{path}.bin") == done.size or self._finished(name)):
                return done.statistics
        workspace.check_own()
        size = 0

        def add(data: Bytes, _: Int64s) -> None:
            nonlocal size
            handle.write(data.data)
            size += len(data)

        with files.writing(f"{path}.bin") as handle:
            statistics = self._fill(work_item, position, add)
        workspace.write_state(f"{path}.json", _Part(size, statistics))
        return statistics

    def _shard_name(self, position: PartPosition) -> ShardName:
        split = self._splits[position.split]
        return self._job.shard_name(split.name, position.shard, split.num_shards)

    def _finished(self, name: ShardName) -> ShardInfo | None:
        return finished_shard(self._job, name, _rejected_files)

    def _position(self, work_item: int) -> PartPosition:
        """Returns the part that a work item builds; they are numbered by split, shard and part."""
        for number, split in enumerate(self._splits):
            work_items = split.num_shards * self._parts
            if work_item < work_items:
                return PartPosition(number, *divmod(work_item, self._parts))
            work_item -= work_items
        raise ValueError(f"the plan has no such work item, {work_item} too many")

    def _fill(self, work_item: int, position: PartPosition, add: AddRecords) -> ImageStatistics:
        """Makes the records of a part, and writes the rejects among its images."""
        split = self._splits[position.split]
        slots = split.part_slots(position.shard, position.part, self._parts)
        references = ReferenceFiles(self._job.workspace.inputs_folder, position.split)
        variants = self._job.variants(split.name)
        statistics = ImageStatistics()
        batch: list[Prepared] = []
        held_bytes = 0
        number = work_item + 1  # 0 is the list of listing's rejects
        with RejectList(self._job, number, most_inputs=self._images) as rejects:
            for reference, copy in split.read_slots(references, slots):
                is_file = reference.image.storage == "file"
                note(reference.image.path if is_file else reference.name)
                try:
                    images = self._prepare(reference, copy, variants[copy], statistics)
                except ImageRejectedError as error:
                    # The first copy alone reports the image; the others are counted, because the
                    # commit checks that an image is rejected in all of its copies.
                    if copy:
                        statistics.counts["copies_rejected"] += 1
                        continue
                    detail = self._job.worded(error.detail)
                    reject = Reject(reference.name, 0, "decode", error.reason, detail)
                    rejects.add([reject])
                    continue
                for image in images:
                    statistics.add(image)
                    batch.append(image)
                    held_bytes += image.held_bytes
                note("")
                if held_bytes >= _BATCH_BYTES or len(batch) >= _BATCH_IMAGES:
                    self._encode(batch, add)
                    batch, held_bytes = [], 0
            note("")
            self._encode(batch, add)
            if rejects.reasons:
                statistics.rejected.update(rejects.reasons)
                statistics.rejected_files.append(rejects.write())
        return statistics

    def _prepare(
        self,
        reference: ImageReference,
        copy: int,
        variant: int | None,
        statistics: ImageStatistics,
    ) -> list[Prepared]:
        """Returns the record of a copy of an image; the user's functions may make others of it."""
        try:
            image = self._reader.read(reference.image)
            mask = self._reader.read(reference.mask) if reference.mask else None
        except UnreadableBytesError as error:
            if self._is_in_pack(reference):
                raise DamagedStateError(
                    f"the pack of {reference.name} is damaged or gone: {error}; check the storage "
                    "and start anew"
                ) from error
            raise ImageRejectedError("unreadable_file", str(error)) from error
        mapped = [MappedImage(reference, image, mask)]
        if self._job.map:
            if self._mapper is None:
                self._mapper = ImageMapper(self._job.map, self._job.images)
            mapped = self._mapper(reference, image, mask)
        prepared = []
        for each in mapped:
            key = fingerprint64(each.reference.name.encode())
            prepared.append(prepare(*each, self._job.images, key=key, copy=variant))
        if copy == 0:
            for each in mapped:
                name, data = each.reference.name, each.data
                statistics.contents.add(name, data, of_images=self._images)
            if not mapped:
                statistics.counts["dropped_map"] += 1
            elif len(mapped) > 1:
                statistics.counts["images_added"] += len(mapped) - 1
        return prepared

    def _is_in_pack(self, reference: ImageReference) -> bool:
        """Tells whether the run itself has written the bytes of an image, within the limits."""
        stored, work = reference.image, files.join(self._job.workspace.work, "")
        is_own = stored.storage == "packed" or stored.path.startswith(work)
        return is_own and stored.size <= DEFAULT_LIMITS.image_bytes

    def _encode(self, batch: list[Prepared], add: AddRecords) -> None:
        if batch:
            spec = self._job.images
            encoded = encode_batch(spec.schema, record_columns(spec, batch))
            add(encoded.buffer, encoded.offsets)

    def join(self, split: int, shard: int) -> ShardInfo:
        """Joins the parts of a shard, unless it is already written; returns what it is."""
        name = self._shard_name(PartPosition(split, shard, 0))
        info = self._finished(name)
        if info is None:
            shards_before = sum(before.num_shards for before in self._splits[:split]) + shard
            first = shards_before * self._parts
            paths = [self._job.part_path(first + part) for part in range(self._parts)]
            try:
                info = write_shard(self._job, name, lambda writer: self._join(paths, writer))
            except FileNotFoundError:
                # Another copy of this work item may have joined and removed the parts meanwhile.
                info = self._finished(name)
                if info is None:
                    raise
            files.delete_quietly(f"{path}.bin" for path in paths)
        return info

    def _join(self, paths: Iterable[str], writer: ShardWriter) -> ImageStatistics:
        """Copies the records of parts into a shard; returns the sum of their statistics."""
        statistics = ImageStatistics()
        for path in paths:
            part = self._job.workspace.read_state(f"{path}.json", _Part)
            if part is None:
                raise RunError(f"{path}.json is missing or damaged; run the same command again")
            statistics.merge(part.statistics)
            _copy_records(f"{path}.bin", writer)
        return statistics


class _Part(msgspec.Struct, frozen=True):
    """The description of a part: the bytes of its file, and its statistics."""

    size: Count
    statistics: ImageStatistics


def _rejected_files(statistics: ImageStatistics) -> list[RejectFile]:
    return statistics.rejected_files


def _copy_records(path: str, writer: ShardWriter) -> None:
    """Copies the records of a part into a shard."""
    carried = b""
    with files.open_read(path) as handle:
        while block := handle.read(_BLOCK_BYTES):
            data = np.frombuffer(carried + block, np.uint8)
            offsets, used, problem = scan_records(data)
            if problem:
                raise DamagedStateError(
                    f"{path} is damaged: {problem}; check the storage and start anew with "
                    "--overwrite"
                )
            if used:
                writer.add(data[:used], offsets)
            carried = data[used:].tobytes()
    if carried:
        raise DamagedStateError(f"{path} is cut short; start anew with --overwrite")


class BuildImages(Stage[ImageJob]):
    """Writes shards, or parts of shards where these are fewer than workers could share.

    Memory: an image and some megabytes of records, whatever the size of the shard. Deterministic:
    bytes depend on neither the number of parts nor which worker builds them. Repeating a work
    item, also two copies at once, changes nothing.

    Args:
      job: whose shard plan is written.
      parts: how many work items share a shard; None leaves it to the shard plan.
      input_bytes: of all work items, for progress.
    """

    name = "Build"

    def __init__(self, job: ImageJob, parts: int | None = None, input_bytes: int = 0) -> None:
        super().__init__(job)
        self._asked_parts = parts
        self._input_bytes = input_bytes

    @cached_property
    def _builder(self) -> ImageShardBuilder:
        return ImageShardBuilder(self.job, self._asked_parts)

    @property
    def _parts(self) -> int:
        return self._asked_parts or self.job.read_shard_plan().parts

    @property
    def _shards(self) -> int:
        return sum(split.num_shards for split in self.job.read_shard_plan().splits)

    def close(self) -> None:
        """Closes the archives that were read from."""
        if "_builder" in self.__dict__:
            self._builder.close()

    def items(self) -> int:
        """Returns the number of parts of all shards."""
        return self._shards * self._parts

    def do(self, item: int) -> Done:
        """Prepares and writes the images of a part."""
        position, statistics = self._builder.build(item)
        counts = {"examples_prepared": statistics.pixels.total()}
        counts |= counters.of_rejects(statistics.rejected)
        if self._parts > 1:
            return Done(counts=counts)
        done = _done(self._builder.join(position.split, position.shard))
        return Done(done.records, {**counts, **done.counts})

    def phases(self) -> Iterator[Phase]:
        """Yields the parts, or the shards, that are described."""
        if self._parts > 1:
            folder = self.job.part_path(0).rpartition("/")[0]
            yield Phase("write", files.count(folder, ".json"), self.items(), self._input_bytes)
        else:
            done = files.count(self.job.workspace.done_folder, ".json")
            yield Phase("write", done, self._shards, self._input_bytes)


class JoinParts(BuildImages):
    """Joins the parts of each shard, once all are written; does nothing where shards have none."""

    name = "Join"

    def items(self) -> int:
        """Returns the number of shards."""
        return self._shards if self._parts > 1 else 0

    def do(self, item: int) -> Done:
        """Copies the records of parts into a shard."""
        for split, planned in enumerate(self.job.read_shard_plan().splits):
            if item < planned.num_shards:
                return _done(self._builder.join(split, item))
            item -= planned.num_shards
        raise ValueError(f"the plan has no such shard, {item} too many")

    def phases(self) -> Iterator[Phase]:
        """Yields the shards that are described."""
        if self._parts > 1:
            done = files.count(self.job.workspace.done_folder, ".json")
            yield Phase("join", done, self._shards)


def _done(info: ShardInfo) -> Done:
    return Done(info.records, {"examples_written": info.records, "bytes_written": info.file_bytes})
