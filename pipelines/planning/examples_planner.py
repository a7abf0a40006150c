"""Planning a job of existing records: what it adds to `plan_job.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from recordmill.pipelines.examples_request import ExamplesRequest
from recordmill.pipelines.planning.input_checks import check_outside, without_input
from recordmill.pipelines.planning.item_sizes import (
    PassedOver,
    mapped_item_bytes,
    work_item_bytes,
)
from recordmill.pipelines.planning.key_sample import sample_keys
from recordmill.pipelines.planning.outline import Outline
from recordmill.pipelines.planning.planner import Inventory, Planner, WorkPlan
from recordmill.pipelines.planning.sample_sources import Layout
from recordmill.pipelines.planning.shuffle_outline import (
    ShuffleOutline,
    count_work_items,
    describe_files,
)
from recordmill.pipelines.planning.table_checks import check_tables
from recordmill.records.codec.feature_values import ABSENT, find_feature
from recordmill.records.codec.framing import HEADER_BYTES
from recordmill.records.conditions import parse_comparisons
from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.output_spec import ShardSpec, SplitSpec
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.examples_spec import TableSpec
from recordmill.transforms.examples.examples_stages import examples_stages
from recordmill.transforms.examples.record_filter import fulfilling
from recordmill.transforms.examples.record_items import cut_record_items, record_files
from recordmill.transforms.examples.record_source import RecordFileRange, compression_of
from recordmill.transforms.examples.scatter import RECORD_LIMITS
from recordmill.transforms.examples.sort_keys import KeySplits
from recordmill.transforms.examples.table_records import count_records, read_batches
from recordmill.transforms.shuffle.merge_tree import MergeTree, choose_merge_tree
from recordmill.transforms.sources.formats import ROW_FORMATS
from recordmill.transforms.sources.source_list import SourceList, first_sources
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import SourceRange, list_sources
from recordmill.transforms.storage import files

_SAMPLE_BYTES = 1 << 26
_USUAL_ITEM_BYTES = 1 << 27
_CHECKED_BYTES = 1 << 20  # of the first file, for --where


@dataclass(frozen=True, slots=True)
class ExamplesInventory(Inventory):
    """The files to read."""

    files: SourceList


def record_item_bytes(total: int, workers: int) -> int:
    """Returns the size of a work item: larger than of text, for cutting a file takes reading it."""
    return max(work_item_bytes(total, workers), min(total // (workers * 8), _USUAL_ITEM_BYTES))


def tree_of_records(job: ExamplesJob, work_items: int, input_bytes: int) -> MergeTree:
    """Returns the merge tree for so many work items.

    In the order of the input a shard reads few run files, however many there are.
    """
    if job.records.order == "input":
        return MergeTree(work_items, max_fan_in=max(work_items, 1))
    split_bytes = [int(input_bytes * split.share) for split in job.splits]
    shards = count_shards(split_bytes, job.splits, job.shards)
    return choose_merge_tree(work_items, sum(shards), input_bytes)


class ExamplesPlanner(Planner[ExamplesJob, MergeTree, ExamplesInventory]):
    """Plans and builds `recordmill examples`."""

    kind = "examples"
    stages_type = MergeTree
    packages: tuple[str, ...] = ()
    bytes_version = 1

    def __init__(self, request: ExamplesRequest) -> None:
        super().__init__(request.job)
        self._request = request
        self._limit = 0  # where it is reached
        self._key_splits: KeySplits | None = None

    @property
    def _inputs(self) -> dict[str, tuple[str, float]]:
        """Returns what stands for a glob in its files -> its split and weight."""
        request = self._request
        weights = self.job.weights or (1.0,) * len(request.patterns)
        splits = request.splits or [""] * len(request.patterns)
        pairs = zip(splits, weights, strict=True)
        return {_tag(split, weight): (split, weight) for split, weight in pairs}

    @contextmanager
    def inspect(self) -> Iterator[ExamplesInventory]:
        """Lists the input and looks at its first file."""
        request = self._request
        check_outside(request.patterns, self.job.workspace.output)
        weights = self.job.weights or (1.0,) * len(request.patterns)
        splits = request.splits or [""] * len(request.patterns)
        tags = [_tag(*pair) for pair in zip(splits, weights, strict=True)]
        passed_over = PassedOver()
        listed = list_sources(
            request.patterns, input_format=request.spec.input_format, splits=tags,
            allow_outside=request.spec.allow_outside, skip_files=request.spec.skip_files,
            pass_over=passed_over.add,
        )  # fmt: skip
        with closing(SourceList(map(_of_records, listed))) as sources:
            passed_over.report()
            _check_first(sources)
            self._check_tables(sources)
            self._check_condition(sources)
            with first_sources(sources, request.spec.limit, self._count) as first:
                self._limit = (first.is_cut and request.spec.limit) or 0
                self._take_shares(first)
                summary = first.summary()
                if self.job.records.key:
                    files_to_read = record_files(first, summary["bytes"], self._inputs)
                    self._key_splits = sample_keys(self.job, files_to_read, summary["bytes"])
                yield ExamplesInventory(summary["bytes"], summary, {}, first.modified, first)

    def _count(self, source: SourceRange, most: int) -> SourceRange:
        """Returns a file with how many records it has, up to so many, their bytes and their end."""
        (file,) = record_files([replace(source, split="")], 1)
        first = count_records(file, most, self.job.tables)
        return replace(
            source, most=first.most, most_bytes=first.most_bytes, most_end=first.most_end
        )

    def _check_tables(self, sources: SourceList) -> None:
        """Takes the types of columns from the first rows, where the files do not say them."""
        job = self.job
        if job.tables.given() or sources.formats & set(ROW_FORMATS):
            tables = check_tables(sources, job.tables, job.given_schema)
            self.job = replace(job, tables=tables)

    def _check_condition(self, sources: SourceList) -> None:
        """Checks --where against the first records of the first file.

        Raises:
          UsageError: it compares numbers with text.
        """
        if not self.job.records.where:
            return
        parts = parse_comparisons(self.job.records.where, None)
        (first,) = record_files([replace(next(iter(sources.first.values())), split="")], 1)
        batch = next(iter(read_batches(first, self.job.tables, _CHECKED_BYTES)), None)
        if batch is None or not len(batch.begins):
            return
        fulfilling(parts, batch.data, batch.begins, batch.ends)
        for name in dict.fromkeys(part.name for part in parts):
            if (find_feature(batch.data, batch.begins, batch.ends, name).kinds == ABSENT).all():
                self.note(
                    f"--where: none of the first {len(batch.begins)} records of {first.name} has "
                    f"the feature {name}"
                )

    def _take_shares(self, sources: SourceList) -> None:
        """Makes the shares of splits those of their files, where --input names them."""
        if not any(self._request.splits):
            return
        sizes = {split.name: 0.0 for split in self.job.splits}
        reached = {self._inputs[tag][0] for tag in sources.split_bytes}
        for tag, (split, weight) in self._inputs.items():
            sizes[split] += sources.split_bytes[tag] * weight
        for name, size in sizes.items():
            if not size:
                raise without_input(name, self._request.spec.limit, reached=name in reached)
        total = sum(sizes.values())
        splits = (
            SplitSpec(split.name, sizes[split.name] / total, split.num_shards)
            for split in self.job.splits
        )
        self.job = replace(self.job, splits=tuple(splits))

    def ranges(self, inventory: ExamplesInventory) -> Iterator[RecordFileRange]:
        """Yields the files to read, with the split and weight of each."""
        return record_files(inventory.files, inventory.input_bytes, self._inputs)

    def write(self, inventory: ExamplesInventory, *, workers: int) -> MergeTree:
        """Cuts the input into work items and chooses how run files are gathered."""
        target = record_item_bytes(inventory.input_bytes, workers)
        if self.job.map:
            target = min(target, mapped_item_bytes(inventory.input_bytes, workers))
        items = cut_record_items(self.ranges(inventory), target, self.job.tables)
        job = self.job
        count = write_work_items(job.workspace.inputs_folder, items)
        if self._key_splits:
            job.workspace.write_state(job.key_splits_path, self._key_splits)
        return tree_of_records(self.job, count, inventory.input_bytes)

    def config(self) -> dict[str, Any]:
        """Returns where the input was, and how much of it was read."""
        limit = {"limit": self._limit} if self._limit else {}
        return {"input": self._request.patterns} | limit

    def describe(self) -> str:
        """Returns the description of the dataset."""
        return "records of other files, written by recordmill"

    def stages(self, plan: WorkPlan[ExamplesJob, MergeTree]) -> list[Stage[Any]]:
        """Returns the stages of the job."""
        return examples_stages(plan.job, plan.stages, input_bytes=plan.input_bytes)

    def outline(self, inventory: ExamplesInventory, *, workers: int) -> Outline:
        """Returns what an estimate must know of the job."""
        job, total = self.job, inventory.input_bytes
        target = record_item_bytes(total, workers)
        items = count_work_items(self.ranges(inventory), target, splittable=True)

        def begin(workspace: Workspace) -> ExamplesJob:
            order = "shuffle" if job.records.key else job.records.order
            return replace(
                job, workspace=workspace, splits=(SplitSpec("train", 1.0, 1),), shards=ShardSpec(),
                max_rejected=1.0,
                records=msgspec.structs.replace(job.records, order=order, key=""),
            )  # fmt: skip

        return ShuffleOutline(
            inputs=describe_files(inventory.sources),
            job=job,
            sources=self.ranges(inventory),
            layout=Layout(
                True,
                job.tables.delimiter,
                job.tables.quoting == "csv",
                tuple(job.tables.columns),
                partial(_copy_records, job.tables),
            ),
            total=sum(source.text_bytes for source in inventory.files),
            wanted=_SAMPLE_BYTES,
            tree=tree_of_records(job, items, total),
            shares={split.name: split.share for split in job.splits},
            begin=begin,
            stages=examples_stages,
            first_steps=lambda _: [("Scatter", "read", items)],
            item_bytes=2.0 * RECORD_LIMITS.run_bytes,
            is_most=bool(job.records.deduplicate),
        )


def _copy_records(
    tables: TableSpec, source: RecordFileRange, lengths: Sequence[int], paths: Sequence[str]
) -> Iterator[float]:
    """Copies the first records of a file to some files; yields the stored bytes they are of."""
    waiting = list(zip(lengths, paths, strict=True))
    parts: list[bytes] = []
    taken = 0
    packed = source.text_bytes / max(source.size, 1)
    for batch in read_batches(source, tables, _CHECKED_BYTES):
        if not waiting:
            return
        for begin, end in zip(batch.begins.tolist(), batch.ends.tolist(), strict=True):
            parts.append(batch.data[begin:end].tobytes())
            taken += end - begin
            if taken >= waiting[0][0]:
                files.write_bytes(waiting.pop(0)[1], b"".join(parts))
                yield taken / packed
                parts, taken = [], 0
            if not waiting:
                return
    if parts:
        files.write_bytes(waiting[0][1], b"".join(parts))
        yield taken / packed


def _tag(split: str, weight: float) -> str:
    """Returns what stands for a glob in the list of its files: its split, and a weight beside 1."""
    return split if weight == 1 else f"{split or 'any'} of weight {weight:g}"


def _of_records(source: SourceRange) -> SourceRange:
    """Returns a file as one of records, where its name does not say that it is a table."""
    return source if source.format in ROW_FORMATS else replace(source, format="tfrecord")


def _check_first(sources: SourceList) -> None:
    """Checks that the first file holds records.

    Raises:
      UsageError: it holds something else.
    """
    first = sources.first.get("tfrecord")
    if first is None:
        return
    try:
        compression_of(files.read_bytes(first.path, 0, HEADER_BYTES), first.name)
    except ValueError as error:
        raise UsageError(
            f"--input must match TFRecord files alone, and {first.path} is {error}; leave out "
            "other files, such as an index"
        ) from error
