"""The stages that read a job's work items from the input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

from recordmill.transforms.dataset.stages import Phase, Stage
from recordmill.transforms.dataset.workspace import Run
from recordmill.transforms.sources.work_item_files import read_work_item
from recordmill.transforms.storage import files

RunT = TypeVar("RunT", bound=Run)


class InputStage(Stage[RunT]):
    """Reads each work item that planning cut.

    Args:
      job: the job.
      work_items: their number.
      limits: the sizes in which input is read.
      input_bytes: of all work items, for progress.

    Attributes:
      phase: its name for the person who waits.
    """

    phase: ClassVar[str]

    def __init__(self, job: RunT, work_items: int, limits: Any, input_bytes: int = 0) -> None:
        super().__init__(job)
        self._work_items = work_items
        self._limits = limits
        self._input_bytes = input_bytes

    @property
    @abstractmethod
    def results_folder(self) -> str:
        """The folder in which each finished work item has a description."""

    def items(self) -> int:
        """Returns the number of work items."""
        return self._work_items

    def describe(self, item: int) -> str:
        """Returns the name of its first file."""
        return read_work_item(self.job.workspace.inputs_folder, item)[0].name

    def phases(self) -> Iterator[Phase]:
        """Yields the work items that are described."""
        done = files.count(self.results_folder, ".json")
        yield Phase(self.phase, done, self._work_items, self._input_bytes)
