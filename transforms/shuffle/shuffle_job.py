"""A job that shuffles through run files: where they lie, and which of them are whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from recordmill.records.arrays import Bytes
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.run_state import Nothing
from recordmill.transforms.shuffle.merge_tree import MergeTree
from recordmill.transforms.shuffle.run_files import RunFileInfo, RunFiles, SortedRecords
from recordmill.transforms.storage import files

# (parts of run files, first hash, last hash) -> their records in that range, in order.
MergeRecords = Callable[[Sequence[Bytes], int, int], SortedRecords]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleJob(Job):
    """A job whose scatter writes run files."""

    @abstractmethod
    def record_merger(self) -> MergeRecords:
        """Returns what merges parts of run files; whatever it needs is loaded once."""

    @property
    def tree_path(self) -> str:
        """The merge tree, where nobody knows it before the run."""
        return files.join(self.workspace.work, "tree.json")

    def merge_tree(self, known: MergeTree | None) -> MergeTree:
        """Returns the merge tree of run files: that which is known, or what is written of it.

        Raises:
          DamagedStateError: it is missing or damaged.
        """
        return known or self.workspace.need_state(self.tree_path, MergeTree)

    @property
    def shard_plan_path(self) -> str:
        """The number of shards of each split, written when all input is read."""
        return files.join(self.workspace.work, "shards.json")

    @property
    def shard_sums_path(self) -> str:
        """The sums by hash that shards are cut by, beside the shard plan."""
        return files.join(self.workspace.work, "shards.npz")

    def runs_folder(self, level: int) -> str:
        """The folder of run files and their descriptions: of scatter (level 0) or of a regroup."""
        return files.join(self.workspace.work, f"runs-{level}")

    def run_path(self, level: int, number: int) -> str:
        """A run file without its extension."""
        return files.join(self.runs_folder(level), f"run-{number:06d}")

    def description_path(self, level: int, number: int) -> str:
        """The description of the run files of a work item, written once they are whole."""
        return self.run_path(level, number) + ".json"

    def dropped_path(self, level: int) -> str:
        """A mark that the run files of a level were merged and deleted."""
        return files.join(self.runs_folder(level), "dropped")

    def read_run_infos(self, level: int, number: int) -> tuple[RunFileInfo, ...] | None:
        """Returns the run files of a work item, None where it is not done."""
        found = self.workspace.read_state(self.description_path(level, number), RunFiles)
        return found.runs if found else None

    def holds_run_files(self, level: int, runs: Iterable[RunFileInfo]) -> bool:
        """Tells whether run files are there in their sizes, or were merged and deleted."""
        folder = self.runs_folder(level)
        missing = [run for run in runs if files.size(run.path(folder)) != run.size]
        return not missing or self.is_dropped(level)

    def is_dropped(self, level: int) -> bool:
        """Tells whether the run files of a level were merged and deleted."""
        return self.workspace.read_state(self.dropped_path(level), Nothing) is not None
