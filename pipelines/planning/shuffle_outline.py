"""What `recordmill plan` knows of jobs that shuffle what they read from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from recordmill.pipelines.planning.outline import Outline, Sample, show_bytes
from recordmill.pipelines.planning.sample_sources import Layout, SamplePart, sample_sources
from recordmill.transforms.dataset.shard_counts import count_shards
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.shuffle_job import ShuffleJob
from recordmill.transforms.sources.formats import COLUMN_FORMATS, CutOptions
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files

_SAMPLES = 8
_PIECES = 32
_PIECE_BYTES = 1 << 16  # a piece is not smaller
_WORK_ITEMS = 4
_REMOTE_READ_SECONDS = 0.03  # of a range from object storage; not measured here

JobT = TypeVar("JobT", bound=ShuffleJob)
SourceT = TypeVar("SourceT", bound=SourceRange)


def describe_files(sources: Mapping[str, Any]) -> str:
    """Returns number and size of files, from what the manifest will say of them."""
    return f"{sources['files']:,} files, {show_bytes(sources['bytes'])}"


def count_work_items(sources: Iterable[SourceRange], target_bytes: int, *, splittable: bool) -> int:
    """Returns into how many work items files are cut, without reading most for where records end.

    Args:
      sources: whole files.
      target_bytes: of a work item.
      splittable: whether files can be cut at all.
    """
    as_text = (s if s.format in COLUMN_FORMATS else replace(s, format="text") for s in sources)
    items = cut_work_items(as_text, target_bytes, CutOptions(splittable))
    return sum(1 for _ in items)


@dataclass
class ShuffleOutline(Outline, Generic[JobT, SourceT]):
    """A job that shuffles.

    Attributes:
      inputs, item_bytes, is_most: see `Outline`.
      job: the job.
      sources: its files.
      layout: how records lie in them.
      total: their bytes.
      wanted: the bytes of all samples together.
      tree: of its run files.
      shares: split -> what it gets of what comes out.
      copies: split -> how often its records are read; once where it is not named.
      begin: takes a workspace; returns the job of a sample, when what it needs beside work items is
        written.
      stages: returns the stages of a job with such a tree.
      first_steps: name of the stage, of the step and its work items, of those before run files are
        gathered; takes the bytes of folders of temporary files.
    """

    inputs: str
    job: JobT
    sources: Iterable[SourceT]
    layout: Layout
    total: int
    wanted: int
    tree: MergeTree
    shares: Mapping[str, float]
    begin: Callable[[Workspace], JobT]
    stages: Callable[[JobT, MergeTree], Sequence[Stage[Any]]]
    first_steps: Callable[[Mapping[str, float]], Iterable[tuple[str, str, int]]]
    copies: Mapping[str, int] = field(default_factory=dict)
    item_bytes: float = 0.0
    is_most: bool = False

    @property
    def regroups(self) -> int:  # type: ignore[override]
        """The levels of the tree."""
        return self.tree.levels

    def samples(self, folder: str) -> dict[str, list[Sample]]:
        """Returns parts of the files, each from all over the input."""
        pieces = max(1, min(_PIECES, self.wanted // _PIECE_BYTES))
        found = sample_sources(
            self.sources, self.total, self.layout, folder, parts=pieces, wanted=self.wanted
        )
        samples = []
        for first in range(min(_SAMPLES, len(found))):
            parts = [part for piece in found[first::_SAMPLES] for part in piece]
            size = sum(part.input_bytes for part in parts)
            if size:
                begin = partial(self._begin, parts)
                is_local = all(files.is_local(part.source.path) for part in parts)
                samples.append(Sample(begin, size, self.total, self.shares, is_local))
        return {"the sample": samples}

    def _begin(
        self, parts: Sequence[SamplePart[SourceT]], workspace: Workspace
    ) -> tuple[JobT, Sequence[Stage[Any]]]:
        job = self.begin(workspace)
        sources = [part.source for part in parts]
        items = [sources[at::_WORK_ITEMS] for at in range(min(_WORK_ITEMS, len(sources)))]
        count = write_work_items(workspace.inputs_folder, items)
        # Where the job gathers run files, so does the sample, though it has few.
        tree = MergeTree(count, max_fan_in=max(count, 1))
        if self.tree.levels:
            tree = MergeTree(count, max_fan_in=1, fan_in=_WORK_ITEMS)
        return job, self.stages(job, tree)

    def shards(self, split_bytes: Mapping[str, float]) -> dict[str, int]:
        """Returns the shards as the job will count them."""
        splits = self.job.splits
        sizes = [int(split_bytes[split.name]) for split in splits]
        counts = count_shards(sizes, splits, self.job.shards)
        return {split.name: count for split, count in zip(splits, counts, strict=True)}

    def steps(
        self, shards: Mapping[str, int], work_bytes: Mapping[str, float]
    ) -> Iterator[tuple[str, str, int]]:
        """Yields the passes over all that is read."""
        yield from self.first_steps(work_bytes)
        for level in range(1, self.tree.levels + 1):
            yield "Regroup1", "regroup", self.tree.run_count(level)
        yield "Build", "write", sum(shards.values())

    def range_reads(self, shards: Mapping[str, int]) -> int:
        """Returns the reads of parts of run files."""
        reads = sum(count * self.copies.get(split, 1) for split, count in shards.items())
        return self.tree.range_reads(reads)

    def waiting_seconds(self, reads: int) -> float:
        """Returns what reads of object storage take, which a sample on this disk does not show."""
        return 0.0 if files.is_local(self.job.workspace.work) else reads * _REMOTE_READ_SECONDS
