"""The stages that read a job's work items from the input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from recordmill.transforms.dataset.run_state import DamagedStateError
from recordmill.transforms.dataset.stages import Phase, Stage
from recordmill.transforms.dataset.workspace import Run
from recordmill.transforms.sources.work_item_files import read_work_item, read_work_item_count
from recordmill.transforms.storage import files

RunT = TypeVar("RunT", bound=Run)


class InputStage(Stage[RunT]):
    """Reads each work item that planning cut.

    Args:
      job: whose work items are written when the stage begins.
      limits: the sizes in which input is read.
      input_bytes: of all work items, for progress.

    Attributes:
      phase: its name for the person who waits.
    """

    phase: ClassVar[str]

    def __init__(self, job: RunT, limits: Any, input_bytes: int = 0) -> None:
        super().__init__(job)
        self._limits = limits
        self._input_bytes = input_bytes

    @property
    @abstractmethod
    def results_folder(self) -> str:
        """The folder in which each finished work item has a description."""

    def items(self) -> int:
        """Returns the number of work items."""
        return self._work_items

    @cached_property
    def _work_items(self) -> int:
        return read_work_item_count(self.job.workspace.inputs_folder)

    def describe(self, item: int) -> str:
        """Returns the name of its first file."""
        return read_work_item(self.job.workspace.inputs_folder, item)[0].name

    def phases(self) -> Iterator[Phase]:
        """Yields the work items that are described."""
        with suppress(DamagedStateError):  # they are not cut yet, or deleted by now
            total = self._work_items
            done = files.count(self.results_folder, ".json")
            yield Phase(self.phase, done, total, self._input_bytes)
