"""What `recordmill plan` must know of a kind of job: how it is sampled, and how it is cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.dataset.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Sample:
    """A part of the input, as a job of its own.

    Attributes:
      begin: plans it in a workspace, with one split; returns the job and its stages.
      size: of the part, in the unit of its outline.
      whole: the size of all that it is a sample of.
      splits: split -> the share of what comes out of the whole that it gets; 1 for all of it.
      is_local: no storage service is read.
    """

    begin: Callable[[Workspace], tuple[Job, Sequence[Stage[Any]]]]
    size: float
    whole: float
    splits: Mapping[str, float]
    is_local: bool = True


class Outline(ABC):
    """A job as a whole, as far as listing the input tells it.

    Attributes:
      inputs: their number and size, for people.
      unit: of sizes of samples: bytes, or something to count.
      regroups: how often runs are gathered into fewer.
      item_bytes: the memory of a work item.
      is_most: see `Estimate`.
      statistics: of the input, for warnings.
    """

    inputs: str
    unit: str = "bytes"
    regroups: int = 0
    item_bytes: float = 0.0
    is_most: bool = False
    statistics: Mapping[str, Any] = {}

    @abstractmethod
    def samples(self, folder: str) -> dict[str, list[Sample]]:
        """Returns samples of the input, by what those that are alike are called.

        Args:
          folder: for files that they are made of.
        """

    @abstractmethod
    def shards(self, split_bytes: Mapping[str, float]) -> dict[str, int]:
        """Returns the shards of each split, from the expected bytes of all."""

    @abstractmethod
    def steps(
        self, shards: Mapping[str, int], work_bytes: Mapping[str, float]
    ) -> Iterator[tuple[str, str, int]]:
        """Yields the stages that take time: name of the stage, of the step, and its work items.

        Args:
          shards: of each split.
          work_bytes: folder of temporary files -> bytes.
        """

    @abstractmethod
    def range_reads(self, shards: Mapping[str, int]) -> int:
        """Returns the reads of parts of files."""

    def waiting_seconds(self, reads: int) -> float:
        """Returns how long shards wait for these reads, where they are of a storage service."""
        del reads
        return 0.0

    def temporary_bytes(self, work_bytes: Mapping[str, float], output_bytes: float) -> float:
        """Returns the most bytes of temporary files."""
        del output_bytes
        return sum(work_bytes.values())


def show_bytes(size: float) -> str:
    """Returns a size as people write it."""
    for suffix in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5:
            return (
                f"{size:.0f} {suffix}" if suffix == "B" or size >= 99.95 else f"{size:.1f} {suffix}"
            )
        size /= 1000
    return f"{size:,.1f} PB"
