"""Stages of three lines, to try what runs the stages of all jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recordmill.transforms.dataset.stages import Done, Stage

from .small_job import SmallJob, small_job


class Call(Stage[SmallJob]):
    """Calls a function for each item."""

    def __init__(
        self, job: SmallJob, function: Callable[[int], object], items: int = 2, name: str = "Call"
    ) -> None:
        super().__init__(job)
        self.name = name
        self._function = function
        self._items = items

    def items(self) -> int:
        return self._items

    def do(self, item: int) -> Done:
        self._function(item)
        return Done(1)

    def describe(self, item: int) -> str:
        return f"toy {item}"


def call(folder: str, function: Callable[[int], object], items: int = 2) -> list[Call]:
    """Stages that call a function, for programs."""
    return [Call(small_job(Path(folder) / "toy", token="0" * 16), function, items)]
