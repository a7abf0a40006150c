"""How elements of one kind become a dataset: what each kind of job gives `write_elements.py`.

Readers of the files of rows share it with the command, which loads no Beam.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from recordmill.records.state import Count
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.storage import files

JobT = TypeVar("JobT", bound=Job)


class SpoolFile(msgspec.Struct, frozen=True, order=True):
    """A file of rows that a bundle has written.

    Attributes:
      name: of it, in the folder of elements.
      elements: their number.
      size_bytes: of the file.
    """

    name: str
    elements: Count
    size_bytes: Count

    def path(self, job: Job) -> str:
        """Returns where it lies."""
        return files.join(elements_folder(job), self.name)


class ElementSpool(ABC):
    """Writes files of rows, one after the other; a worker has one."""

    @abstractmethod
    def begin(self, path: str, opened: ExitStack) -> None:
        """Begins a file.

        Args:
          path: of it; what else it needs has names that begin so.
          opened: closes what is opened, by the error that ended it if there was one.
        """

    @abstractmethod
    def add(self, elements: list[Any]) -> int:
        """Takes some elements, of 4 MB unless one alone is larger.

        Returns:
          About how many bytes they take in files.

        Raises:
          WrongElementError: one is none that can be written.
        """


@dataclass(frozen=True)
class ElementSink(ABC, Generic[JobT]):
    """How elements of one kind become a dataset; small enough to be sent to every stage.

    Attributes:
      transform: the name of the PTransform, for messages and the manifest.
      job: what is written.
      file_bytes: a file of rows, or what lies beside it, is ended when it has so many.
      batch_elements: of a bundle are held, or 4 MB of them, before they are written.
    """

    transform: ClassVar[str]
    job: JobT
    file_bytes: int = 1 << 25
    batch_elements: int = field(default=4096, kw_only=True)

    def prepare(self) -> None:
        """Writes what the run needs into its folders, once they are claimed."""
        return

    def prepared(self) -> ElementSink[JobT]:
        """Returns the sink as stages have it that follow `prepare`, without what it has written."""
        return self

    @abstractmethod
    def size_of(self, element: Any) -> int:
        """Returns about how many bytes an element takes, 0 for one that is of a wrong type."""

    @abstractmethod
    def open_spool(self) -> ElementSpool:
        """Returns what a worker writes files of rows with."""

    @abstractmethod
    def plan(self, spooled: list[SpoolFile]) -> None:
        """Writes what the first of the stages needs of the files of all bundles, or finds it.

        Raises:
          RunError: there is nothing to write.
        """

    @abstractmethod
    def stages(self) -> Sequence[Stage[Any]]:
        """Returns the stages that make the dataset of what is planned."""

    @abstractmethod
    def commit_spec(self) -> CommitSpec:
        """Returns what the manifest says."""


def elements_folder(job: Job) -> str:
    """The folder of the files of all bundles."""
    return files.join(job.workspace.work, "elements")
