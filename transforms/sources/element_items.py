"""Elements of a PCollection as the work items of a job that shuffles."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TypeVar

from recordmill.transforms.dataset.element_sink import ElementSink, SpoolFile
from recordmill.transforms.shuffle.merge_tree import MAX_FAN_IN, MergeTree, single_level_tree
from recordmill.transforms.shuffle.shuffle_job import ShuffleJob
from recordmill.transforms.sources.item_cutting import gather
from recordmill.transforms.sources.work_item_files import write_work_items
from recordmill.transforms.sources.work_items import SourceRange

_MOST_ITEMS = 4096  # about: beyond 128 GB of rows, work items grow

ShuffleJobT = TypeVar("ShuffleJobT", bound=ShuffleJob)


@dataclass(frozen=True)
class ShuffledElements(ElementSink[ShuffleJobT]):
    """Elements whose files of rows are read as files of the input are; see `ElementSink`.

    Attributes:
      item_bytes: of files that a work item reads, at least, where there are so many.
      max_runs: more work items are regrouped, once.
    """

    item_bytes: int = field(default=1 << 25, kw_only=True)
    max_runs: int = field(default=MAX_FAN_IN, kw_only=True)

    @abstractmethod
    def source(self, spooled: SpoolFile) -> SourceRange:
        """Returns a file of rows as stages read it."""

    def plan(self, spooled: list[SpoolFile]) -> None:
        """Makes work items of the files of rows, and decides how run files are regrouped, once."""
        job = self.job
        if job.workspace.read_state(job.tree_path, MergeTree) is not None:
            return
        target = max(self.item_bytes, sum(each.size_bytes for each in spooled) // _MOST_ITEMS)
        items = gather(map(self.source, spooled), lambda source: source.size, target)
        count = write_work_items(job.workspace.inputs_folder, items)
        job.workspace.write_state(job.tree_path, single_level_tree(count, self.max_runs))
