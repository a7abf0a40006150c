"""Planning the metadata of TFRecords that stay where they are: what it adds to `plan_job.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from recordmill.pipelines.examples_request import InPlaceRequest
from recordmill.pipelines.planning.item_sizes import PassedOver, work_item_bytes
from recordmill.pipelines.planning.outline import Outline
from recordmill.pipelines.planning.planner import Inventory, Planner, WorkPlan
from recordmill.records import manifest as m
from recordmill.records.codec.framing import HEADER_BYTES
from recordmill.records.errors import UsageError
from recordmill.records.state import Count
from recordmill.records.tfds_metadata import labels_file, template_of_names
from recordmill.transforms.dataset.in_place import is_foreign, noted_names
from recordmill.transforms.dataset.output_spec import SplitSpec
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.writable import check_writable
from recordmill.transforms.examples.in_place_job import InPlaceJob
from recordmill.transforms.examples.in_place_stages import Scan
from recordmill.transforms.examples.record_source import compression_of
from recordmill.transforms.examples.shard_files import ShardFile, place_shards
from recordmill.transforms.sources.formats import ROW_FORMATS
from recordmill.transforms.sources.item_cutting import gather
from recordmill.transforms.sources.source_list import SourceList
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import SourceRange, list_sources
from recordmill.transforms.storage import files

_OF_TFDS = ("dataset_info.json", "features.json")
_OURS = (m.SUCCESS_PATH, ".recordmill.lock", *_OF_TFDS)
_COMPRESSIONS = {"": "", "gz": "GZIP", "zlib": "ZLIB"}
_COPIES = "write copies with `recordmill examples`"


class InPlaceStages(msgspec.Struct, frozen=True):
    """What the stages know beside the job.

    Attributes:
      work_items: their number.
      kept: see `InPlaceJob`.
    """

    work_items: Count
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InPlaceInventory(Inventory):
    """The files, in order of splits and numbers."""

    shards: tuple[ShardFile, ...]


class InPlacePlanner(Planner[InPlaceJob, InPlaceStages, InPlaceInventory]):
    """Plans `recordmill index`, which is `recordmill examples --in_place_metadata` too."""

    kind = "examples"
    stages_type = InPlaceStages
    packages: tuple[str, ...] = ()
    bytes_version = 1
    metadata = (m.IN_PLACE_PATH,)
    way_out = "--overwrite makes its metadata anew, and leaves the shards as they are"

    def __init__(self, request: InPlaceRequest) -> None:
        super().__init__(request.job)
        self._request = request

    @contextmanager
    def inspect(self) -> Iterator[InPlaceInventory]:
        """Lists the files, and looks at the first bytes of each."""
        request, passed_over = self._request, PassedOver()
        listed = list_sources(request.patterns, splits=request.splits, pass_over=passed_over.add)
        shards = place_shards(self._of_dataset(listed))
        passed_over.report()
        if not shards:
            raise UsageError(f"--input {' '.join(request.patterns)} matches only metadata")
        shards, compression = _with_compression(shards)
        names = list(dict.fromkeys(shard.split for shard in shards))
        splits = tuple(SplitSpec(name, 1 / len(names)) for name in names)
        self.job = replace(self.job, splits=splits, compression=compression)
        self.kept = tuple(self._foreign_metadata())
        self._note_limits(shards)
        with closing(SourceList(shards)) as sources:
            summary = sources.summary()
            yield InPlaceInventory(summary["bytes"], summary, {}, sources.modified, tuple(shards))

    def _of_dataset(self, sources: Iterator[SourceRange]) -> Iterator[SourceRange]:
        """Yields files by their names in the dataset, but its metadata.

        Raises:
          UsageError: a file is elsewhere, or none of records.
        """
        folder = self.job.workspace.absolute_output
        for source in sources:
            path = os.path.abspath(source.path) if files.is_local(source.path) else source.path
            inside = path.startswith(f"{folder.rstrip('/')}/")
            if not inside or source.outside:
                where = source.outside or source.path
                raise UsageError(
                    f"metadata in place needs all files in one folder, and {where} is not in "
                    f"{folder}; name the folder above all of them, or {_COPIES}"
                )
            name = path[len(folder.rstrip("/")) + 1 :]
            is_ours = name in _OURS or name.startswith(("_meta/", "_tmp/"))
            if is_ours or name.endswith(".labels.txt"):
                continue
            if source.format in ROW_FORMATS:
                raise UsageError(
                    f"metadata in place is for TFRecords, and {source.path} is a table; leave it "
                    f"out of --input, or {_COPIES}"
                )
            yield replace(source, name=name, format="tfrecord")

    def _foreign_metadata(self) -> Iterator[str]:
        """Yields the names of files of TFDS that another tool wrote."""
        workspace = self.job.workspace
        noted = noted_names(workspace.output)
        classes = [labels_file(f.name) for f in self.job.given_schema if f.classes]
        for name in (*_OF_TFDS, *classes):
            if files.exists(files.join(workspace.output, name)) and is_foreign(
                workspace.output, name, noted
            ):
                yield name

    def _note_limits(self, shards: list[ShardFile]) -> None:
        """Says what readers cannot do with these files."""
        if self.kept:
            self.note(f"{' and '.join(self.kept)} of another tool stay as they are, and TFDS reads "
                      "them")  # fmt: skip
        if self.job.compression:
            self.note(
                f"the files are {self.job.compression}: recordmill.reader shuffles whole files and "
                "has no random access, and TFDS reads none of them"
            )
        elif not self.kept:
            for split in self.job.splits:
                names = [shard.name for shard in shards if shard.split == split.name]
                if not template_of_names(names):
                    self.note(
                        f"TFDS finds shards by names such as {split.name}.tfrecord-00000-of-00002, "
                        f"and those of {split.name} are others, such as {names[0]}: "
                        "recordmill.reader reads them, TFDS does not"
                    )

    def check_output(self) -> None:
        """Checks that metadata can be written beside the shards.

        Raises:
          UsageError: it cannot.
        """
        try:
            check_writable(self.job.workspace.output, "the folder")
        except UsageError as error:
            raise UsageError(f"{error}; make the folder writable, or {_COPIES}") from error

    def write(self, inventory: InPlaceInventory, *, workers: int) -> InPlaceStages:
        """Gathers whole files into work items."""
        target = work_item_bytes(inventory.input_bytes, workers)
        items = gather(inventory.shards, lambda shard: shard.size, target)
        count = write_work_items(self.job.workspace.inputs_folder, items)
        return InPlaceStages(count, self.kept)

    def config(self) -> dict[str, Any]:
        """Returns where the input was."""
        return {"input": self._request.patterns}

    def describe(self) -> str:
        """Returns the description of the dataset."""
        return "records of other tools, with metadata by recordmill"

    def stages(self, plan: WorkPlan[InPlaceJob, InPlaceStages]) -> list[Stage[Any]]:
        """Returns the stage that reads the shards."""
        planned = plan.stages
        job = replace(plan.job, work_items=planned.work_items, kept=planned.kept)
        return [Scan(job, int(plan.commit.sources["files"]), plan.input_bytes)]

    def outline(self, inventory: InPlaceInventory, *, workers: int) -> Outline:
        """Refuses an estimate."""
        del inventory, workers
        raise UsageError(
            "--in_place_metadata has no estimate: it reads each file once and writes small files; "
            "run it by `recordmill index`"
        )


def _with_compression(shards: list[ShardFile]) -> tuple[list[ShardFile], str]:
    """Returns shards with their compression, and that of all as the manifest has it.

    Raises:
      UsageError: a file holds no records, or they differ in it, or no reader knows it.
    """

    def look(path: str) -> str:
        try:
            return compression_of(files.read_bytes(path, 0, HEADER_BYTES), path)
        except ValueError as error:
            raise UsageError(
                f"--input must match TFRecord files alone, and {path} is {error}; leave it out"
            ) from error

    kinds = list(files.map_files(look, [shard.path for shard in shards]))
    of_kind: dict[str, ShardFile] = {}
    for kind, shard in zip(kinds, shards, strict=True):
        if shard.size:
            of_kind.setdefault(kind, shard)
    for kind, shard in of_kind.items():
        if kind not in _COMPRESSIONS:
            raise UsageError(
                f"{shard.path} is compressed as {kind}, which TensorFlow does not read; {_COPIES}"
            )
    if len(of_kind) > 1:
        shown = ", ".join(f"{s.path} {_COMPRESSIONS[k] or 'plain'}" for k, s in of_kind.items())
        raise UsageError(
            f"the files of a dataset must be compressed in one way, and are not: {shown}; make "
            f"metadata of each folder for itself, or {_COPIES}"
        )
    kind = next(iter(of_kind))
    return [replace(shard, compression=kind) for shard in shards], _COMPRESSIONS[kind]
